"""What was encoded is read back as the algebra sees it; whatever else is no record, and raises nothing."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leftfold.declare.event import fields_of
from leftfold.declare.schema import avro_schema
from leftfold.fold.expressions import to_micros
from leftfold.kafka.decode import avro_decoder, json_decoder
from leftfold.kafka.encode import avro_encoder, json_encoder
from tests.unit.declare.declared import NOON, Click

ALL = frozenset(fields_of(Click))
RECORD: dict[str, Any] = {
    "user_id": "ü1",
    "item_id": "i",
    "price": 1.5,
    "pieces": 3,
    "coupon": None,
    "tags": ["a", "b"],
    "seen": [NOON],
    "raw": b"\x00\xff",
    "gift": True,
    "at": NOON,
}
PLAIN = {**RECORD, "at": to_micros(NOON), "seen": [to_micros(NOON)]}
DECODERS = {
    "avro": avro_decoder(Click, ALL, {7: avro_schema(Click)}.get),
    "json": json_decoder(Click, ALL),
}
ENCODERS = {"avro": avro_encoder(Click, 7), "json": json_encoder(Click)}


@pytest.mark.parametrize("form", ["avro", "json"])
def test_what_was_encoded_is_read_back(form: str) -> None:
    assert DECODERS[form](ENCODERS[form](RECORD)) == PLAIN


@pytest.mark.parametrize("form", ["avro", "json"])
def test_absent_fields_have_their_defaults(form: str) -> None:
    short = {"user_id": "u", "item_id": "i", "price": 1.0, "at": NOON}
    defaults: dict[str, Any] = {"pieces": 1, "coupon": None, "tags": [], "seen": None, "raw": b"", "gift": False}
    encoded = json.dumps({**short, "at": NOON.isoformat()}).encode() if form == "json" else ENCODERS[form](short)
    assert DECODERS[form](encoded) == {**short, **defaults, "at": to_micros(NOON)}


def test_only_what_is_wanted_is_read() -> None:
    wanted = frozenset({"user_id", "at"})
    expected = {"user_id": "ü1", "at": to_micros(NOON)}
    assert json_decoder(Click, wanted)(ENCODERS["json"](RECORD)) == expected
    assert avro_decoder(Click, wanted, {7: avro_schema(Click)}.get)(ENCODERS["avro"](RECORD)) == expected


def test_a_moment_beyond_pythons_years_is_still_a_number() -> None:
    """Spark reads it too, and finds it to be from the future."""
    schema = avro_schema(Click, only={"at"})
    far = b"\x00\x00\x00\x00\x07" + b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"
    assert avro_decoder(Click, {"at"}, {7: schema}.get)(far) == {"at": 2**63 - 1}


@given(st.binary(max_size=60))
def test_bytes_that_are_no_record(value: bytes) -> None:
    for decode in DECODERS.values():
        assert decode(value) is None or isinstance(decode(value), dict)
    assert DECODERS["avro"](struct.pack(">bI", 0, 7) + value[:8]) is None


@pytest.mark.parametrize(
    "value",
    [
        *(None, b"", b"\x00", b"\x00\x00\x00\x00\x07", b"\x01\x00\x00\x00\x07abcdefgh"),
        b"\x00\x00\x00\x00\x08" + ENCODERS["avro"](RECORD)[5:],  # an id that was never given out
    ],
)
def test_no_avro(value: bytes | None) -> None:
    assert DECODERS["avro"](value) is None


@pytest.mark.parametrize(
    "change",
    [
        {"price": "dear"},
        {"price": True},
        {"pieces": 1.0},
        {"pieces": 2**63},
        {"gift": 1},
        {"at": "2026-01-05T12:00:00"},
        {"at": "2026-02-30T12:00:00Z"},
        {"at": 12},
        {"tags": "a"},
        {"tags": [None]},
        {"raw": "?"},
        {"raw": 1},
        {"user_id": None},
    ],
)
def test_no_json(change: dict[str, Any]) -> None:
    good = json.loads(ENCODERS["json"](RECORD))
    assert DECODERS["json"](json.dumps(good).encode()) == PLAIN
    assert DECODERS["json"](json.dumps({**good, **change}).encode()) is None


@pytest.mark.parametrize("value", [None, b"", b"[]", b"{} {}", b'{"user_id": NaN}', b"\xff", b"1"])
def test_no_object(value: bytes | None) -> None:
    assert DECODERS["json"](value) is None
