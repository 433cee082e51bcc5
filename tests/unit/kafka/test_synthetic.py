"""Synthetic records in bulk are those of `declare.synthetic`, encoded one by one as a producer encodes a dict."""

from __future__ import annotations

import random
import struct
from datetime import datetime
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import leftfold as lf
from leftfold import clock
from leftfold.declare.event import fields_of
from leftfold.declare.synthetic import synthetic
from leftfold.fold.expressions import from_micros
from leftfold.kafka.encode import avro_encoder, field_encoder
from leftfold.kafka.producer import Producer, key_encoder
from leftfold.kafka.synthetic import avro_synthetic
from leftfold.settings import Kafka
from tests.unit.declare.declared import NOON, clicks

AT = 1_767_614_400_000_000
ID = 7
_YEARS_9999 = 253_402_300_799_999_999
_KINDS: tuple[tuple[Any, Any], ...] = (
    (str, "x"),
    (int, 5),
    (float, 0.5),
    (bool, True),
    (datetime, NOON),
    (bytes, b"\xff"),
)


@pytest.fixture(autouse=True)
def _clock_stands_still(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "now_us", lambda: AT)


def one_by_one(topic: lf.Topic[Any], count: int, seed: int) -> list[tuple[bytes, bytes]]:
    key, encode = key_encoder(tuple(k.name for k in topic.key)), avro_encoder(topic.event, ID)
    return [(key(record), encode(record)) for record in synthetic(topic, count, seed=seed)]


def in_bulk(topic: lf.Topic[Any], count: int, seed: int) -> list[tuple[bytes, bytes]]:
    key = key_encoder(tuple(k.name for k in topic.key))
    return list(avro_synthetic(topic, count, seed=seed, schema_id=ID, key=key))


MANY_OF: Any = list  # for a type checker, a kind that is a value cannot be in a type
# Shapes of a field: its annotation, and a default if it has one.
SHAPES: list[tuple[Any, ...]] = [
    shape
    for kind, value in _KINDS
    for shape in (
        (kind,),
        (kind, value),
        (kind | None,),
        (kind | None, None),
        (kind | None, value),
        (MANY_OF[kind],),
        (MANY_OF[kind], [value]),
        (MANY_OF[kind] | None,),
        (MANY_OF[kind] | None, None),
        (MANY_OF[kind] | None, [value]),
    )
]


def topic_of(shapes: list[tuple[Any, ...]], keys: list[Any], *, timed: bool, order: int) -> lf.Topic[Any]:
    declared = {f"f{number}": shape for number, shape in enumerate(shapes)}
    declared |= {f"k{number}": (kind,) for number, kind in enumerate(keys)}
    if timed:
        declared["at"] = (datetime,)
    names = list(declared)
    random.Random(order).shuffle(names)
    defaults = {name: declared[name][1] for name in names if len(declared[name]) > 1}
    body = {"__annotations__": {name: declared[name][0] for name in names}, "__module__": __name__, **defaults}
    event: Any = type("Made", (lf.Event,), body)
    key = tuple(getattr(event, f"k{number}") for number in range(len(keys)))
    if timed:
        return lf.Topic("made", event, key=key, time=event.at)
    return lf.Topic("made", event, key=key, compacted=True)


@given(
    shapes=st.lists(st.sampled_from(SHAPES), max_size=6),
    keys=st.lists(st.sampled_from([str, int]), min_size=1, max_size=3),
    timed=st.booleans(),
    order=st.integers(0, 1_000),
    seed=st.integers(0, 1_000),
)
@example(shapes=SHAPES, keys=[str, int], timed=True, order=1, seed=1)
@example(shapes=SHAPES, keys=[int], timed=False, order=2, seed=1)
def test_any_event(shapes: list[tuple[Any, ...]], keys: list[Any], timed: bool, order: int, seed: int) -> None:
    topic = topic_of(shapes, keys, timed=timed, order=order)
    assert in_bulk(topic, 25, seed) == one_by_one(topic, 25, seed)


def test_many_of_one_topic() -> None:
    assert in_bulk(clicks, 3_000, 1) == one_by_one(clicks, 3_000, 1)


@pytest.mark.parametrize("now", [0, 5, 2**27 - 1, 2**27, 2**27 + 1, 500_000_000, 4_102_444_800_000_000])
def test_any_time_of_the_clock(now: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "now_us", lambda: now)
    assert in_bulk(clicks, 200, 1) == one_by_one(clicks, 200, 1)


class Seen(lf.Event):
    who: str
    at: datetime
    until: datetime | None


@given(micros=st.lists(st.integers(-(2**40), _YEARS_9999) | st.integers(AT - 2**30, AT + 2**30), min_size=1))
@example(micros=[0, 1, -1, 2**27 - 1, 2**27, 2**27 + 2**26, 2**28, 2**34, 2**35, 2**41, 2**42])
def test_any_moment(micros: list[int]) -> None:
    at, until = (field_encoder(Seen, fields_of(Seen)[name]) for name in ("at", "until"))
    encode = avro_encoder(Seen, ID)
    for moment in micros:
        whole = encode({"who": "", "at": from_micros(moment), "until": from_micros(moment)})
        assert whole == struct.pack(">bI", 0, ID) + b"\0" + at(moment) + until(moment)


class Reading(lf.Event):
    meter: str
    level: float
    at: datetime


@pytest.mark.parametrize("format", ["avro", "json"])
def test_a_producer_makes_them_in_the_format_of_its_topic(format: Any) -> None:
    topic = lf.Topic("readings", Reading, key=Reading.meter, time=Reading.at, format=format)
    registry: Any = SimpleNamespace(id_of=lambda subject, schema: ID)
    producer = Producer(topic, "readings", Kafka(bootstrap="127.0.0.1:1"), registry)
    expected = [(producer.key_of(r), producer.encode(r)) for r in synthetic(topic, 100, seed=1)]
    assert list(producer.synthetic(100, seed=1)) == expected
