from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic import Field

import leftfold as lf
from leftfold.declare.rows import Provenance, make_row
from leftfold.errors import DeclarationError
from leftfold.fold.definition import Derived
from leftfold.fold.derived import Arithmetic, Constant, Value
from leftfold.fold.expressions import FieldRef, to_micros
from tests.unit.declare.declared import NOON, Click, Purchase, clicks

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
    assert (definition.view, definition.time, definition.stream) == ("user_activity", "at", None)
    assert [(o.topic, o.lateness, o.log_time) for o in definition.origins] == [("clicks", 10 * M, "broker")]
    assert [(k.name, k.kind) for k in definition.keys] == [("user_id", "string")]
    assert definition.lateness == 10 * M
    assert [(f.name, f.window, f.step) for f in definition.windowed] == [
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
    column = {f.name: f.columns[0] for f in definition.windowed}
    assert column["clicks_1h"] == column["clicks_24h"] != column["big_1h"]
    assert len(definition.columns) == 6
    assert definition.columns[column["spend_24h"]].scale == 6
    assert definition.columns[column["pieces_24h"]].scale == 0


def test_a_composite_key_a_name_and_a_step() -> None:
    definition = UserItem.__leftfold_definition__
    assert definition.view == "pairs"
    assert [(k.name, k.kind) for k in definition.keys] == [("user_id", "string"), ("pieces", "int")]
    assert definition.windowed[0].step == D


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


def test_a_mean_is_a_sum_and_a_count_that_others_share() -> None:
    made = view(
        spend=lf.sum(Click.price, "1h"),
        mean_1h=lf.mean(Click.price, "1h"),
        mean_24h=lf.mean(Click.price, "24h"),
        dear=lf.mean(Click.price, "1h", where=Click.price > 1),
        whole=lf.mean(Click.pieces, "1h"),
    ).__leftfold_definition__
    assert [f.columns for f in made.windowed] == [(0,), (0, 1), (0, 1), (2, 3), (4, 1)]
    assert [(c.aggregate, c.field, c.kind, c.scale) for c in made.columns] == [
        ("sum", "price", "float", 6),
        ("count", None, "int", 0),
        ("sum", "price", "float", 6),
        ("count", None, "int", 0),
        ("sum", "pieces", "int", 0),
    ]


def test_a_mean_counts_only_what_it_sums() -> None:
    """A field that may be missing is counted where it is not; what a stream makes may miss any of them."""

    @lf.stream(clicks, event=Click)
    def cleaned(records: Any) -> Any:
        return records

    class Rated(lf.Event):
        user_id: str
        stars: int | None = None
        at: datetime

    rated = lf.Topic("rated", Rated, key=Rated.user_id, time=Rated.at)
    stars = view(of=rated, by=Rated.user_id, mean=lf.mean(Rated.stars, "1h")).__leftfold_definition__
    prices = view(of=cleaned, mean=lf.mean(Click.price, "1h")).__leftfold_definition__
    assert [d.columns[1].field for d in (stars, prices)] == ["stars", "price"]


def test_equal_columns_are_kept_once() -> None:
    """Of different windows, steps and ttls; another size, scale or condition is another column."""
    made = view(
        a=lf.last_n(Click.item_id, "1h", n=3),
        b=lf.last_n(Click.item_id, None, n=3, ttl="1d"),
        c=lf.last_n(Click.item_id, "1h", n=4),
        d=lf.sum(Click.price, "1h"),
        e=lf.sum(Click.price, "1h", scale=2),
        f=lf.sum(Click.price, "1h", scale=6, step="1m"),
        g=lf.count("1h", where=Click.price > 1),
        h=lf.count("24h", where=Click.price > 1.0),
        i=lf.distinct(Click.item_id, "1h"),
        j=lf.distinct(Click.item_id, "1h", lg_k=10),
    ).__leftfold_definition__
    assert [f.columns for f in made.windowed] == [(i,) for i in (0, 0, 1, 2, 3, 2, 4, 4, 5, 6)]


def test_a_formula() -> None:
    spend, clicks_1h = lf.sum(Click.price, "24h"), lf.count("1h")
    made = view(spend=spend, clicks=clicks_1h, each=spend / clicks_1h, twice=2 * (spend + 1)).__leftfold_definition__
    each, hidden, twice = made.features[2:]
    assert each == Derived("each", Arithmetic("/", Value("spend"), Value("clicks")))
    assert hidden == Derived(".twice.3", Arithmetic("+", Value("spend"), Constant(1)))
    assert twice == Derived("twice", Arithmetic("*", Constant(2), Value(".twice.3")))
    assert made.visible == ("spend", "clicks", "each", "twice")


def test_a_feature_that_stands_only_in_a_formula_is_not_shown() -> None:
    made = view(share=lf.count("1h", where=Click.price > 100) / lf.count("1h"))
    definition = made.__leftfold_definition__
    assert [f.name for f in definition.features] == [".share.0", ".share.1", "share"]
    assert definition.visible == made.__leftfold_names__ == ("share",)
    row: Any = made.compute([click(1, price=200.0), click(2)], at=NOON)
    assert row.values == {"share": 0.5}


def test_a_feature_with_a_default_in_a_formula_is_another_one() -> None:
    spend = lf.sum(Click.price, "1h")
    made = view(spend=spend, safe=spend.default(0.0) + 1, plain=spend + 1)
    nothing: Any = made.compute([], at=NOON, user_id="u")
    assert nothing.values == {"spend": None, "safe": 1.0, "plain": None}


def test_kinds_of_what_a_formula_gives() -> None:
    n, x = lf.count("1h"), lf.mean(Click.price, "1h")
    made = view(n=n, x=x, a=n + 1, b=n / 2, c=n * 1.5, d=n - x, e=1 - n, f=0.5 + n, g=2 * n, h=1 / x)
    kinds = made.__leftfold_definition__.kinds()
    assert [kinds[name] for name in "abcdefgh"] == [
        *("int", "float", "float", "float"),
        *("int", "float", "int", "float"),
    ]


def test_defaults_are_kept_as_json_and_shown_as_values() -> None:
    made = view(
        spend=lf.sum(Click.price, "1h").default(1),
        item=lf.last(Click.item_id, "1h").default("none"),
        gift=lf.last(Click.gift, "1h").default(False),
        seen=lf.max(Click.at, None, ttl="1d").default(NOON),
        each=(lf.count("1h") / 0).default(-1),
    )
    defaults = [f.default for f in made.__leftfold_definition__.features if not f.name.startswith(".")]
    assert [repr(d) for d in defaults] == ["1.0", "'none'", "False", repr(to_micros(NOON)), "-1.0"]
    row: Any = made.compute([], at=NOON, user_id="u")
    assert row.values == {"spend": 1.0, "item": "none", "gift": False, "seen": NOON, "each": -1.0}


def test_lifetime_and_ttl() -> None:
    made = view(ever=lf.count(None), fading=lf.count(None, ttl="1h"), n=lf.count("1h"))
    definition = made.__leftfold_definition__
    assert [f.span for f in definition.windowed] == [(None, 0, None), (None, 0, H), (H, 5 * M, None)]
    row: Any = made.compute([click(10_000), click(61)], at=NOON)
    assert row.values == {"ever": 2, "fading": 0, "n": 0}
    assert row.found


def test_several_topics_of_one_event() -> None:
    older = lf.Topic("older", Click, key=Click.user_id, time=Click.at, lateness="1h", log_time="producer")
    definition = view(of=(clicks, older)).__leftfold_definition__
    assert [(o.topic, o.lateness, o.log_time) for o in definition.origins] == [
        ("clicks", 10 * M, "broker"),
        ("older", H, "producer"),
    ]


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
        ("    user_id: str\n", "    user_id: lf.Personal[str]\n"),
        ("    price: float\n", "    price: lf.Personal[float]\n"),
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
# Fields and values without a checker that would rightly object.
ANY: Any = Lists
ANY_CLICK: Any = Click
ANY_VALUE: Any = object()
LOOSE: Any = lf
ANY_ACTIVITY: Any = UserActivity


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
        (lambda: view(by=()), "by-kind"),
        (lambda: view(by=(Click.user_id, Click.user_id)), "by-kind"),
        (lambda: view(n=lf.sum(Purchase.user_id, "1h")), "field-of-other-event"),
        (lambda: view(n=lf.sum(Click.item_id, "1h")), "aggregate-kind"),
        (lambda: view(n=lf.sum(Click.gift, "1h")), "aggregate-kind"),
        (lambda: view(of=lists, by="user_id", n=lf.last(ANY.tags, "1h")), "aggregate-kind"),
        (lambda: view(of=lists, by="user_id", n=lf.last(ANY.raw, "1h")), "aggregate-kind"),
        *(
            (lambda a=a: view(n=a(ANY_CLICK.raw, "1h")), "aggregate-kind")
            for a in (lf.mean, lf.min, lf.max, lf.distinct)
        ),
        *((lambda a=a: view(n=a(ANY_CLICK.item_id, "1h")), "aggregate-kind") for a in (lf.mean, lf.min, lf.max)),
        *(
            (lambda a=a: view(n=a(ANY_CLICK.gift, "1h")), "aggregate-kind")
            for a in (lf.mean, lf.min, lf.max, lf.distinct)
        ),
        (lambda: view(n=lf.mean(ANY_CLICK.at, "1h")), "aggregate-kind"),
        (lambda: view(n=lf.sum(ANY_CLICK.at, "1h")), "aggregate-kind"),
        (lambda: view(n=lf.distinct(ANY_CLICK.price, "1h")), "aggregate-kind"),
        (lambda: view(n=lf.distinct(ANY_CLICK.tags, "1h")), "aggregate-kind"),
        (lambda: view(n=lf.last_n(ANY_CLICK.tags, "1h", n=3)), "aggregate-kind"),
        (lambda: view(n=lf.last_n(ANY_CLICK.raw, "1h", n=3)), "aggregate-kind"),
        (lambda: view(n=lf.max(Purchase.price, "1h")), "field-of-other-event"),
        (lambda: view(n=lf.latest(Click.item_id)), "column-of-a-table"),
        (lambda: view(n=LOOSE.count("1h").default("none")), "default-kind"),
        (lambda: view(n=LOOSE.count("1h").default(True)), "default-kind"),
        (lambda: view(n=LOOSE.count("1h").default(ANY_CLICK)), "default-kind"),
        (lambda: view(n=LOOSE.count("1h").default(2**63)), "default-kind"),
        (lambda: view(n=LOOSE.sum(Click.price, "1h").default(math.inf)), "default-kind"),
        (lambda: view(n=LOOSE.sum(Click.price, "1h").default(10**400)), "default-kind"),
        (lambda: view(n=LOOSE.last(Click.item_id, "1h").default(ANY_VALUE)), "default-kind"),
        (lambda: view(n=LOOSE.max(Click.at, "1h").default(datetime(2026, 1, 1))), "default-kind"),
        (lambda: view(n=LOOSE.last_n(ANY_CLICK.item_id, "1h", n=3).default([])), "default-kind"),
        (lambda: view(n=(LOOSE.count("1h") + 1).default(ANY_VALUE)), "default-kind"),
        (lambda: view(n=LOOSE.count("1h") + LOOSE.last(ANY_CLICK.item_id, "1h")), "formula-kinds"),
        (lambda: view(n=LOOSE.count("1h") + LOOSE.last_n(ANY_CLICK.pieces, "1h", n=2)), "formula-kinds"),
        (lambda: view(n=LOOSE.count("1h") + LOOSE.max(ANY_CLICK.at, "1h")), "formula-kinds"),
        (lambda: view(n=lf.count("1h") + UserActivity.clicks_1h), "feature-of-other-view"),
        (lambda: view(n=ANY_ACTIVITY.clicks_1h.default(0) / 2), "feature-of-other-view"),
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


ORIGIN = (Provenance("v", "b", 7, found=True),)

# Descriptors --------------------------------------------------------------------------------------------------------


def test_a_feature_is_a_reference_on_the_class_and_a_value_on_the_row() -> None:
    reference: Any = UserActivity.clicks_1h
    assert isinstance(reference, lf.Feature)
    assert (reference.name, reference.owner) == ("clicks_1h", UserActivity)
    assert repr(reference) == "<feature clicks_1h>"
    row = make_row(UserActivity, {"clicks_1h": 3}, found=True, read_at=NOON, provenance=ORIGIN)
    assert (row.clicks_1h, row.found, row.read_at) == (3, True, NOON)
    assert row.provenance == ORIGIN


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
    assert (row.found, row.read_at, row.provenance) == (True, NOON, ())
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


def test_the_reference_of_a_time_constant() -> None:
    seen: Any = Click.at
    assert isinstance(seen, FieldRef)
    made = view(n=lf.count("1h", where=Click.at > datetime(2026, 1, 1, tzinfo=UTC)))
    assert made.compute([click(1)], at=NOON).n == 1  # type: ignore[attr-defined] # made above
