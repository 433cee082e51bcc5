from __future__ import annotations

import pytest

from leftfold.adopt.fields import FieldShape, Found, LeftOut, merged, nameable


@pytest.mark.parametrize("name", ["class", "None", "_x", "__deleted", "2nd", "a-b", "é", "", "json", "copy", "micros"])
def test_a_name_that_no_event_can_have(name: str) -> None:
    field = nameable(Found(name, "int"))
    assert isinstance(field, LeftOut)
    assert "ask its writer to rename it" in field.why


@pytest.mark.parametrize("name", ["id", "match", "type", "datetime", "bytes", "lf"])
def test_a_name_that_it_can(name: str) -> None:
    assert nameable(Found(name, "int", optional=True)) == Found(name, "int", optional=True)


def test_a_type_is_not_hidden_by_a_value() -> None:
    assert isinstance(nameable(Found("bytes", "int", default=0)), LeftOut)
    assert nameable(Found("bytes", "int", rules=(("ge", 0),))) == Found("bytes", "int")


def shape(*fields: Found | LeftOut) -> FieldShape:
    return FieldShape("Order", fields)


def test_what_an_older_version_lacks_is_optional() -> None:
    newest = shape(Found("id", "string"), Found("n", "int", default=1), Found("note", "string", optional=True))
    (id_, n, note) = merged(newest, [shape()]).fields
    assert isinstance(id_, Found)
    assert (id_.optional, id_.notes) == (True, ("older versions of the schema lack it",))
    assert (n, note) == newest.fields[1:]


def test_what_an_older_version_lets_be_null_is_optional() -> None:
    (id_,) = merged(shape(Found("id", "string")), [shape(Found("id", "string", optional=True))]).fields
    assert isinstance(id_, Found)
    assert id_.optional


@pytest.mark.parametrize(
    ("before", "reads"),
    [
        (Found("x", "int"), True),
        (Found("x", "float"), True),
        (Found("x", "string"), False),
        (Found("x", "datetime"), False),
        (Found("x", "float", repeated=True), False),
        (LeftOut("x", "enum X", "why"), False),
    ],
)
def test_an_older_type(before: Found | LeftOut, reads: bool) -> None:
    (field,) = merged(shape(Found("x", "float")), [shape(before)]).fields
    assert isinstance(field, Found) == reads


def test_a_whole_number_does_not_read_a_float() -> None:
    (field,) = merged(shape(Found("x", "int")), [shape(Found("x", "float"))]).fields
    assert isinstance(field, LeftOut)
    assert "an older version of the schema has float" in field.why


def test_what_only_older_versions_have_is_named() -> None:
    (gone,) = merged(shape(), [shape(Found("x", "int")), shape(LeftOut("x", "enum X", "why"))]).fields
    assert isinstance(gone, LeftOut)
    assert gone.why == "only older versions of the schema have it"
