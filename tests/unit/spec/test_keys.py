from __future__ import annotations

from typing import Any

import pytest

from leftfold.errors import DeclarationError, Source
from leftfold.fold.definition import Key
from leftfold.spec.event import Event
from leftfold.spec.keys import declared_keys, key_values
from tests.unit.spec.declared import Click

KEYS = (Key("user_id", "string"), Key("pieces", "int"))
HERE = Source(__file__, 1)


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
