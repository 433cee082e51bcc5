"""Outcomes: what their declaration means, and that a label is no feature."""

from __future__ import annotations

from datetime import datetime

import pytest

import leftfold as lf
from leftfold.declare.catalog import Catalog
from leftfold.errors import DeclarationError
from leftfold.fold.columns import Column


class Visit(lf.Event):
    person: str
    at: datetime


class Sale(lf.Event):
    person: str
    answer: str | None = None
    shop: int
    amount: float
    pieces: int | None = None
    at: datetime


visits = lf.Topic("visits", Visit, key=Visit.person, time=Visit.at)
sales = lf.Topic("sales", Sale, key=Sale.person, time=Sale.at, lateness="1h")


class Visits(lf.Features, of=visits, by=Visit.person):
    visits_1h = lf.count("1h")


class VisitInput(lf.Vector):
    visits_1h = Visits.visits_1h


class VisitScore(lf.Prediction, of=VisitInput):
    score: float


scores = lf.Predictions("visit_scores", VisitScore)


class VisitOutcome(lf.Outcome, of=scores, by=sales, within="24h", on={"person": Sale.person}):
    bought = lf.happened()
    much = lf.happened(where=Sale.amount > 10)
    sales = lf.count()
    spent = lf.sum(Sale.amount, scale=2)
    pieces = lf.mean(Sale.pieces)
    most = lf.max(Sale.amount)
    ended = lf.max(Sale.at)
    shop = lf.last(Sale.shop)
    after_s = lf.delay()


def test_what_it_compiles_to() -> None:
    outcome = VisitOutcome.__leftfold_outcome__
    assert (outcome.name, outcome.within, outcome.credit) == ("visit_outcome", 86_400_000_000, "last")
    assert outcome.on == (("person", "person"),)
    kinds = {label.name: label.kind for label in outcome.labels}
    assert kinds == {
        "bought": "bool",
        "much": "bool",
        "sales": "int",
        "spent": "float",
        "pieces": "float",
        "most": "float",
        "ended": "datetime",
        "shop": "int",
        "after_s": "float",
    }
    by_name = {label.name: label.columns for label in outcome.labels}
    assert by_name["spent"] == (Column("sum", "amount", "float", None, 2),)
    assert by_name["pieces"] == (Column("sum", "pieces", "int"), Column("count", "pieces", "int"))
    assert by_name["after_s"] == (Column("min", "at", "datetime"),)
    assert outcome.fields == {"person", "amount", "pieces", "shop", "at"}


def test_an_event_that_names_an_answer_names_its_request() -> None:
    """A shadow has an id of its own, and gets the label of the answer that was given."""

    class ById(lf.Outcome, of=scores, by=sales, within="24h", on=Sale.answer):
        bought = lf.happened()

    class InFull(lf.Outcome, of=scores, by=sales, within="24h", on={"prediction_id": Sale.answer}, name="by_id"):
        bought = lf.happened()

    assert ById.__leftfold_outcome__.on == InFull.__leftfold_outcome__.on == (("request_id", "answer"),)
    assert ById.__leftfold_outcome__.fingerprint == InFull.__leftfold_outcome__.fingerprint


def test_whatever_decides_on_a_label_is_in_the_fingerprint() -> None:
    late = lf.Topic("sales", Sale, key=Sale.person, time=Sale.at, lateness="2h")

    def fingerprint(label: object = None, **given: object) -> str:
        options = {"of": scores, "by": sales, "within": "24h", "on": {"person": Sale.person}, **given}
        made = type("VisitOutcome", (lf.Outcome,), {"bought": label or lf.happened()}, **options)
        outcome: lf.Outcome = made()
        return outcome.__leftfold_outcome__.fingerprint

    base = fingerprint()
    assert fingerprint(of=lf.Predictions("visit_scores", VisitScore), name="renamed") == base
    others = [
        fingerprint(within="23h"),
        fingerprint(credit="first"),
        fingerprint(by=late),
        fingerprint(on={"person": Sale.answer}),
        fingerprint(lf.happened(where=Sale.amount > 10)),
        fingerprint(lf.count()),
    ]
    assert len({base, *others}) == 7


def test_a_catalog_finds_it_by_name_with_its_topics() -> None:
    catalog, problems = Catalog.of([VisitOutcome])
    assert problems == []
    assert catalog.outcome("visit_outcome") is VisitOutcome.__leftfold_outcome__
    assert set(catalog.topics) == {"visit_scores", "sales"}


def test_a_window_makes_a_feature_and_none_a_label() -> None:
    assert isinstance(lf.sum(Sale.amount), lf.Label)
    assert isinstance(lf.sum(Sale.amount, "1h"), lf.Feature)
    assert isinstance(lf.sum(Sale.amount, None), lf.Feature)
    for base, options in ((lf.Features, {"of": sales, "by": Sale.person}), (lf.Vector, {})):
        with pytest.raises(DeclarationError) as told:
            type("Wrong", (base,), {"spent": lf.sum(Sale.amount)}, **options)
        assert told.value.code == "label-in-view"
    with pytest.raises(DeclarationError) as told:
        type(
            "Wrong",
            (lf.Outcome,),
            {"spent": lf.sum(Sale.amount, "1h")},
            of=scores,
            by=sales,
            within="1h",
            on={"person": Sale.person},
        )
    assert told.value.code == "outcome-labels"
