"""Synthetic events for a declared topic. The same seed gives the same keys, prices and delays.

Strings and ints follow a Zipf law, as real keys do. Most events are a few seconds old, and some arrive out of order.
"""

from __future__ import annotations

import itertools
import math
import random
from array import array
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
_SLICES = 8_192  # of the Zipf law; a power of two, so that the bounds of a slice are exact
_CLOCK_EVERY = 64
_KINDERMAN_MONAHAN = 4 * math.exp(-0.5) / math.sqrt(2.0)
# Makes the form in which a field's values are wanted. A datetime is given to it in microseconds.
Form = Callable[[EventField], Callable[[Any], Any]]


def synthetic(topic: Topic[Any], count: int, *, seed: int) -> Iterator[dict[str, Any]]:
    """Make `count` records as dicts. Times are relative to now: 5 % lag by up to 80 % of the topic's lateness."""
    names = list(fields_of(topic.event))
    for values in drawn(topic, count, _as_in_an_event, seed=seed):
        yield dict(zip(names, values, strict=True))


def drawn(topic: Topic[Any], count: int, form: Form, *, seed: int) -> Iterator[list[Any]]:
    """Draw the values of `count` records, each in its form. A record is a list in the order of its fields.

    The form of a string, an int or a bool is made once and used again, because they are few. The clock is read for
    every 64th record.
    """
    chance = random.Random(seed)
    fields = fields_of(topic.event)
    time = topic.time.name if topic.time is not None else None
    makers = [_maker(f, form(f), chance) for f in fields.values() if f.name != time]
    if time is None:
        for _ in range(count):
            yield [make() for make in makers]
        return
    # The time is drawn last, wherever it stands.
    place, timed = list(fields).index(time), form(fields[time])
    longest_s = topic.lateness * 0.8 / 1e6
    draw = chance.random
    for begun in range(0, count, _CLOCK_EVERY):
        now = clock.now_us()
        for _ in range(min(_CLOCK_EVERY, count - begun)):
            values = [make() for make in makers]
            longest = longest_s if draw() < OUT_OF_ORDER else _USUAL_DELAY_S
            values.insert(place, timed(now - int(longest * draw() * 1e6)))
            yield values


def _as_in_an_event(field: EventField) -> Callable[[Any], Any]:
    if field.kind != "datetime":
        return lambda value: value
    return (lambda moments: [from_micros(m) for m in moments]) if field.repeated else from_micros


def _ranked(of_rank: Callable[[int], Any], chance: random.Random) -> Callable[[], Any]:
    """Return a function that draws a rank, as `random.choices` does with the weights of a Zipf law, and its value.

    Most draws fall into a slice of the law that holds one rank. In the others the search is short.
    """
    weights, ranks = _law()
    total, draw = weights[-1], chance.random
    known: list[Any] = [None] * _SLICES  # the value of a slice with one rank
    made: list[Any] = [None] * KEYS

    def value() -> Any:
        share = draw()
        here = int(share * _SLICES)
        found = known[here]
        if found is None:
            low, high = ranks[here], ranks[here + 1]
            rank = low if low == high else bisect(weights, share * total, low, high)
            found = made[rank]
            if found is None:
                found = made[rank] = of_rank(rank)
            if low == high:
                known[here] = found
        return found

    return value


@cache
def _law() -> tuple[array[float], array[int]]:
    """Return the cumulated weights of all ranks, and the rank with which each slice begins.

    Lists of them do not fit into the processor's caches, and most of the time is then spent on waiting for memory.
    """
    weights = array("d", itertools.accumulate(1 / rank**ZIPF for rank in range(1, KEYS + 1)))
    total = weights[-1]
    return weights, array("H", [bisect(weights, here / _SLICES * total, 0, KEYS - 1) for here in range(_SLICES + 1)])


def _price(formed: Callable[[float], Any], chance: random.Random) -> Callable[[], Any]:
    """Return a function that draws a price. The median is about 33.

    It is `round(chance.lognormvariate(3.5, 1.0), 2)` without its calls, which take as long as the drawing.
    """
    draw, log, exp = chance.random, math.log, math.exp

    def price() -> Any:
        while True:
            one = draw()
            other = 1.0 - draw()
            normal = _KINDERMAN_MONAHAN * (one - 0.5) / other
            if normal * normal / 4.0 <= -log(other):
                return formed(round(exp(3.5 + normal), 2))

    return price


def _maker(field: EventField, formed: Callable[[Any], Any], chance: random.Random) -> Callable[[], Any]:
    if field.repeated:
        make = _single(field, lambda value: value, chance)
        return lambda: formed([make() for _ in range(chance.randrange(4))])
    return _single(field, formed, chance)


def _single(field: EventField, formed: Callable[[Any], Any], chance: random.Random) -> Callable[[], Any]:
    match field.kind:
        case "string":
            initial = field.name[0]
            return _ranked(lambda rank: formed(f"{initial}{rank}"), chance)
        case "int":
            return _ranked(lambda rank: formed(rank + 1), chance)
        case "float":
            return _price(formed, chance)
        case "bool":
            draw, truth = chance.random, cache(formed)
            return lambda: truth(draw() < 0.5)
        case "datetime":
            return lambda: formed(clock.now_us())
        case "bytes":
            return lambda: formed(chance.randbytes(8))
