"""Evaluation on real engines: Spark's counts against scikit-learn and DuckDB, and figures of a project's outcomes."""

from __future__ import annotations

import json
import os
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from click.testing import CliRunner
from sklearn.metrics import brier_score_loss, log_loss, roc_auc_score  # type: ignore[import-untyped] # it ships none

from leftfold.cli.main import cli
from leftfold.errors import LeftfoldError
from leftfold.fold.expressions import to_micros
from leftfold.fold.scores import ScoreCounts, counted, figures
from leftfold.spark.quality import evaluation
from leftfold.spark.quality.evaluation import counts_of
from tests.engine import projects
from tests.engine.conftest import Cluster

FULL = bool(os.environ.get("LEFTFOLD_QUALITY"))
SETS, ROWS = (200, 5_000) if FULL else (18, 2_000)
STREAMS = """\
from datetime import datetime

import leftfold as lf


class Purchase(lf.Event):
    user_id: str
    amount: float
    at: datetime


purchases = lf.Topic("purchases", Purchase, key=Purchase.user_id, time=Purchase.at, partitions=2)


class Buyer(lf.Features, of=purchases, by=Purchase.user_id):
    purchases_1h = lf.count("1h")


class RankerInput(lf.Vector):
    purchases_1h = Buyer.purchases_1h
    cart = lf.request(float)
    page = lf.request(str)


class RankerScore(lf.Prediction, of=RankerInput):
    score: float


scores = lf.Predictions("scores", RankerScore, partitions=3)


@lf.scorer(RankerInput, to=scores, model=dict)
def ranker(model, rows):
    return [0.5] * len(rows)


class Bought(lf.Outcome, of=scores, by=purchases, within="2s", credit="each", on={"user_id": Purchase.user_id}):
    bought = lf.happened()
    spent = lf.sum(Purchase.amount)
"""
PREDICTIONS = 1_500
START = datetime(2026, 3, 1, tzinfo=UTC)


def made_up(seed: int, rows: int) -> pd.DataFrame:
    """Predictions of two versions with their labels, in one of six shapes. One in ten is open, one in 20 a fallback."""
    draw = np.random.default_rng(seed)
    hidden = draw.random(rows)
    scores = [
        hidden,
        hidden**8 * 0.01,
        0.3 + hidden * 1e-9,
        np.round(hidden, 1),
        np.where(draw.random(rows) < 0.7, 0.02, hidden),
        np.exp(hidden * 20) - 100,
    ][seed % 6]
    ranks = scores.argsort().argsort() / rows
    closed = draw.random(rows) < 0.9
    bought = draw.random(rows) < ranks * draw.choice([0.3, 0.6, 0.95])
    return pd.DataFrame(
        {
            "scored_at": [START + timedelta(seconds=float(s)) for s in draw.random(rows) * 18_000],
            "version": np.where(draw.random(rows) < 0.3, "2", "1"),
            "role": "live",
            "outcome": np.where(draw.random(rows) < 0.05, "fallback", "scored"),
            "score": scores,
            "closed": closed,
            "bought": [bool(b) if c else None for b, c in zip(bought, closed, strict=True)],
        }
    )


def test_counts_of_spark_give_the_figures_of_scikit_learn(spark: Any, tmp_path: Path) -> None:
    """All sets are groups of one frame, so each has edges of its own."""
    sets = pd.concat([made_up(seed, ROWS).assign(set=f"{seed:03}") for seed in range(SETS)])
    sets.to_parquet(tmp_path / "sets.parquet", index=False, coerce_timestamps="us")
    frame = spark.read.parquet(str(tmp_path / "sets.parquet"))
    found = {group.by: group for group in counts_of(frame, score="score", label="bought", by=("set", "version"))}
    assert set(found) == set(sets.groupby(["set", "version"]).groups)
    for (number, version), mine in sets.groupby(["set", "version"]):
        group = found[number, version]
        used = mine[mine.closed & (mine.outcome == "scored")]
        labels, scores = used.bought.astype(bool).to_numpy(), used.score.to_numpy()
        assert group.fallback == int((mine.outcome == "fallback").sum())
        assert group.open == int((~mine.closed & (mine.outcome == "scored")).sum())
        assert group.scores.cells == counted(zip(scores, labels, strict=True), group.scores.edges).cells
        told = figures(group.scores)
        assert told.rows == len(used)
        assert told.auc == pytest.approx(roc_auc_score(labels, scores), abs=0.001)
        if int(number) % 6 != 5:
            assert told.log_loss == pytest.approx(log_loss(labels, scores), abs=1e-9)
            assert told.brier == pytest.approx(brier_score_loss(labels, scores), abs=1e-9)
        else:
            assert told.log_loss is None


def test_hours_add_up_to_the_whole(spark: Any) -> None:
    made = made_up(4, 5_000)
    frame = spark.createDataFrame(pa.Table.from_pandas(made, preserve_index=False)).repartition(5).cache()
    whole = {g.by: g.scores for g in counts_of(frame, score="score", label="bought", by=("version", "role"))}
    hours = counts_of(frame, score="score", label="bought", by=("hour", "version", "role"))
    assert len(hours) == 10
    for key, scores in whole.items():
        parts = [g.scores for g in hours if g.by[1:] == key]
        assert sum(parts, ScoreCounts(scores.edges)) == scores
    oracle = duckdb.connect()
    oracle.register("made", made)
    rows = oracle.sql(
        "SELECT CAST(epoch(scored_at) / 3600 - 0.5 AS BIGINT) AS hour, version, count(*) AS n, "
        "count_if(bought) AS positive FROM made WHERE closed AND outcome = 'scored' GROUP BY ALL"
    ).fetchall()
    expected = {(str(hour), version): (n, positive) for hour, version, n, positive in rows}
    assert {g.by[:2]: (g.scores.rows, g.scores.positives) for g in hours} == expected
    frame.unpersist()


def test_what_cannot_be_judged_is_refused_or_left_out(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made = made_up(0, 400)
    made["spent"] = 3.5
    made["visits"] = 2
    made["once"] = 1
    frame = spark.createDataFrame(pa.Table.from_pandas(made, preserve_index=False))
    for label, code in (("spent", "label-not-binary"), ("visits", "label-not-binary")):
        with pytest.raises(LeftfoldError) as refused:
            counts_of(frame, score="score", label=label, by=())
        assert refused.value.code == code
    with pytest.raises(LeftfoldError) as refused:
        counts_of(frame, score="version", label="bought", by=())
    assert refused.value.code == "score-not-a-number"
    with pytest.raises(LeftfoldError) as refused:
        counts_of(frame, score="score", label="bought", by=("country",))
    assert refused.value.code == "evaluation-column"
    (all_of_them,) = counts_of(frame, score="score", label="once", by=())
    assert all_of_them.scores.negatives == 0
    assert all_of_them.scores.positives == int((made.closed & (made.outcome == "scored")).sum())
    monkeypatch.setattr(evaluation, "MOST_GROUPS", 4)
    with pytest.raises(LeftfoldError) as refused:
        counts_of(frame, score="score", label="bought", by=("version", "hour"))
    assert refused.value.code == "too-many-groups"
    holes = made.head(4).assign(score=[None, float("nan"), 0.5, 0.5], closed=True, outcome="scored", bought=[True] * 4)
    (one,) = counts_of(spark.createDataFrame(holes), score="score", label="bought", by=())
    assert (one.without_score, one.scores.rows) == (2, 2)


# A project ---------------------------------------------------------------------------------------------------------


def predictions(moved: float, now: datetime) -> list[dict[str, Any]]:
    """Predictions of as many users, with scores that tell who buys. `moved` moves carts, and loses a feature."""
    draw = np.random.default_rng(int(moved * 10))
    return [
        {
            "prediction_id": f"{moved}-{n}",
            "request_id": f"{moved}-{n}",
            "scorer": "ranker",
            "role": "shadow" if n % 10 == 9 else "live",
            "model": "m",
            "version": "8" if n % 3 == 0 else "7",
            "scored_at": now,
            "outcome": "fallback" if n % 50 == 0 else "scored",
            "user_id": f"u{n}",
            "purchases_1h": None if moved else n % 4,
            "cart": float(draw.normal(moved * 2, 1)),
            "page": f"page{n % 5}",
            "score": float(draw.random() ** 3),
        }
        for n in range(PREDICTIONS)
    ]


@pytest.mark.usefixtures("near_clocks")
def test_a_project_is_judged(cluster: Cluster, spark: Any, tmp_path: Path) -> None:
    app = projects.make(tmp_path / "project", cluster.endpoints, f"q{uuid.uuid4().hex[:8]}", STREAMS)
    projects.apply(app)
    now = datetime.now(UTC)
    made = predictions(0.0, now)
    app.send("scores", made)
    app.send("scores", made[:100])  # logged again by a scorer that was killed
    draw = np.random.default_rng(9)
    bought = {p["user_id"] for p in made if draw.random() < 0.2 + 0.6 * p["score"]}
    app.send("purchases", ({"user_id": user, "amount": 2.0, "at": now + timedelta(seconds=1)} for user in bought))
    before = app.evaluate("ranker", "bought", by=())
    assert (before.groups[0].open, before.groups[0].scores.rows) == (PREDICTIONS * 49 // 50, 0)
    assert before.groups[0].figures.auc is None
    with mock.patch("leftfold.clock.now_us", return_value=to_micros(now) + 3_600_000_000):
        hours = app.evaluate(app.catalog.scorer("ranker"), "bought", by=("version", "role", "hour"))
        with pytest.raises(LeftfoldError, match="spent cannot be the label"):
            app.evaluate("ranker", "bought", label="spent")
    found = hours.over_hours()
    assert [tuple(group.by.values()) for group in found.groups] == [
        (version, role) for version in ("7", "8") for role in ("live", "shadow")
    ]
    for group in found.groups:
        mine = [p for p in made if (p["version"], p["role"]) == tuple(group.by.values())]
        used = [p for p in mine if p["outcome"] == "scored"]
        assert (group.fallback, group.open) == (len(mine) - len(used), 0)
        labels, scores = [p["user_id"] in bought for p in used], [p["score"] for p in used]
        assert (group.figures.rows, group.figures.positives) == (len(used), sum(labels))
        if min(sum(labels), len(used) - sum(labels)) >= 50:
            assert group.figures.auc == pytest.approx(roc_auc_score(labels, scores), abs=0.001)
            assert group.figures.log_loss == pytest.approx(log_loss(labels, scores), abs=1e-9)
        else:
            assert "fewer than 50" in group.figures.reasons["auc"]
    assert {g.by["hour"] for g in hours.groups} == {now.replace(minute=0, second=0, microsecond=0)}


@pytest.mark.nightly
def test_the_drift_of_a_project_is_seen(
    cluster: Cluster, spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = projects.make(tmp_path / "project", cluster.endpoints, f"q{uuid.uuid4().hex[:8]}", STREAMS)
    projects.apply(app)
    monkeypatch.chdir(app.root)
    now = datetime.now(UTC)
    made = predictions(0.0, now)
    app.send("scores", made)
    app.send("purchases", [{"user_id": "u1", "amount": 2.0, "at": now}])
    live = [p for p in made if p["role"] == "live" and p["outcome"] == "scored"]
    labels = pd.DataFrame(made)[["user_id", "cart", "page", "score", "scored_at"]]
    directory = str(app.root / "set")
    with app.training_set(labels, "ranker_input", time="scored_at") as dataset:
        manifest = dataset.write(directory)
        assert dataset.digest() == manifest["digest"]
    with app.training_set_again(directory) as again:
        assert again.digest() == manifest["digest"]
    assert set(manifest["profile"]["columns"]) == {"purchases_1h", "cart", "page", "score"}
    same = app.drift("ranker", against=directory, by=())
    (group,) = same.groups
    assert group.rows == len(live)
    columns = {column.name: column for column in group.columns}
    assert {name for name, column in columns.items() if column.flagged} == {"purchases_1h"}  # made up in predictions
    moved = datetime.now(UTC)
    app.send("scores", predictions(1.0, moved))
    then = app.drift("ranker", start=moved, against_end=moved)
    assert [dict(g.by) for g in then.groups] == [{"version": "7"}, {"version": "8"}]
    for group in then.groups:
        columns = {column.name: column for column in group.columns}
        assert {name for name, column in columns.items() if column.flagged} == {"purchases_1h", "cart"}
        assert (columns["purchases_1h"].missing_before, columns["purchases_1h"].missing) == (0.0, 1.0)
    assert then.fails(0.1)
    assert not same.fails(1e9)
    command = ["drift", "ranker", "--against", directory, "--by", "", "--json", "--fail-above", "0.2"]
    shown = CliRunner().invoke(cli, command)
    assert shown.exit_code == 4
    assert json.loads(shown.stdout)["failed"]
    manifest.pop("profile")
    (app.root / "set" / "_training_set.json").write_text(json.dumps(manifest))
    for file in (app.root / "set").glob("._training_set.json.crc"):
        file.unlink()
    with pytest.raises(LeftfoldError, match="has no profile"):
        app.drift("ranker", against=directory)
