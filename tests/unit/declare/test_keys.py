from __future__ import annotations

from typing import Any

import pytest

from leftfold.declare.event import Event
from leftfold.declare.keys import KEY_BYTES, declared_keys, key_values, longest_key
from leftfold.errors import DeclarationError, SourceLine
from leftfold.fold.definition import Key
from leftfold.fold.expressions import FieldRef, Length
from tests.unit.declare.declared import Click

KEYS = (Key("user_id", "string"), Key("pieces", "int"))
HERE = SourceLine(__file__, 1)


class Seat(Event):
    at: int
    row: int


def refused(given: dict[str, Any]) -> DeclarationError:
    with pytest.raises(DeclarationError) as caught:
        key_values("pairs", KEYS, given)
    assert caught.value.code == "wrong-key"
    return caught.value


def test_key_values_are_in_declared_order() -> None:
    assert key_values("pairs", KEYS, {"pieces": 2, "user_id": "u"}) == ("u", 2)


def test_wrong_keys() -> None:
    error = refused({})
    assert "no key" in error.what
    assert error.fix == "give exactly user_id=..., pieces=..."
    refused({"user_id": "u"})
    refused({"user_id": "u", "pieces": "2"})
    refused({"user_id": "u", "pieces": 2, "more": 1})
    refused({"user_id": "u", "piece": 2})


def test_true_is_not_a_number() -> None:
    """Its text would be "True", which no writer of an int ever wrote."""
    refused({"user_id": "u", "pieces": True})


def test_declared_keys() -> None:
    assert declared_keys("V", Click, (Click.user_id, "pieces"), HERE) == KEYS
    assert declared_keys("V", Click, Click.user_id, HERE) == KEYS[:1]


@pytest.mark.parametrize("by", [(), ("user_id", "user_id"), "price", "coupon", "tags", "gift", "at", "raw"])
def test_what_cannot_be_a_key(by: Any) -> None:
    with pytest.raises(DeclarationError) as caught:
        declared_keys("V", Click, by, HERE)
    assert caught.value.code == "by-kind"


def test_at_is_the_moment_of_a_read() -> None:
    with pytest.raises(DeclarationError) as caught:
        declared_keys("V", Seat, ("row", "at"), HERE)
    assert caught.value.code == "reserved-name"


def most(name: str, characters: int) -> Length:
    return Length("<=", FieldRef(name, "string"), characters)


def test_a_key_has_a_kilobyte_unless_its_fields_say_more() -> None:
    assert longest_key([], ["user_id"]) == KEY_BYTES
    assert longest_key([most("user_id", 5)], ["user_id"]) == KEY_BYTES  # the rule itself says less
    assert longest_key([most("user_id", 1_000)], ["user_id"]) == 4_000
    assert longest_key([most("note", 1_000)], ["user_id"]) == KEY_BYTES
    assert longest_key([Length(">=", FieldRef("user_id", "string"), 1_000)], ["user_id"]) == KEY_BYTES


def test_a_key_of_several_parts_has_room_for_their_lengths() -> None:
    rules = [most("a", 500), most("b", 500)]
    assert longest_key(rules, ["a", "b"]) == len("2000:") + 2_000 + len("2000:") + 2_000


def test_the_key_of_a_record_may_be_made_of_any_fields() -> None:
    assert longest_key([]) == KEY_BYTES
    assert longest_key([most("note", 1_000)]) == 4_000
