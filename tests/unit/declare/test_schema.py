from __future__ import annotations

import io
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest
from fastavro import parse_schema, schemaless_reader, schemaless_writer
from hypothesis import given
from hypothesis import strategies as st

import leftfold as lf
from leftfold.declare.framing import HEADER_BYTES, frame
from leftfold.declare.schema import avro_schema
from tests.unit.declare.declared import NOON, Click

# The committed schema of Click: registries of released versions hold exactly these bytes.
CLICK = (
    '{"type":"record","name":"Click","fields":['
    '{"name":"user_id","type":"string"},'
    '{"name":"item_id","type":"string"},'
    '{"name":"price","type":"double"},'
    '{"name":"pieces","type":"long","default":1},'
    '{"name":"coupon","type":["null","string"],"default":null},'
    '{"name":"tags","type":{"type":"array","items":"string"},"default":[]},'
    '{"name":"seen","type":["null",{"type":"array","items":{"type":"long","logicalType":"timestamp-micros"}}],"default":null},'
    '{"name":"raw","type":"bytes","default":""},'
    '{"name":"gift","type":"boolean","default":false},'
    '{"name":"at","type":{"type":"long","logicalType":"timestamp-micros"}}]}'
)


def encoded(schema: str, record: Mapping[str, Any]) -> bytes:
    buffer = io.BytesIO()
    schemaless_writer(buffer, parse_schema(json.loads(schema)), record)
    return buffer.getvalue()


def decoded(data: bytes, writer: str, reader: str | None = None) -> Any:
    other = None if reader is None else parse_schema(json.loads(reader))
    return schemaless_reader(io.BytesIO(data), parse_schema(json.loads(writer)), other)


def test_the_schema_of_click() -> None:
    assert avro_schema(Click) == CLICK


def test_docstrings_make_no_new_version() -> None:
    class Other(lf.Event):
        """Another text."""

        user_id: str

    class Again(lf.Event):
        user_id: str

    Again.__name__ = "Other"
    assert avro_schema(Other) == avro_schema(Again)


def test_a_mark_of_personal_data_makes_no_new_version() -> None:
    class Plain(lf.Event):
        user_id: str
        email: str | None = None

    class Marked(lf.Event):
        user_id: lf.Personal[str]
        email: lf.Personal[str | None] = None

    assert _schema(Marked) == _schema(Plain)


def test_a_reader_may_ask_for_less() -> None:
    pruned = avro_schema(Click, only={"user_id", "at", "nonsense"})
    assert [f["name"] for f in json.loads(pruned)["fields"]] == ["user_id", "at"]
    full = encoded(CLICK, Click(user_id="u", item_id="i", price=1.0, at=NOON).__dict__)
    assert decoded(full, CLICK, pruned) == {"user_id": "u", "at": NOON}


class Kinds(lf.Event):
    text: str
    whole: int
    real: float
    yes: bool
    raw: bytes
    at: datetime
    texts: list[str]
    wholes: list[int]
    times: list[datetime]
    maybe: str | None
    maybe_at: datetime | None
    maybe_list: list[float] | None


_WHOLE = st.integers(-(2**63), 2**63 - 1)
_REAL = st.floats(allow_nan=False, allow_infinity=False)
_TEXT = st.text(alphabet=st.characters(exclude_categories=["Cs"]))
_AT = st.datetimes(min_value=datetime(1900, 1, 1), max_value=datetime(2200, 1, 1), timezones=st.just(UTC))


@given(
    st.fixed_dictionaries(
        {
            "text": _TEXT,
            "whole": _WHOLE,
            "real": _REAL,
            "yes": st.booleans(),
            "raw": st.binary(),
            "at": _AT,
            "texts": st.lists(_TEXT, max_size=3),
            "wholes": st.lists(_WHOLE, max_size=3),
            "times": st.lists(_AT, max_size=3),
            "maybe": st.none() | _TEXT,
            "maybe_at": st.none() | _AT,
            "maybe_list": st.none() | st.lists(_REAL, max_size=3),
        }
    )
)
def test_every_kind_comes_back(values: dict[str, Any]) -> None:
    event = Kinds(**values)
    schema = avro_schema(Kinds)
    assert Kinds(**decoded(encoded(schema, event.__dict__), schema)) == event


class V1(lf.Event):
    user_id: str
    price: float
    gone: str | None = None
    at: datetime


class V2(lf.Event):
    price: float
    user_id: str
    at: datetime
    pieces: int = 1
    share: float | None = 0.5
    note: str | None = None
    tags: list[str] = []  # noqa: RUF012 # pydantic copies it


def _schema(event: type[lf.Event]) -> str:
    """Versions of one event share its name."""
    document = json.loads(avro_schema(event))
    return json.dumps({**document, "name": "Click"})


def test_an_old_record_read_by_a_new_reader() -> None:
    old = V1(user_id="u", price=2.5, gone="x", at=NOON)
    read = decoded(encoded(_schema(V1), old.__dict__), _schema(V1), _schema(V2))
    assert V2(**read) == V2(user_id="u", price=2.5, at=NOON)
    assert (read["share"], read["note"]) == (0.5, None)


def test_a_new_record_read_by_an_old_reader() -> None:
    new = V2(user_id="u", price=2.5, at=NOON, pieces=3, note="n")
    read = decoded(encoded(_schema(V2), new.__dict__), _schema(V2), _schema(V1))
    assert V1(**read) == V1(user_id="u", price=2.5, at=NOON)


def test_an_optional_field_without_a_default_reads_old_records_too() -> None:
    class Later(lf.Event):
        user_id: str
        note: str | None

    class Earlier(lf.Event):
        user_id: str

    data = encoded(_schema(Earlier), {"user_id": "u"})
    assert decoded(data, _schema(Earlier), _schema(Later)) == {"user_id": "u", "note": None}


def test_a_default_that_is_not_null_comes_first_in_its_union() -> None:
    share = next(f for f in json.loads(avro_schema(V2))["fields"] if f["name"] == "share")
    assert share == {"name": "share", "type": ["double", "null"], "default": 0.5}


def test_a_default_of_bytes_is_text_of_the_same_code_points() -> None:
    """As Avro's specification says, and Java reads it; fastavro, which only writes here, would leave it text."""

    class Raw(lf.Event):
        raw: bytes = b"\x00\xff"

    (field,) = json.loads(avro_schema(Raw))["fields"]
    assert field["default"] == "\x00\xff"


def test_a_times_default_is_micros() -> None:
    class Since(lf.Event):
        since: datetime = datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)

    (field,) = json.loads(avro_schema(Since))["fields"]
    assert field["default"] == 1_000_000


def test_a_list_of_times_can_have_a_default() -> None:
    class Seen(lf.Event):
        seen: list[datetime] = [NOON]  # noqa: RUF012 # pydantic copies it

    (field,) = json.loads(avro_schema(Seen))["fields"]
    assert field["default"] == [1_767_614_400_000_000]


@pytest.mark.parametrize(("schema_id", "header"), [(1, b"\0\0\0\0\1"), (2**31 - 1, b"\0\x7f\xff\xff\xff")])
def test_framing(schema_id: int, header: bytes) -> None:
    assert frame(schema_id) == header
    assert len(header) == HEADER_BYTES
