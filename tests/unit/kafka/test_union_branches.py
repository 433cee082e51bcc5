"""A negative branch number of a union: refused by the fast check of simple records exactly as by the general one."""

from __future__ import annotations

import io
import random
from typing import Any

import pytest
from fastavro import parse_schema, schemaless_reader, schemaless_writer

from leftfold.kafka import decode

SIMPLE = ["boolean", "int", "long", "float", "double", "string", "bytes"]


VALUES: dict[str, list[Any]] = {
    "null": [None],
    "boolean": [True, False],
    "int": [0, 1, -1, 63, 64, -65, 2**31 - 1],
    "long": [0, 1, -1, 63, 64, -65, 2**62],
    "float": [0.5, -2.0],
    "double": [0.5, 1e300],
    "string": ["x" * length for length in (0, 1, 63, 64, 200)],
    "bytes": [b"y" * length for length in (0, 1, 100)],
}


def schema_of(kinds: list[Any]) -> dict[str, Any]:
    return {"type": "record", "name": "E", "fields": [{"name": f"f{i}", "type": kind} for i, kind in enumerate(kinds)]}


def value_of(kind: Any, draw: random.Random) -> Any:
    if isinstance(kind, list):
        return value_of(draw.choice(kind), draw)
    return draw.choice(VALUES[kind])


def refused(check: Any, body: bytes) -> bool:
    try:
        check(body)
    except decode.UNREADABLE:
        return True
    return False


def test_fast_and_general_check_agree() -> None:
    draw = random.Random(5)
    negative = 0
    for _ in range(300):
        kinds = [draw.choice([draw.choice(SIMPLE), ["null", draw.choice(SIMPLE)]]) for _ in range(draw.randrange(1, 8))]
        schema = schema_of(kinds)
        fast, parsed = decode._choice_check(schema) or (lambda _: None), parse_schema(schema)
        for _ in range(30):
            out = io.BytesIO()
            schemaless_writer(out, parsed, {f"f{i}": value_of(kind, draw) for i, kind in enumerate(kinds)})
            body = bytearray(out.getvalue())
            assert not refused(fast, bytes(body))
            if not body:
                continue
            body[draw.randrange(len(body))] = draw.choice([1, 3, 0, 2, draw.randrange(256)])
            try:
                schemaless_reader(io.BytesIO(bytes(body)), parsed, None)
            except decode.UNREADABLE:
                continue  # the check is for bytes that can be read

            def general(bytes_: bytes, schema: Any = schema) -> None:
                decode._check_choices(schema, io.BytesIO(bytes_), {})

            slow = refused(general, bytes(body))
            negative += slow
            assert refused(fast, bytes(body)) or not slow  # the fast one also refuses texts of a negative length
    assert negative > 50


@pytest.mark.parametrize(
    "kind", [{"type": "array", "items": "int"}, ["null", {"type": "map", "values": "int"}], schema_of(["int"])]
)
def test_other_schemas_are_walked_in_general(kind: Any) -> None:
    assert decode._flat_steps(schema_of([kind])) is None


def test_a_schema_without_unions_is_not_walked() -> None:
    assert decode._choice_check(schema_of(["int", "string"])) is None
