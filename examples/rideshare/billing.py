"""Billing: 300 cents, and one for each five metres of each leg between two positions. Every position counts once."""

from positions import Position, positions

import leftfold as lf


def book(position: Position, db: lf.SqlConnection) -> None:
    """Book a leg: from the last position of the ride to this one. A position that was sent again is left out.

    Nine millionths of a degree are a metre. Whole numbers are divided, so the remainder of each leg is free.
    """
    db.execute(
        """
        with new as (
            insert into billed values (%(event_id)s) on conflict do nothing returning event_id
        )
        insert into rides as r
        select %(ride_id)s, %(driver_id)s, %(latitude)s, %(longitude)s, 1, 300 from new
        on conflict (ride_id) do update set
            cents = r.cents + (abs(excluded.latitude - r.latitude) + abs(excluded.longitude - r.longitude)) / 9 / 5,
            latitude = excluded.latitude,
            longitude = excluded.longitude,
            positions = r.positions + 1
        """,
        position.model_dump(),
    )


@lf.consumer(positions, start="beginning", delivery="exactly_once", into=lf.Sql("env:LEDGER_URL"), parallel=4)
def billing(position: Position, db: lf.SqlConnection) -> None:
    """Book into the ledger. Its rows and the position of this consumer are one transaction of the database."""
    book(position, db)
