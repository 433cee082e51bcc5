"""Positions as JSON, one a line: `python traffic.py DRIVERS SECONDS`. The same seed gives the same rides."""

import json
import random
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

# Most drivers are where most people are. Each city has a neighbour.
CITIES = {"New York": 40, "Chicago": 15, "Houston": 15, "Phoenix": 10, "Dallas": 10, "Boston": 10}
NEXT_TO = {
    "New York": "Newark",
    "Chicago": "Evanston",
    "Houston": "Pasadena",
    "Phoenix": "Tempe",
    "Dallas": "Plano",
    "Boston": "Cambridge",
}
RIDE_S = 30
SENT_TWICE = 0.02
AGAIN_AFTER_S = 2  # so long a telephone waits for an answer


def traffic(drivers: int, seconds: int, *, seed: int, start: datetime) -> Iterator[dict[str, Any]]:
    """Yield a position of each driver for each second, in the order in which telephones send them.

    One in fifty is sent again two seconds later, with the same id: the telephone has got no answer.
    """
    chance = random.Random(seed)
    homes = chance.choices(list(CITIES), weights=list(CITIES.values()), k=drivers)
    places = [[chance.randint(30_000_000, 45_000_000), chance.randint(-110_000_000, -75_000_000)] for _ in homes]
    again: dict[int, list[dict[str, Any]]] = {}
    for second in range(seconds + AGAIN_AFTER_S):
        for driver, (home, place) in enumerate(zip(homes, places, strict=True)):
            if second >= seconds:
                break
            place[0] += chance.randint(-120, 120)  # at most 13 metres a second, in each direction
            place[1] += chance.randint(-120, 120)
            ride, since = divmod(second + driver, RIDE_S)
            # Each fifth driver crosses a city limit in each ride: out with one passenger, home with the next.
            away = driver % 5 == 0 and (since >= RIDE_S // 2) != (ride % 2 == 1)
            position = {
                "event_id": f"d{driver}-{second}",
                "driver_id": f"d{driver}",
                "ride_id": f"d{driver}-r{ride}",
                "city": NEXT_TO[home] if away else home,
                "latitude": place[0],
                "longitude": place[1],
                "at": start + timedelta(seconds=second),
            }
            yield position
            if chance.random() < SENT_TWICE:
                again.setdefault(second + AGAIN_AFTER_S, []).append(position)
        yield from again.pop(second, ())


if __name__ == "__main__":
    count, duration = map(int, sys.argv[1:])
    for one in traffic(count, duration, seed=1, start=datetime.now(UTC) - timedelta(seconds=duration)):
        print(json.dumps({**one, "at": one["at"].isoformat()}))
