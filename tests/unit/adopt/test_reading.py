from __future__ import annotations

import json
from typing import Any

import pytest

from leftfold.adopt.fields import Found
from leftfold.adopt.reading import read
from leftfold.errors import LogError
from tests.unit.adopt.topics import avro_record, avro_value, looked, objects, record

ORDER = avro_record(("id", "string"))
SCHEMA = {"type": "object", "title": "Order", "properties": {"id": {"type": "string"}}, "required": ["id"]}


def framed(schema_id: int, schema: Any = ORDER) -> bytes:
    return avro_value(schema, schema_id, {"id": "a"})


def test_records_by_the_schema_they_name() -> None:
    found = read(looked(ORDER, records=[record(framed(1), key=b"a"), record(None, key=b"b"), record(b"junk")]))
    assert (found.source, found.shape.fields) == ("avro", (Found("id", "string"),))
    assert [(row.key, row.fields) for row in found.rows] == [(b"a", {"id": "a"})]
    assert "3 records sampled, 1 without a value" in found.remarks[0]
    assert found.remarks[1] == "1 of 2 sampled records do not decode: views reject these"


def test_a_subject_that_no_record_names_is_not_used() -> None:
    other = avro_record(("id", "string"), ("n", "long"), name="Other")
    value = avro_value(other, 9, {"id": "a", "n": 1})
    found = read(looked(ORDER, others={9: other}, records=[record(value)]))
    assert [f.name for f in found.shape.found] == ["id", "n"]
    assert "by the schemas that its records name" in found.remarks[0]


def test_plain_json_is_read_with_its_json_schema() -> None:
    found = read(looked(SCHEMA, records=objects({"id": "a"})))
    assert (found.source, found.shape.name, found.shape.fields) == ("json-schema", "Order", (Found("id", "string"),))


def test_plain_json_under_an_avro_schema() -> None:
    found = read(looked(ORDER, records=[*objects({"n": 1}), record(b"junk")]))
    assert (found.source, found.shape.fields) == ("sample", (Found("n", "int"),))
    assert "1 of 2 sampled records are no objects of JSON" in found.remarks
    assert any("has a schema that the records do not carry" in remark for remark in found.remarks)


def test_no_record() -> None:
    assert read(looked(ORDER)).source == "avro"
    found = read(looked(SCHEMA, records=[record(None, key=b"a")]))
    assert (found.source, found.rows) == ("json-schema", ())
    assert any("would be rejected" in remark for remark in found.remarks)


@pytest.mark.parametrize(
    ("versions", "options", "why"),
    [
        ((), {}, "neither a registered schema nor a record"),
        ((), {"records": [record(b"junk")]}, "neither framed for a schema registry nor objects of JSON"),
        ((), {"records": [record(framed(9))]}, "name schemas that the registry does not know"),
        ((SCHEMA,), {"records": [record(b"\x00\x00\x00\x00\x01{}")]}, "JSON behind the five bytes"),
        ((ORDER, ["null"]), {}, "of type union"),
        ((avro_record(("id", "com.shop.Id")), ORDER), {}, "refers to com.shop.Id"),
    ],
)
def test_what_cannot_be_declared(versions: Any, options: Any, why: str) -> None:
    with pytest.raises(LogError, match="topic orders cannot be declared") as refused:
        read(looked(*versions, **options))
    assert refused.value.code == "cannot-adopt"
    assert why in refused.value.why


def test_protobuf_is_told() -> None:
    from dataclasses import replace

    proto = replace(looked(), versions={1: 'syntax = "proto3";'})
    with pytest.raises(LogError) as refused:
        read(proto)
    assert "cannot be parsed as Avro" in refused.value.why
    assert json.dumps(refused.value.as_json())
