"""How to provoke errors of evaluation and drift."""

from __future__ import annotations

import json
from contextlib import chdir
from pathlib import Path
from typing import Any

import leftfold
from leftfold.settings import Profile
from tests.golden.causes import EVENT, HEAD, TOPIC, VIEW, Cause, project, stand_in
from tests.golden.causes_scorers import INPUT, RANKER, SCORE, SCORES

SCORER = RANKER.format(options="", body="return [0.5] * len(rows)")
OTHERS = (
    "class OtherScore(lf.Prediction, of=RankerInput):\n    low: float\n    high: float\n\n\n"
    'others = lf.Predictions("others", OtherScore)\n\n\n'
    "@lf.scorer(RankerInput, to=others, model=dict)\ndef other(model, rows): ...\n\n\n"
)
OUTCOME = """class Later(lf.Outcome, of=scores, by=clicks, within="24h", on={"user_id": Click.user_id}):
    clicked = lf.happened()
    paid = lf.happened(where=Click.price > 0)
"""
ALL = HEAD + EVENT + TOPIC + VIEW + INPUT + SCORE + SCORES + SCORER + OTHERS + OUTCOME


def app(tmp: Path) -> leftfold.App:
    return project(tmp, ALL)


def outcome_of_others(tmp: Path) -> None:
    app(tmp).evaluate("other", "later")


def score(asked: str | None) -> Cause:
    def cause(tmp: Path) -> None:
        from leftfold.quality.evaluation import chosen_score

        chosen_score(app(tmp).catalog.scorer("other"), asked)

    return cause


def label(asked: str | None) -> Cause:
    def cause(tmp: Path) -> None:
        from leftfold.quality.evaluation import chosen_label

        chosen_label(app(tmp).catalog.outcome("later"), asked)

    return cause


def columns(by: tuple[str, ...] = (), **kinds: str) -> Cause:
    def cause(_: Path) -> None:
        from pyspark.sql import types

        from leftfold.spark.quality.evaluation import check_columns

        schema = [stand_in(name=name, dataType=getattr(types, kind)()) for name, kind in kinds.items()]
        frame: Any = stand_in(schema=schema)
        check_columns(frame, "score", "bought", by)

    return cause


def neither(_: Path) -> None:
    from leftfold.spark.quality.evaluation import check_groups

    check_groups([("7", 0), ("8", 31)], "purchases", ("version",))


def many_groups(_: Path) -> None:
    from leftfold.spark.quality.evaluation import check_groups

    check_groups([("u1", 0)] * 2_001, "bought", ("user_id",))


def many_drifts(_: Path) -> None:
    from leftfold.spark.quality.profiles import check_number

    check_number(201, ("user_id",))


def drift_by(tmp: Path) -> None:
    from leftfold.quality.drift import drifted

    rows: Any = stand_in(columns=["prediction_id", "score", "version"])
    drifted(rows, app(tmp).catalog.scorer("ranker"), {}, "sets/march", by=("country",))


def against(**options: Any) -> Cause:
    def cause(tmp: Path) -> None:
        app(tmp).drift("ranker", **options)

    return cause


def profile(document: dict[str, Any]) -> Cause:
    def cause(tmp: Path) -> None:
        from leftfold.quality.drift import profile_of_set
        from leftfold.training.manifest import FILE

        with chdir(tmp):
            Path("sets/march").mkdir(parents=True)
            Path("sets/march", FILE).write_text(json.dumps({"version": 1, **document}))
            profile_of_set("sets/march", stand_in(profile=Profile(name="local")))

    return cause


CAUSES: dict[str, Cause] = {
    "drift-against": against(),
    "drift-against/both": against(against="sets/march", against_start=leftfold.clock.now()),
    "evaluation-column": columns(("country",), version="StringType", score="DoubleType", bought="BooleanType"),
    "evaluation-column/drift": drift_by,
    "evaluation-column/label": label("shown"),
    "evaluation-column/labels": label(None),
    "evaluation-column/score": score("score"),
    "evaluation-column/scores": score(None),
    "evaluation-outcome": outcome_of_others,
    "label-not-binary": neither,
    "label-not-binary/kind": columns(score="DoubleType", bought="DoubleType"),
    "profile-missing": profile({}),
    "profile-missing/version": profile({"profile": {"version": 9}}),
    "score-not-a-number": columns(score="StringType", bought="BooleanType"),
    "too-many-groups": many_groups,
    "too-many-groups/drift": many_drifts,
}
