from __future__ import annotations

import copy
import itertools
import math
import pickle
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, Optional

import pytest
from pydantic import Field, ValidationError, field_validator, model_validator

import leftfold as lf
from leftfold.declare.event import fields_of, reference
from leftfold.errors import DeclarationError, SourceLine, caller
from leftfold.fold.expressions import FieldRef, evaluate, to_json
from tests.unit.declare.declared import NOON, Click, Purchase

HERE = SourceLine(__file__, 0)


def refused(declare: Callable[[], object]) -> DeclarationError:
    with pytest.raises(DeclarationError) as caught:
        declare()
    return caught.value


# Kinds --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("annotation", "kind", "optional", "repeated"),
    [
        (str, "string", False, False),
        (int, "int", False, False),
        (float, "float", False, False),
        (bool, "bool", False, False),
        (datetime, "datetime", False, False),
        (bytes, "bytes", False, False),
        (str | None, "string", True, False),
        (Optional[int], "int", True, False),  # noqa: UP045 # people write it
        (list[float], "float", False, True),
        (list[datetime] | None, "datetime", True, True),
    ],
)
def test_kinds(annotation: Any, kind: str, optional: bool, repeated: bool) -> None:
    made = type("Made", (lf.Event,), {"__annotations__": {"field": annotation}, "__module__": __name__})
    field = fields_of(made)["field"]
    assert (field.kind, field.optional, field.repeated, field.required) == (kind, optional, repeated, True)


class Colour(Enum):
    RED = "red"


@pytest.mark.parametrize(
    "annotation",
    [
        dict,
        dict[str, str],
        list,
        list[list[str]],
        list[str | None],
        tuple[int, int],
        int | str,
        int | str | None,
        Literal["a"],
        Colour,
        timedelta,
        Any,
        Click,
    ],
)
def test_types_that_do_not_mean_the_same_everywhere(annotation: Any) -> None:
    error = refused(
        lambda: type("Made", (lf.Event,), {"__annotations__": {"field": annotation}, "__module__": __name__})
    )
    assert error.code == "field-type"
    assert "Made.field" in error.what


def test_an_error_of_an_event_names_the_line_that_declares_it() -> None:
    def declare() -> None:
        class Wrong(lf.Event):
            field: dict[str, str]

    error = refused(declare)
    assert error.source is not None
    assert error.source.file == __file__


def test_an_event_knows_its_line() -> None:
    assert Path(Click.__leftfold_source__.file).name == "declared.py"


def test_a_neighbouring_package_is_not_this_one(tmp_path: Path) -> None:
    """`leftfold_plugins` starts with our directory's name, and is somebody else's code."""
    file = str(Path(lf.__file__).parent) + "_plugins/streams.py"
    namespace: dict[str, Any] = {"caller": caller}
    exec(compile("def where():\n    return caller()", file, "exec"), namespace)
    assert namespace["where"]().file == file


# Defaults -----------------------------------------------------------------------------------------------------------


def test_defaults() -> None:
    fields = fields_of(Click)
    assert {n: f.default for n, f in fields.items() if not f.required} == {
        "pieces": 1,
        "coupon": None,
        "tags": [],
        "seen": None,
        "raw": b"",
        "gift": False,
    }
    made = Click(user_id="u", item_id="i", price=1.0, at=NOON)
    assert (made.pieces, made.coupon, made.tags) == (1, None, [])


def test_a_computed_default_is_refused() -> None:
    def declare() -> None:
        class Wrong(lf.Event):
            tags: list[str] = Field(default_factory=list)

    assert refused(declare).code == "default-factory"


@pytest.mark.parametrize(
    ("annotation", "default"),
    [(int, "x"), (int, 1.5), (float, math.nan), (str, None), (datetime, datetime(2026, 1, 1)), (list[int], ["a"])],
)
def test_a_default_is_of_the_fields_type(annotation: Any, default: Any) -> None:
    """pydantic does not look at defaults; the schema would carry this one to every reader."""
    namespace = {"__annotations__": {"field": annotation}, "field": default, "__module__": __name__}
    refused(lambda: type("Made", (lf.Event,), namespace))


# Rules --------------------------------------------------------------------------------------------------------------


@cache
def ruled() -> type[lf.Event]:
    """Declared when first asked for, so that a failure is one test's, not the whole file's."""

    class Ruled(lf.Event):
        n: int = Field(gt=0, le=10)
        share: float = Field(ge=0, lt=1)
        name: str = Field(min_length=1, max_length=3)
        rest: Annotated[str | None, Field(max_length=2)] = None

    return Ruled


def test_rules_are_conditions() -> None:
    rules = [to_json(rule) for field in fields_of(ruled()).values() for rule in field.rules]
    assert rules == [
        [">", ["field", "n", "int"], ["value", 0]],
        ["<=", ["field", "n", "int"], ["value", 10]],
        [">=", ["field", "share", "float"], ["value", 0.0]],
        ["<", ["field", "share", "float"], ["value", 1.0]],
        ["length", ">=", ["field", "name", "string"], 1],
        ["length", "<=", ["field", "name", "string"], 3],
        ["length", "<=", ["field", "rest", "string"], 2],
    ]


def test_rules_mean_what_pydantic_means() -> None:
    tried = itertools.product([0, 1, 10, 11], [-0.1, 0.0, 0.5, 1.0], ["", "é", "abc", "abcd"], [None, "ab", "abc"])
    for values in (dict(zip(fields_of(ruled()), chosen, strict=True)) for chosen in tried):
        kept = all(evaluate(r, values) is not False for f in fields_of(ruled()).values() for r in f.rules)
        try:
            ruled()(**values)
        except ValidationError:
            assert not kept, values
        else:
            assert kept, values


def _pattern() -> None:
    class Wrong(lf.Event):
        name: str = Field(pattern="^a")


def _multiple() -> None:
    class Wrong(lf.Event):
        n: int = Field(multiple_of=2)


def _of_a_list() -> None:
    class Wrong(lf.Event):
        tags: list[str] = Field(min_length=1)


def _of_bytes() -> None:
    class Wrong(lf.Event):
        raw: bytes = Field(max_length=1)


def _field_validator() -> None:
    class Wrong(lf.Event):
        n: int

        @field_validator("n")
        @classmethod
        def check(cls, value: int) -> int:
            return value


def _model_validator() -> None:
    class Wrong(lf.Event):
        n: int

        @model_validator(mode="after")
        def check(self) -> Wrong:
            return self


@pytest.mark.parametrize("declare", [_pattern, _multiple, _of_a_list, _of_bytes, _field_validator, _model_validator])
def test_rules_that_spark_could_not_check(declare: Callable[[], None]) -> None:
    assert refused(declare).code == "rule-not-portable"


# Personal data ------------------------------------------------------------------------------------------------------


def test_marks_of_personal_data() -> None:
    class Customer(lf.Event):
        customer_id: str
        email: lf.Personal[str]
        name: lf.Personal[str | None] = None
        phone: lf.Personal[str] | None = None
        addresses: list[lf.Personal[str]] = []  # noqa: RUF012 # pydantic copies it
        born: lf.Personal[int] = Field(ge=1900)
        city: Annotated[lf.Personal[str], Field(max_length=40)] = "?"

    class Member(Customer):
        since: int = 0

    for event in (Customer, Member):
        fields = fields_of(event)
        assert [n for n, f in fields.items() if not f.personal] == ["customer_id", *(["since"] * (event is Member))]
        assert (fields["name"].optional, fields["phone"].optional, fields["addresses"].repeated) == (True, True, True)
        assert [len(f.rules) for f in fields.values()][:7] == [0, 0, 0, 0, 0, 1, 1]
    made = Customer(customer_id="c", email="a@b", born=1990)
    assert (made.email, made.name, made.addresses, made.city) == ("a@b", None, [], "?")
    with pytest.raises(ValidationError, match="1900"):
        Customer(customer_id="c", email="a@b", born=1899)


def test_a_mark_hides_no_wrong_type() -> None:
    annotations = {"field": lf.Personal[dict[str, str]]}
    error = refused(lambda: type("Made", (lf.Event,), {"__annotations__": annotations, "__module__": __name__}))
    assert error.code == "field-type"


# Names --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["größe", "Ω"])
def test_names_that_avro_does_not_allow_are_refused(name: str) -> None:
    """Avro names are ASCII: else `apply` fails at the registry, long after the declaration."""
    refused(lambda: type("Made", (lf.Event,), {"__annotations__": {name: int}, "__module__": __name__}))


@pytest.mark.parametrize("name", ["micros", "json", "copy"])
@pytest.mark.filterwarnings("ignore:Field name:UserWarning")
def test_a_field_named_like_a_method_works_or_is_refused(name: str) -> None:
    """Never: the method taken for the field's default."""
    try:
        made = type("Made", (lf.Event,), {"__annotations__": {name: int}, "__module__": __name__})
    except DeclarationError:
        return
    assert isinstance(getattr(made, name), FieldRef)
    assert fields_of(made)[name].required


# Values -------------------------------------------------------------------------------------------------------------

GOOD: dict[str, Any] = {"user_id": "u", "item_id": "i", "price": 1.0, "at": NOON}


def test_naive_datetimes_are_refused() -> None:
    with pytest.raises(ValidationError, match="at has no time zone"):
        Click(**{**GOOD, "at": datetime(2026, 1, 5)})
    with pytest.raises(ValidationError, match="seen has no time zone"):
        Click(**GOOD, seen=[NOON, datetime(2026, 1, 5)])


@pytest.mark.parametrize("price", [math.nan, math.inf, -math.inf])
def test_floats_are_finite(price: float) -> None:
    with pytest.raises(ValidationError, match="finite"):
        Click(**{**GOOD, "price": price})


def test_unknown_fields_are_refused() -> None:
    with pytest.raises(ValidationError, match="Extra inputs"):
        Click(**{**GOOD, "colour": "red"})


def test_events_are_frozen() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        setattr(Click(**GOOD), "price", 2.0)  # noqa: B010 # a checker would object to the plain spelling


def test_micros() -> None:
    east = Click(**{**GOOD, "at": NOON.astimezone(timezone(timedelta(hours=9)))})
    assert east.micros()["at"] == 1_767_614_400_000_000
    assert east.micros()["price"] == 1.0


@pytest.mark.parametrize("twin", [copy.copy, copy.deepcopy, lambda e: pickle.loads(pickle.dumps(e))])
def test_events_can_be_copied(twin: Callable[[Any], Any]) -> None:
    assert twin(Click(**GOOD)) == Click(**GOOD)


# References ---------------------------------------------------------------------------------------------------------


def test_a_field_is_a_reference_on_the_class_and_a_value_on_the_event() -> None:
    ref: Any = Click.price
    assert isinstance(ref, FieldRef)
    assert (ref.name, ref.kind, ref.event) == ("price", "float", Click)
    assert isinstance(Click.pieces, FieldRef)  # with a default too
    assert Click(**GOOD).price == 1.0


def test_a_misspelt_field() -> None:
    error = refused(lambda: Click.prise)  # type: ignore[attr-defined] # that is the mistake
    assert error.code == "unknown-field"
    assert error.fix == "write Click.price"
    assert error.source is not None
    assert error.source.file == __file__
    assert isinstance(error, AttributeError)
    assert not hasattr(Click, "prise")
    assert getattr(Click, "prise", 5) == 5


def test_an_inherited_field_belongs_to_the_event_it_is_asked_of() -> None:
    class Base(lf.Event):
        user_id: str

    class Sub(Base):
        n: int

    ref: Any = Sub.user_id
    assert ref.event is Sub
    assert list(fields_of(Sub)) == ["user_id", "n"]
    assert list(fields_of(Base)) == ["user_id"]


def test_references_by_name() -> None:
    assert reference(Click, "price", option="by", source=HERE).kind == "float"
    assert refused(lambda: reference(Click, "prise", option="by", source=HERE)).code == "unknown-field"
    assert refused(lambda: reference(Click, Purchase.user_id, option="by", source=HERE)).code == "field-of-other-event"
    assert refused(lambda: reference(Click, 3, option="by", source=HERE)).code == "not-a-field"


def test_events_are_equal_by_value() -> None:
    assert Click(**GOOD) == Click(**GOOD)
    assert Click(**GOOD) != Click(**{**GOOD, "at": NOON + timedelta(microseconds=1)})
    assert Click(**{**GOOD, "at": datetime(2026, 1, 5, 12, tzinfo=UTC)}) == Click(**GOOD)
