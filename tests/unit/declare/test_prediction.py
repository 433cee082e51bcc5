"""Predictions: their fields, their topic, and how a vector may change under them."""

from __future__ import annotations

import json
from datetime import datetime

import pytest

import leftfold as lf
from leftfold.declare.event import fields_of
from leftfold.declare.schema import avro_schema
from leftfold.errors import DeclarationError


class Visit(lf.Event):
    person: lf.Personal[str]
    city: lf.Personal[str | None] = None
    minutes: float
    at: datetime


visits = lf.Topic("visits", Visit, key=Visit.person, time=Visit.at)


class Visits(lf.Features, of=visits, by=Visit.person):
    visits_1h = lf.count("1h")
    minutes_1h = lf.sum(Visit.minutes, "1h")
    city_7d = lf.last(Visit.city, "7d")
    cities = lf.last_n(Visit.city, "7d", n=3)
    longest_per_visit = lf.max(Visit.minutes, "1h") / lf.count("1h")


class VisitInput(lf.Vector):
    visits_1h = Visits.visits_1h
    minutes_1h = Visits.minutes_1h
    city_7d = Visits.city_7d
    cities = Visits.cities
    longest_per_visit = Visits.longest_per_visit
    weekday = lf.request(int)


class Smaller(lf.Vector, name="visit_input"):
    visits_1h = Visits.visits_1h


class VisitScore(lf.Prediction, of=VisitInput):
    score: float
    why: str | None = None


def test_fields_of_a_prediction() -> None:
    fields = fields_of(VisitScore)
    assert list(fields)[-2:] == ["score", "why"]
    assert VisitScore.__leftfold_answers__ == ("score", "why")
    assert {name for name, field in fields.items() if field.personal} == {"person", "city_7d", "cities"}
    assert fields["person"].required
    assert not fields["visits_1h"].required
    assert (fields["cities"].repeated, fields["cities"].default) == (True, [])
    assert {"visits__build", "visits__batch", "visits__found"} < set(fields)


def test_its_topic_is_keyed_by_the_vector() -> None:
    scores = lf.Predictions("visit_scores", VisitScore, retention="3d")
    assert [key.name for key in scores.key] == ["person"]
    assert scores.time is not None
    assert scores.time.name == "scored_at"
    assert scores.lateness == 600_000_000
    assert lf.Predictions("visit_scores", VisitScore, lateness="5s").lateness == 5_000_000


def test_a_vector_may_shrink_and_grow() -> None:
    """Every field that comes from the vector has a default, so both schemas read each other's records."""

    class VisitScore(lf.Prediction, of=Smaller):
        score: float
        why: str | None = None

    small = {field["name"]: field for field in json.loads(avro_schema(VisitScore))["fields"]}
    large = {field["name"]: field for field in json.loads(avro_schema(globals()["VisitScore"]))["fields"]}
    assert small.keys() < large.keys()
    assert all("default" in large[name] for name in large.keys() - small.keys())


def test_a_name_that_a_prediction_has_itself_is_refused() -> None:
    class Versions(lf.Vector):
        version = Visits.visits_1h

    with pytest.raises(DeclarationError) as told:

        class VersionScore(lf.Prediction, of=Versions):
            score: float

    assert told.value.code == "prediction-field-taken"
