from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from leftfold.adopt.choices import Chosen, Undecided, key_choice, time_choice
from leftfold.adopt.fields import FieldShape, Found
from leftfold.adopt.reading import SampledRow

SHAPE = FieldShape("Order", (Found("id", "int"), Found("user", "string", optional=True), Found("price", "float")))


def key(*rows: tuple[bytes | None, dict[str, Any]], compacted: bool = False, shape: FieldShape = SHAPE) -> Any:
    return key_choice("orders", "Order", shape, [SampledRow(k, fields, 0) for k, fields in rows], compacted=compacted)


def orders(*ids: int, keys: Sequence[bytes | None] | None = None) -> list[tuple[bytes | None, dict[str, Any]]]:
    given = keys or [str(i).encode() for i in ids]
    return [(k, {"id": i, "user": f"u{i}", "price": 1.0}) for i, k in zip(ids, given, strict=True)]


def test_the_field_that_equals_the_key() -> None:
    assert key(*orders(1, 2, 2)) == Chosen("id", "equals the record's key in all 3 sampled records, 2 keys")
    assert key(*orders(1, 2, keys=[b"u1", b"u2"])).field == "user"


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ([], "no record"),
        (orders(1, 2, keys=[None, None]), "have no key"),
        (orders(1, 2, keys=[b"1", None]), "1 of 2 have no key"),
        (orders(1, 2, keys=[b"1", b"x"]), "no field equals it"),
        (orders(1, 1), "one and the same key"),
        (orders(1, 2, keys=[b"\x00\x00\x00\x00\x01\x02", b"2"]), "framed for a schema registry"),
        (orders(1, 2, keys=[b'{"id":1}', b'{"id":2}']), "objects of JSON"),
        ([(b"1", {"id": 1, "user": "1"}), (b"2", {"id": 2, "user": "2"})], "id and user all equal it"),
        ([(b"None", {"id": 1, "user": None}), (b"u2", {"id": 2, "user": "u2"})], "no field equals it"),
        ([(b"\xff", {"id": 1, "user": "\ud800"})], "no field equals it"),
    ],
)
def test_where_a_person_decides(rows: Any, why: str) -> None:
    choice = key(*rows)
    assert isinstance(choice, Undecided)
    assert why in choice.why
    assert choice.fix.startswith("write key=Order.id or key=Order.user here; user may be null above")


def test_a_table_is_told_of_deletions() -> None:
    choice = key(*orders(1, 2, keys=[b'{"id":1}', b'{"id":2}']), compacted=True)
    assert "never see a row deleted" in choice.why


def test_no_field_can_be_a_key() -> None:
    choice = key(shape=FieldShape("Order", (Found("price", "float"), Found("tags", "string", repeated=True))))
    assert choice.fix.startswith("ask its writer to add a str or int field")


def time(*fields: Found) -> Any:
    return time_choice("orders", "Order", FieldShape("Order", fields))


def test_the_one_moment_that_is_never_missing() -> None:
    at = Found("at", "datetime")
    assert time(at, Found("sent", "datetime", optional=True), Found("all", "datetime", repeated=True)).field == "at"
    two = time(at, Found("sent", "datetime"))
    assert (two.why, two.fix) == (
        "at and sent are datetimes that are never missing",
        "write time=Order.at or time=Order.sent here",
    )


def test_moments_that_may_be_missing() -> None:
    assert "write time=Order.at here and at: datetime above" in time(Found("at", "datetime", optional=True)).fix


def test_no_moment() -> None:
    counted = Found("ms", "int", epoch=True)
    assert "ms count from 1970" in time(counted).why
    assert time(Found("id", "int")).why == "no field is a datetime"
