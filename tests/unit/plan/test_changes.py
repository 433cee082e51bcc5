"""What a changed declaration does to features and to the build, on definitions alone."""

from __future__ import annotations

import json
import types
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Annotated, Any

import annotated_types
import pytest
from hypothesis import given
from hypothesis import strategies as st

import leftfold as lf
from leftfold.fold.definition import Definition
from leftfold.fold.durations import micros
from leftfold.fold.latest import Latest
from leftfold.observe.observation import ObservedBuild
from leftfold.plan.changes import ViewChange, changes, changes_of
from leftfold.plan.history import TopicLog
from tests import clusters


class Click(lf.Event):
    user_id: str
    item_id: str
    price: float
    tip: float | None = None
    at: datetime


class StrictClick(lf.Event):
    user_id: str
    item_id: str
    price: Annotated[float, annotated_types.Ge(0)]
    tip: float | None = None
    at: datetime


class Item(lf.Event):
    id: str
    category: str
    price: float


CLICKS = lf.Topic("clicks", Click, key=Click.user_id, time=Click.at)
ITEMS = lf.Topic("items", Item, key=Item.id, compacted=True)


def base() -> dict[str, Any]:
    clicks, spend = lf.count("1h"), lf.sum(Click.price, "24h")
    return {
        "clicks_1h": clicks,
        "big_1h": lf.count("1h", where=Click.price > 100),
        "spend_24h": spend,
        "item_7d": lf.last(Click.item_id, "7d"),
        "ever": lf.count(None, ttl="30d"),
        "per_click": spend / clicks,
    }


def view(features: Mapping[str, Any], of: Any = CLICKS, by: Any = Click.user_id) -> Definition:
    made = types.new_class("Activity", (lf.Features,), {"of": of, "by": by}, lambda space: space.update(features))
    definition: Definition = made.__leftfold_definition__  # type: ignore[attr-defined] # made at run time
    return definition


def table(columns: Mapping[str, Any], **options: Any) -> Latest:
    made = types.new_class("Items", (lf.Table,), {"of": ITEMS, "by": Item.id}, lambda space: space.update(columns))
    definition: Latest = made.__leftfold_definition__  # type: ignore[attr-defined] # made at run time
    return replace(definition, **options)


def edited(**features: Any) -> ViewChange:
    """`None` takes a feature out."""
    after = {name: feature for name, feature in {**base(), **features}.items() if feature is not None}
    return changes(view(base()), view(after))


def told(change: ViewChange) -> dict[str, tuple[str, list[str]]]:
    return {f.name: (f.change, [d.what for d in f.differences]) for f in change.features if f.change != "same"}


def test_the_same_declaration_goes_on() -> None:
    change = edited()
    assert (change.verdict, told(change), change.whole, change.serves) == ("continues", {}, (), "all")
    assert str(change) == "  view    activity   its build goes on"


def test_the_first_build_is_all_additive() -> None:
    change = changes(None, view(base()))
    assert change.verdict == "first"
    assert change.of("additive") == [*base()]
    assert str(change).splitlines()[:3] == [
        "+ view    activity   its first build",
        "    + clicks_1h   count(1h)",
        "    + big_1h   count(1h, where price > 100.0)",
    ]


@pytest.mark.parametrize(
    ("name", "feature", "what"),
    [
        ("clicks_1h", lambda: lf.count("2h"), ["window"]),
        ("clicks_1h", lambda: lf.count("24h"), ["window", "step"]),
        ("clicks_1h", lambda: lf.count("1h", step="1m"), ["step"]),
        ("clicks_1h", lambda: lf.count(None), ["window", "step"]),
        ("spend_24h", lambda: lf.max(Click.price, "24h"), ["aggregate", "scale"]),
        ("spend_24h", lambda: lf.sum(Click.price, "24h", scale=2), ["scale"]),
        ("spend_24h", lambda: lf.sum(Click.tip, "24h"), ["field"]),
        ("spend_24h", lambda: lf.sum(Click.price, "24h").default(0.0), ["default"]),
        ("big_1h", lambda: lf.count("1h", where=Click.price > 99), ["where"]),
        ("big_1h", lambda: lf.count("1h"), ["where"]),
        ("ever", lambda: lf.count(None, ttl="60d"), ["ttl"]),
    ],
)
def test_a_changed_feature_tells_what_of_it_changed(name: str, feature: Any, what: list[str]) -> None:
    change = edited(**{name: feature()})  # the formula still holds the old one, and means what it meant
    assert change.verdict == "new"
    assert told(change) == {name: ("changed", what)}


def test_values_are_told_in_words() -> None:
    change = edited(clicks_1h=lf.count("24h"), big_1h=None, small_1h=lf.count("1h", where=Click.price < 10))
    assert str(change).splitlines() == [
        "~ view    activity   a new build",
        "    ~ clicks_1h   window 1h → 1d, step 5m → 1h",
        "    + small_1h   count(1h, where price < 10.0)",
        "    - big_1h",
    ]


def test_a_formula_changes_with_its_parts_and_not_with_their_names() -> None:
    features = base()
    features["spent"] = features.pop("spend_24h")
    features["per_click"] = features["spent"] / features.pop("clicks_1h")
    assert told(changes(view(base()), view(features))) == {"spent": ("renamed", []), "clicks_1h": ("removed", [])}
    clicks, spend = lf.count("1h"), lf.sum(Click.price, "12h")
    change = edited(clicks_1h=clicks, spend_24h=spend, per_click=spend / clicks)
    assert told(change) == {"spend_24h": ("changed", ["window"]), "per_click": ("changed", ["formula"])}
    assert "spend_24h / clicks_1h → spend_24h / clicks_1h of changed features" in str(change)


def test_renamed_needs_equal_meaning() -> None:
    change = edited(big_1h=None, large_1h=lf.count("1h", where=Click.price > 100))
    assert told(change) == {"large_1h": ("renamed", [])}
    assert [f.was for f in change.features if f.change == "renamed"] == ["big_1h"]
    assert "    ~ large_1h   renamed from big_1h" in str(change).splitlines()
    change = edited(big_1h=None, large_1h=lf.count("1h", where=Click.price > 101))
    assert told(change) == {"large_1h": ("additive", []), "big_1h": ("removed", [])}


def test_two_of_one_meaning_are_two_renames() -> None:
    before = view({"a": lf.count("1h"), "b": lf.count("1h")})
    change = changes(before, view({"c": lf.count("1h"), "d": lf.count("1h"), "e": lf.count("1h")}))
    assert [(f.name, f.change, f.was) for f in change.features] == [
        ("c", "renamed", "a"),
        ("d", "renamed", "b"),
        ("e", "additive", None),
    ]


def test_an_optional_field_changes_how_a_mean_is_divided() -> None:
    before, after = view({"m": lf.mean(Click.price, "1h")}), view({"m": lf.mean(Click.tip, "1h")})
    assert told(changes(before, after)) == {"m": ("changed", ["field", "divided by"])}


LATER = lf.Topic("clicks", Click, key=Click.user_id, time=Click.at, lateness="1h")
BY_PRODUCER = lf.Topic("clicks", Click, key=Click.user_id, time=Click.at, log_time="producer")
OTHER = lf.Topic("others", Click, key=Click.user_id, time=Click.at)
STRICT = lf.Topic("clicks", StrictClick, key=StrictClick.user_id, time=StrictClick.at)


@pytest.mark.parametrize(
    ("after", "what"),
    [
        (lambda: view({"n": lf.count("1h")}, by=(Click.user_id, Click.item_id)), "key"),
        (lambda: view({"n": lf.count("1h")}, LATER), "lateness"),
        (lambda: view({"n": lf.count("1h")}, BY_PRODUCER), "log time"),
        (lambda: view({"n": lf.count("1h")}, OTHER), "topics"),
        (lambda: view({"n": lf.count("1h")}, STRICT, StrictClick.user_id), "rules"),
    ],
)
def test_what_all_features_share_changes_each_of_them(after: Any, what: str) -> None:
    change = changes(view({"n": lf.count("1h")}), after())
    assert [d.what for d in change.whole] == [what]
    assert change.of("changed") == ["n"]
    assert (change.verdict, change.serves) == ("new", "new")
    assert f"    ~ all features   {what} " in str(change)


def test_another_order_is_a_new_build_that_changes_no_feature() -> None:
    features = base()
    moved = {"item_7d": features.pop("item_7d"), **features}
    change = changes(view(base()), view(moved))
    assert (change.verdict, told(change), [d.what for d in change.whole]) == ("new", {}, ["order"])
    assert change.serves == "tiles"


def test_another_spelling_of_the_same_formula_is_told_too() -> None:
    named = lf.count("1h")
    before = view({"n": named, "twice": named * 2})
    change = changes(before, view({"n": lf.count("1h"), "twice": lf.count("1h") * 2}))
    assert (change.verdict, told(change), [d.what for d in change.whole]) == ("new", {}, ["spelling"])
    assert change.serves == "all"


@pytest.mark.parametrize(
    ("features", "serves"),
    [
        ({"item_7d": lambda: lf.last(Click.item_id, "7d").default("none")}, "all"),
        ({"double": lambda: lf.count("1h") * 2}, "all"),  # its part is there already
        ({"clicks_30m": lambda: lf.count("30m", step="5m")}, "all"),  # a shorter window of the same tiles
        ({"also": lambda: lf.count("1h")}, "all"),
        ({"per_click": None}, "all"),
        ({"big_1h": None}, "tiles"),  # tiles hold a partial more than it reads
        ({"ever": None}, "tiles"),
        ({"ever": lambda: lf.count(None, ttl="7d")}, "all"),  # forgets earlier what is stored
        ({"ever": lambda: lf.count(None, ttl="60d")}, "new"),  # rows of 30 days without an event are gone
        ({"ever": lambda: lf.count(None)}, "new"),
        ({"item_7d": lambda: lf.last(Click.item_id, "8d")}, "new"),  # a ring holds 7 days
        ({"item_7d": lambda: lf.last(Click.item_id, "6d")}, "tiles"),
        ({"clicks_1m": lambda: lf.count("1m")}, "new"),  # a finer step
        ({"cheap_1h": lambda: lf.count("1h", where=Click.price < 1)}, "new"),  # another partial
    ],
)
def test_what_would_need_no_new_tiles(features: dict[str, Any], serves: str) -> None:
    change = edited(**{name: make() if make else None for name, make in features.items()})
    assert (change.verdict, change.serves) == ("new", serves)
    assert ("needs no new tiles" in str(change)) == (serves != "new")


def test_tables() -> None:
    before = table({"category": Item.category})
    assert changes(before, table({"category": Item.category})).verdict == "continues"
    change = changes(before, table({"category": lf.latest(Item.category).default("none")}))
    assert (told(change), change.serves) == ({"category": ("changed", ["default"])}, "all")
    change = changes(before, table({"kind": Item.category, "price": Item.price}))
    assert told(change) == {"kind": ("renamed", []), "price": ("additive", [])}
    assert change.serves == "new"
    assert changes(table({"kind": Item.category, "price": Item.price}), before).serves == "tiles"
    change = changes(before, table({"category": Item.category}, ttl=micros("7d", option="ttl")))
    assert ([d.what for d in change.whole], change.serves) == (["ttl"], "all")
    longer = changes(table({"category": Item.category}, ttl=micros("7d", option="ttl")), before)
    assert longer.serves == "new"


def test_windows_that_become_a_table_share_nothing() -> None:
    change = changes(view({"category": lf.last(Click.item_id, "7d")}), table({"category": Item.category}))
    assert change.verdict == "new"
    assert "kind" in [d.what for d in change.whole]
    assert change.serves == "new"


# Builds in a store ------------------------------------------------------------------------------------------------


def build(of: Definition, **changed: Any) -> ObservedBuild:
    kept = ObservedBuild("activity", f"{of.fingerprint}-0d1f6c2e", True, 3, "features", of.as_json())
    return replace(kept, **changed)


def stored(definition: Definition) -> Any:
    return json.loads(json.dumps(definition.as_json()))


def test_a_build_is_compared_by_what_the_store_holds() -> None:
    before = view(base())
    assert changes_of([build(before, definition=stored(before))], view(base())).verdict == "continues"
    after = view({**base(), "more": lf.count("1m")})
    assert changes_of([build(before, definition=stored(before))], after) == changes(before, after)
    assert changes_of([], before) == changes(None, before)


@pytest.mark.parametrize("definition", [{}, {"view": "activity", "origins": [["clicks"]]}, {"features": "none"}])
def test_a_definition_that_cannot_be_read_is_its_own_verdict(definition: dict[str, Any]) -> None:
    before = view(base())
    change = changes_of([build(before, id="ffffffffffff-0d1f6c2e", definition=definition)], before)
    assert (change.verdict, change.features, change.serves) == ("unreadable", (), "new")
    assert "what changed is not known" in str(change)


def test_the_id_of_a_build_decides_also_where_its_definition_cannot_be_read() -> None:
    before = view(base())
    assert changes_of([build(before, definition={})], before).verdict == "continues"


def test_the_same_definition_of_another_layout_is_a_new_build() -> None:
    before = view(base())
    change = changes_of([build(before, id="ffffffffffff-0d1f6c2e")], before)
    assert (change.verdict, told(change), change.serves) == ("new", {}, "new")
    assert [d.what for d in change.whole] == ["layout"]


def test_going_back_goes_on_with_the_earlier_build() -> None:
    first, second = view(base()), view({**base(), "more": lf.count("1m")})
    builds = [build(first, followed=False), build(second), build(first, view="another")]
    change = changes_of(builds, first)
    assert (change.verdict, change.earlier) == ("continues", builds[0].id)
    assert f"build {builds[0].id} goes on where it stood, if its checkpoint is still there" in str(change)
    assert changes_of(builds, second).earlier is None
    third = view({**base(), "less": lf.count("1m")})
    assert changes_of(builds, third) == changes(second, third)  # the one that readers follow is compared


# All of it --------------------------------------------------------------------------------------------------------


def test_json_holds_all_that_is_told() -> None:
    cluster = clusters.seen_cluster(clusters.seen_topic("p.clicks", records=600))
    change = changes(view(base()), view({"n": lf.count("1h")}), TopicLog(cluster, {"clicks": "p.clicks"}, 100))
    document = json.loads(json.dumps(change.as_json()))
    assert document["rebuild"]["at_most_records"] == 600
    assert document["rebuild"]["seconds"] == 6.0
    assert {f["name"]: f["change"] for f in document["features"]}["n"] == "renamed"
    assert str(change).splitlines()[-3:] == [
        "    reads the log from its start: at most 600 records, about 6s",
        "    needs the last 1h 6m",
        "    history of clicks: complete: nothing of it was ever deleted",
    ]
    assert changes(view(base()), view(base()), TopicLog(cluster, {"clicks": "p.clicks"})).rebuild is None


POOL: dict[str, Any] = {
    "count": lambda: lf.count("1h"),
    "long": lambda: lf.count("2h"),
    "where": lambda: lf.count("1h", where=Click.price > 1),
    "sum": lambda: lf.sum(Click.price, "1h"),
    "scaled": lambda: lf.sum(Click.price, "1h", scale=1),
    "mean": lambda: lf.mean(Click.tip, "1h"),
    "default": lambda: lf.sum(Click.price, "1h").default(1.0),
    "ever": lambda: lf.count(None),
    "ttl": lambda: lf.count(None, ttl="1d"),
    "last_n": lambda: lf.last_n(Click.item_id, "1h", n=2),
    "more": lambda: lf.last_n(Click.item_id, "1h", n=3),
    "distinct": lambda: lf.distinct(Click.item_id, "1h"),
    "whole": lambda: lf.count("1h") * 2,
    "broken": lambda: lf.count("1h") * 2.0,
    "share": lambda: lf.count("1h") / lf.count("2h"),
    "nested": lambda: (lf.count("1h") + 1) / lf.count("2h"),
}
declared = st.dictionaries(st.sampled_from("abcd"), st.sampled_from(sorted(POOL)), min_size=1).map(
    lambda chosen: view({name: POOL[kind]() for name, kind in chosen.items()})
)


@given(before=declared, after=declared)
def test_no_change_goes_untold_and_nothing_is_told_of_none(before: Definition, after: Definition) -> None:
    change = changes(before, after)
    differs = before.fingerprint != after.fingerprint
    assert (change.verdict == "new") == differs
    assert bool(told(change) or change.whole) == differs
    assert {f.name for f in change.features if f.change != "removed"} == set(after.visible)
    assert {f.was or f.name for f in change.features if f.change != "additive"} == set(before.visible)


@given(definition=declared)
def test_no_new_tiles_for_fewer_features(definition: Definition) -> None:
    fewer = replace(
        definition,
        features=tuple(f for f in definition.features if f.name.startswith("."))
        + tuple(f for f in definition.features if f.name == definition.visible[0]),
    )
    assert changes(definition, fewer).serves in ("all", "tiles")
