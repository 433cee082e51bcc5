"""Definitions taken apart: every aspect as data and in words."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import annotated_types

import leftfold as lf
from leftfold.plan.meaning import Aspect, features_of, in_words, serves, whole_of


class Click(lf.Event):
    user_id: Annotated[str, annotated_types.MinLen(1)]
    price: Annotated[float, annotated_types.Ge(0)]
    tags: list[str] = []  # noqa: RUF012 # pydantic copies it
    seen: datetime | None = None
    at: datetime


CLICKS = lf.Topic("clicks", Click, key=Click.user_id, time=Click.at, lateness="90s")
CARDS = lf.Topic("cards", Click, key=Click.user_id, compacted=True)


class Activity(lf.Features, of=CLICKS, by=Click.user_id):
    n = lf.count("1h", where=(Click.price > 1) & (Click.price < 9))
    ever = lf.count(None, ttl="30d")
    total = lf.sum(Click.price, "24h", scale=2).default(0.0)
    middle = lf.mean(Click.price, "24h")
    newest = lf.last(Click.seen, "7d").default(datetime(2026, 1, 1, tzinfo=UTC))
    prices = lf.last_n(Click.price, "1h", n=5)
    people = lf.distinct(Click.user_id, "1h")
    share = (total + 1) / lf.count("24h")


class Card(lf.Table, of=CARDS, by=Click.user_id):
    tags = Click.tags


ACTIVITY, CARD = Activity.__leftfold_definition__, Card.__leftfold_definition__


def words(name: str) -> dict[str, str]:
    return {what: aspect.words for what, aspect in features_of(ACTIVITY)[name].items() if aspect.words != "none"}


def test_features_in_words() -> None:
    assert words("n") == {
        "aggregate": "count",
        "where": "(price > 1.0 and price < 9.0)",
        "window": "1h",
        "step": "5m",
    }
    assert words("ever") == {"aggregate": "count", "window": "everything", "ttl": "30d"}
    assert words("total") == {
        **{"aggregate": "sum", "field": "price (float)", "window": "1d", "step": "1h", "scale": "2"},
        "default": "0.0",
    }
    assert words("middle")["divided by"] == "events"
    assert words("newest")["default"] == "2026-01-01 00:00:00+00:00"
    assert words("prices")["n"] == "5"
    assert words("people")["lg_k"] == "9"
    assert words("share") == {"formula": "(total + 1) / count(1d)"}
    assert features_of(CARD)["tags"]["field"].words == "tags (list of string)"


def test_only_what_a_row_shows_is_a_feature() -> None:
    assert [*features_of(ACTIVITY)] == [*ACTIVITY.visible]


def test_the_whole_in_words() -> None:
    told = {what: aspect.words for what, aspect in whole_of(ACTIVITY).items()}
    assert told == {
        **{"kind": "windows", "key": "user_id (string)", "topics": "clicks", "lateness": "90s", "log time": "broker"},
        **{"rules": "length of user_id >= 1, price >= 0.0", "time": "at", "stream": "none", "future": "1m"},
    }
    assert whole_of(CARD)["kind"].words == "a table"


def test_a_feature_as_it_would_stand_in_a_formula() -> None:
    known = features_of(ACTIVITY)
    assert in_words(known["n"]) == "count(1h, where (price > 1.0 and price < 9.0))"
    assert in_words(known["ever"]) == "count(everything)"
    assert in_words(known["share"]) == "((total + 1) / count(1d))"
    assert in_words(features_of(CARD)["tags"]) == "tags (list of string)"


def test_aspects_are_equal_as_a_fingerprint_is() -> None:
    assert Aspect(2, "two") == Aspect(2, "another word")
    assert Aspect(2, "two") != Aspect(2.0, "two")
    assert Aspect(1, "one") != Aspect(True, "one")


def test_the_same_serves_itself() -> None:
    assert serves(ACTIVITY, ACTIVITY) == "all"
    assert serves(CARD, CARD) == "all"
    assert serves(ACTIVITY, CARD) == "new"
