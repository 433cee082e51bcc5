"""The same positions, keyed by city: what not to do."""

from billing import book
from positions import Position

import leftfold as lf

positions_by_city = lf.Topic(
    "positions_by_city",
    Position,
    key=Position.city,
    time=Position.at,
    rate="10k/s",
    partitions=20,
    retention="7d",
    lateness="10m",
)


@lf.consumer(
    positions_by_city, start="beginning", delivery="exactly_once", into=lf.Sql("env:CITY_LEDGER_URL"), parallel=4
)
def billing_by_city(position: Position, db: lf.SqlConnection) -> None:
    """Book as billing does, into another ledger."""
    book(position, db)
