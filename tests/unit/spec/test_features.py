from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic import Field

import leftfold as lf
from leftfold.errors import DeclarationError
from leftfold.fold.expressions import FieldRef
from leftfold.spec.features import Provenance, make_row
from leftfold.spec.keys import entity_of, key_values
from tests.unit.spec.declared import NOON, Click, Purchase, clicks

S = 1_000_000
M, H, D = 60 * S, 3_600 * S, 86_400 * S


class UserActivity(lf.Features, of=clicks, by=Click.user_id):
    """What a person did lately."""

    clicks_1h = lf.count("1h")
    big_1h = lf.count("1h", where=Click.price > 100)
    clicks_24h = lf.count("24h")
    spend_24h = lf.sum(Click.price, "24h")
    pieces_24h = lf.sum(Click.pieces, "24h")
    last_item = lf.last(Click.item_id, "7d")
    last_at = lf.last(Click.at, "7d")


class UserItem(lf.Features, of=clicks, by=(Click.user_id, "pieces"), name="pairs"):
    clicks_7d = lf.count("7d", step="1d")


def refused(declare: Callable[[], object]) -> DeclarationError:
    with pytest.raises(DeclarationError) as caught:
        declare()
    return caught.value


def view(by: Any = Click.user_id, of: Any = clicks, name: str | None = None, **features: Any) -> type[lf.Features]:
    """A view made as generated code makes one."""
    return type("Made", (lf.Features,), features or {"n": lf.count("1h")}, of=of, by=by, name=name)


# The definition -----------------------------------------------------------------------------------------------------


def test_the_definition() -> None:
    definition = UserActivity.__leftfold_definition__
    assert (definition.view, definition.topic, definition.time) == ("user_activity", "clicks", "at")
    assert [(k.name, k.kind) for k in definition.keys] == [("user_id", "string")]
    assert definition.lateness == 10 * M
    assert [(f.name, f.window, f.step) for f in definition.features] == [
        ("clicks_1h", H, 5 * M),
        ("big_1h", H, 5 * M),
        ("clicks_24h", D, H),
        ("spend_24h", D, H),
        ("pieces_24h", D, H),
        ("last_item", 7 * D, H),
        ("last_at", 7 * D, H),
    ]
    assert UserActivity.__leftfold_source__.file == __file__


def test_features_share_a_column_when_they_aggregate_the_same() -> None:
    definition = UserActivity.__leftfold_definition__
    column = {f.name: f.column for f in definition.features}
    assert column["clicks_1h"] == column["clicks_24h"] != column["big_1h"]
    assert len(definition.columns) == 6
    assert definition.columns[column["spend_24h"]].scale == 6
    assert definition.columns[column["pieces_24h"]].scale == 0


def test_a_composite_key_a_name_and_a_step() -> None:
    definition = UserItem.__leftfold_definition__
    assert definition.view == "pairs"
    assert [(k.name, k.kind) for k in definition.keys] == [("user_id", "string"), ("pieces", "int")]
    assert definition.features[0].step == D


@pytest.mark.parametrize(
    ("class_name", "expected"),
    [("UserActivity", "user_activity"), ("HTTPCalls", "http_calls"), ("A", "a"), ("Views7d", "views7d")],
)
def test_names_of_views(class_name: str, expected: str) -> None:
    made: Any = type(class_name, (lf.Features,), {"n": lf.count("1h")}, of=clicks, by=Click.user_id)
    assert made.__leftfold_definition__.view == expected


@pytest.mark.parametrize("name", ["a:b", "../up", "a b", "", "é", "a/b"])
def test_a_views_name_fits_into_keys_and_paths(name: str) -> None:
    """It becomes a part of store keys (split at ':') and of the checkpoint's path."""
    if name == "":
        assert view(name=name).__leftfold_definition__.view == "made"
    else:
        refused(lambda: view(name=name))


def test_the_events_rules_are_the_views() -> None:
    class Ruled(lf.Event):
        user_id: str = Field(min_length=1)
        at: datetime

    topic = lf.Topic("ruled", Ruled, key=Ruled.user_id, time=Ruled.at)
    definition = view(of=topic, by=Ruled.user_id).__leftfold_definition__
    assert definition.as_json()["rules"] == [["length", ">=", ["field", "user_id", "string"], 1]]


# Fingerprints: meaning, not text ------------------------------------------------------------------------------------

BASE = """
class Click(lf.Event):
    user_id: str
    price: float
    at: datetime
clicks = lf.Topic("clicks", Click, key=Click.user_id, time=Click.at)
class Activity(lf.Features, of=clicks, by=Click.user_id):
    n = lf.count("1h", where=Click.price > 100)
    spend = lf.sum(Click.price, "24h")
"""


def fingerprint(source: str) -> str:
    namespace: dict[str, Any] = {"lf": lf, "datetime": datetime, "timedelta": timedelta, "__name__": __name__}
    exec(source, namespace)
    definition = namespace["Activity"].__leftfold_definition__
    assert isinstance(definition.fingerprint, str)
    return definition.fingerprint


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("class Activity(", "# a comment\nclass Activity("),
        ("by=Click.user_id):\n", 'by=Click.user_id):\n    """A docstring."""\n'),
        ("    price: float\n", '    """An event."""\n    price: float\n'),
        ("clicks = ", "renamed = clicks = "),
        ("    at: datetime\n", "    at: datetime\n    unread: str | None = None\n"),
        ("    user_id: str\n", "    unread: int = 0\n    user_id: str\n"),
        ('"1h"', '"60m"'),
        ('"24h"', "timedelta(days=1)"),
        ("Click.price > 100", "100.0 < Click.price"),
        ("by=Click.user_id", 'by="user_id"'),
        ("by=Click.user_id", "by=(Click.user_id,)"),
        ("time=Click.at", 'time=Click.at, retention="1d", partitions=12, replication=1'),
    ],
)
def test_a_change_of_text_is_the_same_build(old: str, new: str) -> None:
    assert old in BASE
    assert fingerprint(BASE.replace(old, new)) == fingerprint(BASE)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"1h"', '"2h"'),
        ('"1h"', '"1h", step="1m"'),
        ("price > 100", "price >= 100"),
        ("price > 100", "price > 101"),
        ('"24h"', '"24h", scale=2'),
        ("lf.sum", "lf.last"),
        ("    n = ", "    m = "),
        ("time=Click.at", 'time=Click.at, lateness="11m"'),
        ('"clicks"', '"clicks2"'),
        (
            "    user_id: str\n",
            '    user_id: __import__("typing").Annotated[str, __import__("pydantic").Field(min_length=1)]\n',
        ),
        ("by=Click.user_id)", 'by=Click.user_id, name="other")'),
        ("    price: float", "    price: int"),
    ],
)
def test_a_change_of_meaning_is_another_build(old: str, new: str) -> None:
    assert old in BASE
    assert fingerprint(BASE.replace(old, new)) != fingerprint(BASE)


# What is refused ----------------------------------------------------------------------------------------------------


class Lists(lf.Event):
    user_id: str
    maybe: str | None = None
    tags: list[str] = []  # noqa: RUF012 # pydantic copies it
    raw: bytes = b""
    price: float = 0.0
    at: datetime


lists = lf.Topic("lists", Lists, key=Lists.user_id, time=Lists.at)
ANY: Any = Lists  # its fields, without a checker that would rightly object


@pytest.mark.parametrize(
    ("declare", "code"),
    [
        (lambda: view(of="clicks"), "not-a-topic"),
        (lambda: view(of=Click), "not-a-topic"),
        (lambda: view(x=3), "no-features"),
        (lambda: view(found=lf.count("1h")), "reserved-name"),
        (lambda: view(provenance=lf.count("1h")), "reserved-name"),
        (lambda: view(values=lf.count("1h")), "reserved-name"),
        (lambda: view(compute=lf.count("1h")), "reserved-name"),
        (lambda: view(read_at=lf.count("1h")), "reserved-name"),
        (lambda: view(_n=lf.count("1h")), "reserved-name"),
        (lambda: view(by=Click.price), "by-kind"),
        (lambda: view(by=Click.coupon), "by-kind"),
        (lambda: view(of=lists, by=ANY.tags), "by-kind"),
        (lambda: view(by="user"), "unknown-field"),
        (lambda: view(by=Purchase.user_id), "field-of-other-event"),
        (lambda: view(by=3), "not-a-field"),
        (lambda: view(n=lf.sum(Purchase.user_id, "1h")), "field-of-other-event"),
        (lambda: view(n=lf.sum(Click.item_id, "1h")), "aggregate-kind"),
        (lambda: view(n=lf.sum(Click.gift, "1h")), "aggregate-kind"),
        (lambda: view(of=lists, by="user_id", n=lf.last(ANY.tags, "1h")), "aggregate-kind"),
        (lambda: view(of=lists, by="user_id", n=lf.last(ANY.raw, "1h")), "aggregate-kind"),
        (lambda: lf.sum(Click.price, "1h", scale=16), "sum-scale"),
        (lambda: lf.sum(Click.price, "1h", scale=-1), "sum-scale"),
        (lambda: lf.count("5s"), "window-too-short"),
        (lambda: lf.count("1h", step="7s"), "bad-step"),
        (lambda: lf.count("an hour"), "bad-duration"),
        (lambda: lf.count("1h", where=True), "not-a-condition"),
    ],
)
def test_refused(declare: Callable[[], object], code: str) -> None:
    error = refused(declare)
    assert error.code == code
    assert error.source is not None
    assert error.source.file == __file__


def test_a_condition_is_over_this_topics_fields() -> None:
    """Purchase.price is a string; a field of that name in Click is a float, and not what was meant."""
    refused(lambda: view(n=lf.count("1h", where=Purchase.price == "x")))
    refused(lambda: view(n=lf.count("1h", where=Purchase.user_id == "x")))


def test_a_condition_is_not_over_a_list() -> None:
    """Python would compare a list with a text, Spark refuse the query when it runs."""
    refused(lambda: view(of=lists, by="user_id", n=lf.count("1h", where=ANY.tags == "x")))


def test_a_view_has_a_key() -> None:
    refused(lambda: view(by=()))


def test_a_key_has_each_part_once() -> None:
    refused(lambda: view(by=(Click.user_id, Click.user_id)))


# Descriptors --------------------------------------------------------------------------------------------------------


def test_a_feature_is_a_reference_on_the_class_and_a_value_on_the_row() -> None:
    reference: Any = UserActivity.clicks_1h
    assert isinstance(reference, lf.Feature)
    assert (reference.name, reference.owner) == ("clicks_1h", UserActivity)
    assert repr(reference) == "<feature clicks_1h>"
    row = make_row(UserActivity, {"clicks_1h": 3}, found=True, read_at=NOON, provenance=Provenance("v", "b", 7))
    assert (row.clicks_1h, row.found, row.read_at) == (3, True, NOON)
    assert row.provenance == Provenance("v", "b", 7)


def test_a_feature_used_in_a_second_view_stays_the_firsts() -> None:
    feature = lf.count("1h")
    first = view(mine=feature)
    view(other=feature)
    kept: Any = first.mine  # type: ignore[attr-defined] # made above
    assert (kept.name, kept.owner) == ("mine", first)


# compute ------------------------------------------------------------------------------------------------------------


def click(minutes_ago: float, user: str = "u1", **fields: Any) -> Click:
    values = {"item_id": "i", "price": 1.0, **fields}
    return Click(user_id=user, at=NOON - timedelta(minutes=minutes_ago), **values)


def test_compute() -> None:
    events = [
        click(180, price=250.0, pieces=2),
        click(30, price=120.5),
        click(5, price=9.5, item_id="i2"),
        click(-1, price=1_000.0),  # after the moment: not in yet
    ]
    row = UserActivity.compute(events, at=NOON)
    assert (row.clicks_1h, row.big_1h, row.clicks_24h) == (2, 1, 3)
    assert (row.spend_24h, row.pieces_24h) == (380.0, 4)
    assert (row.last_item, row.last_at) == ("i2", NOON - timedelta(minutes=5))
    assert (row.found, row.read_at, row.provenance) == (True, NOON, None)
    assert "clicks_1h=2" in repr(row)


def test_compute_leaves_out_other_entities() -> None:
    events = [click(1), click(1, user="u2"), click(2, user="u2")]
    assert UserActivity.compute(events, at=NOON, user_id="u2").clicks_1h == 2
    nobody = UserActivity.compute(events, at=NOON, user_id="u3")
    assert (nobody.clicks_1h, nobody.spend_24h, nobody.last_item, nobody.found) == (0, None, None, False)


def test_compute_needs_a_key_when_there_are_several_or_none() -> None:
    assert refused(lambda: UserActivity.compute([click(1), click(1, user="u2")], at=NOON)).code == "compute-needs-key"
    assert refused(lambda: UserActivity.compute([], at=NOON)).code == "compute-needs-key"
    assert UserActivity.compute([], at=NOON, user_id="u1").clicks_1h == 0


def test_compute_by_a_composite_key() -> None:
    events = [click(1, pieces=1), click(1, pieces=2), click(2, pieces=2)]
    assert UserItem.compute(events, at=NOON, user_id="u1", pieces=2).clicks_7d == 2
    for wrong in ({"user_id": "u1"}, {"user_id": "u1", "pieces": "2"}, {"user_id": "u1", "pieces": 2, "x": 1}):
        assert refused(lambda key=wrong: UserItem.compute(events, at=NOON, **key)).code == "wrong-key"  # type: ignore[misc]


def test_compute_at_a_moment_without_a_zone_is_refused() -> None:
    refused(lambda: UserActivity.compute([click(1)], at=datetime(2026, 1, 5, 12)))


def test_compute_of_another_event_is_refused() -> None:
    stranger = Purchase(user_id="u1", price="1", at=NOON)
    refused(lambda: UserActivity.compute([stranger], at=NOON + timedelta(hours=1)))


def test_key_values() -> None:
    definition = UserItem.__leftfold_definition__
    assert key_values(definition, {"pieces": 2, "user_id": "u"}) == ("u", 2)
    assert entity_of(definition, {"pieces": 2, "user_id": "u"}) == "1:u1:2"
    assert entity_of(UserActivity.__leftfold_definition__, {"user_id": "u:1"}) == "u:1"
    error = refused(lambda: key_values(definition, {}))
    assert "no key" in error.what
    assert error.fix == "give exactly user_id=..., pieces=..."


def test_true_is_not_a_number() -> None:
    """Its text would be "True", which no writer of an int ever wrote."""
    refused(lambda: key_values(UserItem.__leftfold_definition__, {"user_id": "u", "pieces": True}))


def test_the_reference_of_a_time_constant() -> None:
    seen: Any = Click.at
    assert isinstance(seen, FieldRef)
    made = view(n=lf.count("1h", where=Click.at > datetime(2026, 1, 1, tzinfo=UTC)))
    assert made.compute([click(1)], at=NOON).n == 1  # type: ignore[attr-defined] # made above
