"""Synthetic events for a declared topic. The same seed gives the same keys, prices and delays.

Strings and ints follow a Zipf law, as real keys do. Most events are a few seconds old, and some arrive out of order.
"""

from __future__ import annotations

import itertools
import random
from bisect import bisect
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from leftfold import clock
from leftfold.declare.event import EventField, fields_of
from leftfold.declare.topic import Topic
from leftfold.fold.expressions import from_micros

KEYS = 10_000
ZIPF = 1.1  # the exponent: the busiest key has about 15 % of all events
OUT_OF_ORDER = 0.05
_USUAL_DELAY_S = 2.0


def synthetic(topic: Topic[Any], count: int, *, seed: int) -> Iterator[dict[str, Any]]:
    """Make `count` records as dicts. Times are relative to now: 5 % lag by up to 80 % of the topic's lateness."""
    chance = random.Random(seed)
    fields = fields_of(topic.event).values()
    time = topic.time.name if topic.time is not None else None
    others = {f.name: _maker(f, chance) for f in fields if f.name != time}
    longest_s = topic.lateness * 0.8 / 1e6
    draw = chance.random
    for _ in range(count):
        record = {name: make() for name, make in others.items()}
        if time is not None:
            longest = longest_s if draw() < OUT_OF_ORDER else _USUAL_DELAY_S
            record[time] = from_micros(clock.now_us() - int(longest * draw() * 1e6))
        yield record


@cache
def _weights() -> list[float]:
    """Return the cumulated weights of all ranks."""
    return list(itertools.accumulate(1 / rank**ZIPF for rank in range(1, KEYS + 1)))


def _maker(field: EventField, chance: random.Random) -> Callable[[], Any]:
    weights, draw, last = _weights(), chance.random, KEYS - 1
    total = weights[-1]
    texts = [f"{field.name[0]}{rank}" for rank in range(KEYS)] if field.kind == "string" else []
    # Half of the time that `choices` takes for one value is spent on checks of the same weights.
    makers: dict[str, Callable[[], Any]] = {
        "string": lambda: texts[bisect(weights, draw() * total, 0, last)],
        "int": lambda: bisect(weights, draw() * total, 0, last) + 1,
        "float": lambda: round(chance.lognormvariate(3.5, 1.0), 2),  # prices: the median is about 33
        "bool": lambda: draw() < 0.5,
        "datetime": lambda: from_micros(clock.now_us()),
        "bytes": lambda: chance.randbytes(8),
    }
    make = makers[field.kind]
    return (lambda: [make() for _ in range(chance.randrange(4))]) if field.repeated else make
