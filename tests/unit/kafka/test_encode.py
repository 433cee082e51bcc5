from __future__ import annotations

import io
import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import fastavro
import pytest

from leftfold.declare.schema import avro_schema
from leftfold.kafka.encode import MISFITS, avro_encoder, json_encoder
from tests.unit.declare.declared import NOON, Click

GOOD: dict[str, Any] = {"user_id": "ü1", "item_id": "i", "price": 1, "at": NOON}


def encoded(**fields: Any) -> Any:
    return json.loads(json_encoder(Click)({**GOOD, **fields}))


def test_json_has_every_field_in_declared_order() -> None:
    text = json_encoder(Click)({**GOOD, "raw": b"\x00\xff", "seen": [NOON]}).decode()
    assert text == (
        '{"user_id":"ü1","item_id":"i","price":1.0,"pieces":1,"coupon":null,"tags":[],'
        '"seen":["2026-01-05T12:00:00+00:00"],"raw":"AP8=","gift":false,"at":"2026-01-05T12:00:00+00:00"}'
    )


def test_json_is_what_the_event_itself_reads() -> None:
    record = {**GOOD, "price": 0.1, "coupon": "\u2028\"'\\", "tags": ["a"], "seen": [NOON], "gift": True}
    assert Click.model_validate_json(json_encoder(Click)(record)) == Click(**record)


@pytest.mark.parametrize("zone", [timezone(timedelta(hours=2)), timezone(timedelta(minutes=53, seconds=28))])
def test_a_moment_is_written_in_utc(zone: timezone) -> None:
    moment = NOON.replace(microsecond=7)
    assert encoded(at=moment.astimezone(zone))["at"] == "2026-01-05T12:00:00.000007+00:00"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"user_id": 5}, "user_id: string expected, got int"),
        ({"user_id": None}, "user_id: string expected, got NoneType"),
        ({"user_id": "\ud800"}, "surrogates"),
        ({"price": "1"}, "price: float expected, got str"),
        ({"price": True}, "price: float expected, got bool"),
        ({"price": float("nan")}, "price: not finite"),
        ({"price": float("-inf")}, "price: not finite"),
        ({"price": 10**400}, "price: int too large"),
        ({"pieces": 1.0}, "pieces: int expected, got float"),
        ({"pieces": True}, "pieces: int expected, got bool"),
        ({"pieces": None}, "pieces: int expected, got NoneType"),
        ({"pieces": 2**63}, "pieces: more than 64 bits"),
        ({"gift": 1}, "gift: bool expected, got int"),
        ({"raw": "x"}, "raw: bytes expected, got str"),
        ({"tags": "ab"}, "tags: list expected, got str"),
        ({"tags": ["a", None]}, "tags: string expected, got NoneType"),
        ({"seen": [datetime(2026, 1, 1)]}, "seen: no time zone"),
        ({"at": datetime(2026, 1, 1)}, "at: no time zone"),
        ({"at": "2026-01-05T12:00:00Z"}, "at: datetime expected, got str"),
        ({"at": datetime.min.replace(tzinfo=timezone(timedelta(hours=1)))}, "at: "),
        ({"colour": "red", "shape": 1}, "there is no field colour, shape"),
    ],
)
def test_what_does_not_fit(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(MISFITS, match=message):
        encoded(**fields)


@pytest.mark.parametrize("name", GOOD)
def test_a_required_field_is_missing(name: str) -> None:
    with pytest.raises(MISFITS, match=f"{name} is missing"):
        json_encoder(Click)({k: v for k, v in GOOD.items() if k != name})


def test_the_largest_values_fit() -> None:
    assert encoded(pieces=-(2**63))["pieces"] == -(2**63)
    assert encoded(price=1.7976931348623157e308)["price"] == 1.7976931348623157e308


def test_avro_is_framed() -> None:
    value = avro_encoder(Click, 7)({**GOOD, "at": NOON.astimezone(timezone(timedelta(hours=2)))})
    assert value[:5] == b"\x00\x00\x00\x00\x07"
    read: Any = fastavro.schemaless_reader(io.BytesIO(value[5:]), json.loads(avro_schema(Click)), None)
    assert Click(**read) == Click(**GOOD)
    assert read["at"] == NOON.astimezone(UTC)


@pytest.mark.parametrize(("name", "value"), [("at", datetime(2026, 1, 1)), ("seen", [NOON, datetime(2026, 1, 1)])])
def test_avro_refuses_a_naive_time(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"{name} has no time zone"):
        avro_encoder(Click, 7)({**GOOD, name: value})
