"""Whether a schema would be taken: by the registry while its rule stays, else by the rule that is to come."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any
from unittest import mock

import pytest

import leftfold as lf
from leftfold.declare.catalog import Catalog
from leftfold.declare.schema import avro_schema
from leftfold.observe import observation as module
from leftfold.observe.observation import ObservedSubject, observe
from leftfold.settings import Profile
from tests import clusters


class Click(lf.Event):
    user_id: str
    price: float = 0.0
    at: datetime


MICROS = {"type": "long", "logicalType": "timestamp-micros"}


def schema(**fields: Any) -> str:
    described = [{"name": name, "type": kind} for name, kind in fields.items()]
    return json.dumps({"type": "record", "name": "Click", "fields": described})


FITS = schema(user_id="string", at=MICROS)
# price without a default: Click's records have it, so a reader of this one takes them; text is no number for anybody.
TEXT = schema(user_id="string", price="string", at=MICROS)


def seen(
    monkeypatch: pytest.MonkeyPatch,
    *versions: str,
    declared: str = "FULL_TRANSITIVE",
    rule: str | None = "FULL_TRANSITIVE",
    accepts: bool | None = None,
    registered: bool = False,
) -> ObservedSubject:
    """`accepts` is what the registry says; None: it must not be asked."""
    catalog, _ = Catalog.of([lf.Topic("clicks", Click, key=Click.user_id, time=Click.at, compatibility=declared)])
    registry = mock.Mock()
    registry.compatibility.return_value = rule
    registry.id_of.return_value = 1 if registered else None
    registry.versions.return_value = dict(enumerate(versions, 7))
    registry.accepts.return_value = accepts
    monkeypatch.setattr(module, "observe_cluster", lambda *_: clusters.seen_cluster())
    found = observe(catalog, Profile(name="local"), mock.Mock(), mock.Mock(), registry).subjects["clicks-value"]
    expected = [] if accepts is None else [mock.call("clicks-value", avro_schema(Click), transitive=mock.ANY)]
    assert registry.accepts.mock_calls == expected
    if expected:
        assert registry.accepts.mock_calls[0].kwargs == {"transitive": declared.endswith("_TRANSITIVE")}
    return found


@pytest.mark.parametrize("rule", ["FULL", "FULL_TRANSITIVE", "NONE"])
@pytest.mark.parametrize("accepts", [True, False])
def test_a_rule_that_stays_is_the_registrys_to_judge(monkeypatch: pytest.MonkeyPatch, rule: str, accepts: bool) -> None:
    found = seen(monkeypatch, FITS, rule=rule, declared=rule, accepts=accepts)
    assert found == ObservedSubject(rule, registered=False, accepted=accepts, versions=(FITS,))


@pytest.mark.parametrize(
    ("rule", "declared", "versions", "accepted"),
    [
        (None, "FULL_TRANSITIVE", (), True),
        (None, "FULL_TRANSITIVE", (FITS,), True),
        ("NONE", "FULL_TRANSITIVE", (TEXT,), False),
        ("BACKWARD", "BACKWARD_TRANSITIVE", (TEXT, FITS), False),  # all of them are asked
        ("BACKWARD_TRANSITIVE", "BACKWARD", (TEXT, FITS), True),  # the newest is
        ("BACKWARD_TRANSITIVE", "BACKWARD", (FITS, TEXT), False),
        ("FULL_TRANSITIVE", "NONE", (TEXT,), True),
    ],
)
def test_a_rule_that_is_to_change_is_not(
    monkeypatch: pytest.MonkeyPatch, rule: str | None, declared: str, versions: tuple[str, ...], accepted: bool
) -> None:
    found = seen(monkeypatch, *versions, rule=rule, declared=declared)
    assert found == ObservedSubject(rule, registered=False, accepted=accepted, versions=versions)


@pytest.mark.parametrize("rule", ["BACKWARD", "FULL_TRANSITIVE"])
def test_what_is_registered_is_not_judged_again(monkeypatch: pytest.MonkeyPatch, rule: str) -> None:
    assert seen(monkeypatch, TEXT, avro_schema(Click), rule=rule, registered=True).accepted


@pytest.mark.parametrize(
    "other",
    ['syntax = "proto3";', '{"type": "object"}', schema(user_id="string", shop="com.example.Shop"), "{}", "3"],
    ids=["protobuf", "json schema", "a type of another subject", "nothing", "a number"],
)
def test_what_only_the_registry_can_read(monkeypatch: pytest.MonkeyPatch, other: str) -> None:
    assert not seen(monkeypatch, other, rule="BACKWARD", accepts=False).accepted
