create table billed (event_id text primary key);

create table rides (
    ride_id text primary key,
    driver_id text not null,
    latitude bigint not null,
    longitude bigint not null,
    positions bigint not null,
    cents bigint not null
);
