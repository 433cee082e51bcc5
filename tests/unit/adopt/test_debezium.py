from __future__ import annotations

import json
from typing import Any

import pytest

from leftfold.adopt import debezium
from leftfold.adopt.fields import Found
from tests.unit.adopt.topics import adopted, avro_record, avro_value, loaded, objects, record

ROW = avro_record(("id", "int"), ("email", ["null", "string"]), name="Value")
ENVELOPE = avro_record(
    ("before", ["null", ROW]),
    ("after", ["null", "Value"]),
    ("source", avro_record(("table", "string"), name="Source")),
    ("op", "string"),
    ("ts_ms", ["null", "long"]),
    name="Envelope",
    namespace="db.customers",
)
KEY = avro_record(("id", "int"), name="Key")


def change(op: str = "c", after: Any = None) -> dict[str, Any]:
    return {"before": None, "after": after, "source": {"table": "customers"}, "op": op, "ts_ms": 1}


def test_the_row_of_an_envelope() -> None:
    row = debezium.row_in_schema(json.dumps(ENVELOPE))
    assert row is not None
    assert (row.name, row.fields) == ("Value", (Found("id", "int"), Found("email", "string", optional=True)))


def test_what_is_no_envelope_of_rows() -> None:
    others = [f for f in ENVELOPE["fields"] if f["name"] not in ("before", "after")]
    documents = avro_record(("before", ["null", "string"]), ("after", ["null", "string"]), *others)
    assert debezium.row_in_schema(json.dumps(documents)) is None  # MongoDB's rows are text
    assert debezium.row_in_schema(json.dumps(ROW)) is None


def test_an_envelope_of_avro() -> None:
    values = [avro_value(ENVELOPE, 1, change(after={"id": n, "email": None})) for n in range(3)]
    made = adopted(ENVELOPE, records=[record(v) for v in [*values, None]], key_schema=KEY)
    assert (made.debezium, made.format, made.event) == (True, "avro", "Value")
    assert [f.name for f in made.fields] == ["id", "email"]
    refused = loaded(made.text)["refused"]
    assert (refused.code, str(refused.source).partition(":")[0]) == ("undecided", "adopted.py")
    assert "transforms.key.field=id" in made.text
    assert "ExtractNewRecordState" in made.text
    assert "by=Value.id" in made.text
    assert "value.converter" not in made.text


@pytest.mark.parametrize("payload", [False, True])
def test_an_envelope_of_json(payload: bool) -> None:
    changes = [change(after={"id": n, "email": "e"}) for n in range(3)] + [change("d")]
    wrapped = [{"schema": {"type": "struct"}, "payload": c} if payload else c for c in changes]
    made = adopted(records=objects(*wrapped, keys=[b'{"id":1}'] * 4))
    assert (made.debezium, made.format) == (True, "json")
    assert made.fields == (Found("id", "int"), Found("email", "string"))
    assert loaded(made.text)["refused"].code == "undecided"
    assert "value.converter.schemas.enable=false" in made.text
    assert "transforms.key.field=id" in made.text


def test_connects_payload_alone() -> None:
    made = adopted(records=objects(*({"schema": None, "payload": {"id": n}} for n in range(3))))
    assert (made.debezium, made.fields) == (False, (Found("id", "int"),))
    assert "value.converter.schemas.enable=false" in loaded(made.text)["refused"].fix


def test_the_row_is_declared_for_a_table() -> None:
    """As the topic of rows has to be, whatever the topic of envelopes is."""
    made = adopted(ENVELOPE, cleanup_policy="delete", message_timestamp_type="CreateTime")
    assert "compacted=True,  # as the topic of rows has to be; orders has cleanup.policy=delete" in made.text
    assert "retention=" not in made.text
    assert "late" not in made.text.partition("lf.Topic(")[2]


def test_the_columns_of_the_key() -> None:
    assert debezium.key_columns(json.dumps(KEY), []) == ("id",)
    assert debezium.key_columns(None, [None, b'{"a":1,"b":2}']) == ("a", "b")
    assert debezium.key_columns(None, [b'{"schema":{},"payload":{"a":1}}']) == ("a",)
    assert debezium.key_columns('"int"', [b"{}"]) == ()
    assert debezium.key_columns(None, [b"7", b"\xff", b"{"]) == ()


def test_a_key_of_two_columns_cannot_delete() -> None:
    text = "\n".join(debezium.advice("t", ("a", "b"), json_values=False))
    assert "never see one deleted" in text
    assert "transforms.key.field=COLUMN" in text
