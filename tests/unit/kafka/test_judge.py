"""Judging one record in Python. That Spark judges alike is checked by tests/engine/test_intake.py."""

from __future__ import annotations

import json
import struct
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic import Field

import leftfold as lf
from leftfold.declare.reasons import NOT_BY_BROKER, rule_text
from leftfold.declare.schema import avro_schema
from leftfold.fold.definition import Key
from leftfold.fold.expressions import to_micros
from leftfold.kafka.decode import partly_decoded, schema_id_of
from leftfold.kafka.encode import avro_encoder, json_encoder
from leftfold.kafka.judge import Judgement, RecordJudge
from leftfold.kafka.rejects import RecordPosition

NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)


class Payment(lf.Event):
    account: str
    amount: float = Field(ge=0)
    note: str | None = Field(default=None, max_length=5)
    tags: list[str] | None = None
    at: datetime


class Older(lf.Event):
    account: str
    amount: float
    at: datetime


payments = lf.Topic("payments", Payment, key=Payment.account, time=Payment.at)
believed = lf.Topic("believed", Payment, key=Payment.account, time=Payment.at, log_time="producer")
copied = lf.Topic("copied", Payment, key=Payment.account, time=Payment.at, log_time="header")
texts = lf.Topic("texts", Payment, key=Payment.account, time=Payment.at, format="json")
SCHEMAS = {1: avro_schema(Payment), 2: avro_schema(Older), 3: json.dumps("long")}
ENCODE = avro_encoder(Payment, 1)


def payment(**changes: Any) -> dict[str, Any]:
    return {"account": "a", "amount": 1.0, "note": "abc", "tags": ["x", "y"], "at": NOON, **changes}


def judge(value: bytes | None, topic: Any = payments, *, by_broker: bool = True) -> Judgement | None:
    return RecordJudge(topic, SCHEMAS.get).record(None, value, log_us=to_micros(NOON), by_broker=by_broker)[1]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, None),
        ({"note": None}, None),
        ({"amount": -1.0}, ("rejected", "breaks the rule amount >= 0.0")),
        ({"amount": float("nan")}, ("rejected", "amount is not a finite number")),
        ({"note": "longer"}, ("rejected", "breaks the rule length of note <= 5")),
        ({"at": NOON - timedelta(minutes=10)}, None),
        ({"at": NOON - timedelta(minutes=10, microseconds=1)}, ("late", "late by 600 s")),
        ({"at": NOON + timedelta(seconds=60)}, None),
        ({"at": NOON + timedelta(seconds=61)}, ("future", "from the future by 61 s")),
    ],
)
def test_an_event(changes: dict[str, Any], expected: tuple[str, str] | None) -> None:
    assert judge(ENCODE(payment(**changes))) == (Judgement(*expected) if expected else None)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "no value"),
        (b"", "too short or not framed"),
        (b"{}", "too short or not framed"),
        (struct.pack(">bI", 0, 1), "too short or not framed"),
        (struct.pack(">bI", 0, 9) + b"x", "schema id 9 is not in the registry"),
        (struct.pack(">bI", 0, 1) + b"x", "undecodable under schema id 1"),
        (struct.pack(">bI", 0, 3) + b"\x02", "undecodable under schema id 3"),
        (struct.pack(">bI", 0, 1) + b"\x80\x80\x80\x80\x80\x80\x80\x80\x20", "undecodable under schema id 1"),
        (ENCODE(payment(account="aa")).replace(b"\x04aa", b"\x04\xff\xfe"), "account is not UTF-8"),
        # Branch -1 of the union of note, which fastavro would take for the last one.
        (ENCODE(payment()).replace(b"\x02\x06abc", b"\x01\x06abc"), "undecodable under schema id 1"),
    ],
)
def test_bytes(value: bytes | None, reason: str) -> None:
    assert judge(value) == Judgement("rejected", reason)


def test_an_older_schema_is_read_into_the_event() -> None:
    assert judge(avro_encoder(Older, 2)({"account": "a", "amount": 1.0, "at": NOON})) is None


def test_whose_stamp_it_is() -> None:
    good = ENCODE(payment())
    assert judge(good, by_broker=False) == Judgement("rejected", "stamped by its producer, not by a broker")
    assert judge(good, believed, by_broker=False) is None


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({}, "account is missing"),
        ({"account": "a", "amount": None}, "amount is missing"),
        ({"account": "a", "amount": "1", "at": NOON.isoformat()}, "undecodable JSON"),
        ({"account": "a", "amount": 1, "at": "2026-01-05T12:00:00"}, "undecodable JSON"),
        ({"account": "a", "amount": -1, "at": NOON.isoformat()}, "breaks the rule amount >= 0.0"),
        ([], "undecodable JSON"),
        (10**400, "undecodable JSON"),
        ({"account": "a", "amount": 10**400, "at": NOON.isoformat()}, "undecodable JSON"),
    ],
)
def test_json(value: Any, reason: str) -> None:
    assert judge(json.dumps(value).encode(), texts) == Judgement("rejected", reason)


def test_what_the_producer_writes_as_json_is_accepted() -> None:
    assert judge(json_encoder(Payment)(payment()), texts) is None


def test_as_much_as_can_be_read() -> None:
    value = ENCODE(payment())
    assert partly_decoded(value, SCHEMAS[1]) == {**payment(), "at": to_micros(NOON)}
    assert partly_decoded(value[: 5 + 2 + 8], SCHEMAS[1]) == {"account": "a", "amount": 1.0}
    assert partly_decoded(value, json.dumps("long")) == {}


def test_a_schema_id_only_where_there_is_one() -> None:
    assert schema_id_of(struct.pack(">bI", 0, 7) + b"x") == 7
    assert schema_id_of(b"{}") is None


def test_rules_as_people_write_them() -> None:
    late: Any = Payment.at > NOON  # a condition at run time
    assert rule_text(late) == "at > 2026-01-05T12:00:00+00:00"


@pytest.mark.parametrize(
    ("text", "expected"), [("0/17", (0, 17)), ("17", None), ("-1/2", None), ("1/2/3", None), ("a/b", None)]
)
def test_positions(text: str, expected: tuple[int, int] | None) -> None:
    position = RecordPosition.parse(text)
    assert position == expected
    assert position is None or str(position) == text


def test_a_copied_record_whose_log_time_is_not_believed() -> None:
    assert judge(ENCODE(payment()), copied) is None
    assert judge(ENCODE(payment()), copied, by_broker=False) == Judgement("rejected", NOT_BY_BROKER)


# Keys ---------------------------------------------------------------------------------------------------------------


def long_key(account: str = "a", *, key: bytes | None = None, keyed: Any = ()) -> Judgement | None:
    value = ENCODE(payment(account=account))
    return RecordJudge(payments, SCHEMAS.get, keyed).record(key, value, log_us=to_micros(NOON), by_broker=True)[1]


def test_a_key_above_the_bound() -> None:
    assert long_key("k" * 1_024) is None
    assert long_key("k" * 1_025) == Judgement("rejected", "key too long")
    assert long_key("ü" * 513) == Judgement("rejected", "key too long")
    assert long_key(key=b"k" * 1_024) is None
    assert long_key(key=b"k" * 1_025) == Judgement("rejected", "key too long")


def test_a_view_may_be_keyed_by_something_else() -> None:
    by_note = (payments.keys, (Key("account", "string"), Key("note", "string")))
    assert long_key("k" * 1_020) is None
    assert long_key("k" * 1_020, keyed=by_note) == Judgement("rejected", "key too long")  # 4:kkk…3:abc


def test_a_long_key_without_a_value_is_a_long_key() -> None:
    _, judged = RecordJudge(payments, SCHEMAS.get).record(b"k" * 5_000, None, log_us=0, by_broker=True)
    assert judged == Judgement("rejected", "key too long")
