"""Where 10,000 drivers are: one position a second each."""

from datetime import datetime

import leftfold as lf


class Position(lf.Event):
    """A driver is somewhere, with a passenger. Degrees are in millionths, so that fares are exact."""

    event_id: str  # made by the driver's telephone, the same if it sends the position again
    driver_id: str
    ride_id: str
    city: str
    latitude: int
    longitude: int
    at: datetime


positions = lf.Topic(
    "positions",
    Position,
    key=Position.driver_id,
    time=Position.at,
    rate="10k/s",
    partitions=20,
    retention="7d",
    lateness="10m",
)
