"""Compares a ledger with the positions that were sent: `python fares.py positions.jsonl URL`.

Its exit code is 1 if a fare differs.
"""

import json
import sys
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import psycopg


def expected(sent: Iterable[dict[str, Any]]) -> dict[str, tuple[int, int]]:
    """Return the number of positions and the cents of each ride, from what telephones sent, in their order."""
    rides: dict[str, list[tuple[int, int]]] = {}
    seen = set()
    for position in sent:
        if position["event_id"] not in seen:
            seen.add(position["event_id"])
            rides.setdefault(position["ride_id"], []).append((position["latitude"], position["longitude"]))
    return {ride: (len(places), fare(places)) for ride, places in rides.items()}


def fare(places: list[tuple[int, int]]) -> int:
    metres = [(abs(b[0] - a[0]) + abs(b[1] - a[1])) // 9 for a, b in pairwise(places)]
    return 300 + sum(metre // 5 for metre in metres)


def booked(url: str) -> dict[str, tuple[int, int]]:
    with psycopg.connect(url) as db:
        return {
            ride: (number, cents) for ride, number, cents in db.execute("select ride_id, positions, cents from rides")
        }


if __name__ == "__main__":
    with Path(sys.argv[1]).open() as file:
        right = expected(json.loads(line) for line in file)
    ledger = booked(sys.argv[2])
    wrong = [ride for ride in right.keys() | ledger.keys() if right.get(ride) != ledger.get(ride)]
    counted = sum(number for number, _ in ledger.values())
    print(f"{len(ledger):,} rides, {counted:,} positions, {sum(cents for _, cents in ledger.values()):,} cents booked")
    print(f"{len(wrong):,} fares are wrong")
    sys.exit(1 if wrong else 0)
