"""Frames that are scored on real engines: the same predictions as requests got, to the last bit."""

from __future__ import annotations

import json
import random
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import leftfold
from leftfold.cli.main import cli
from leftfold.errors import LeftfoldError
from leftfold.quality import scored
from leftfold.spark.training.assemble import digest_of
from tests.engine import projects
from tests.engine.conftest import Cluster
from tests.engine.driving import run_until_caught_up

SEED = 20261118
ACCOUNTS = 40
PAYMENTS = 4_000

STREAMS = """\
from datetime import datetime

import leftfold as lf
from pydantic import Field

from answers import told


class Payment(lf.Event):
    account: str
    shop: int
    amount: float
    points: int
    card: bool
    note: str | None = None
    at: datetime


class Profile(lf.Event):
    account: str
    city: str
    tags: list[str]
    since: datetime
    limit: float | None = None


payments = lf.Topic("payments", Payment, key=Payment.account, time=Payment.at, partitions=4, lateness="10m")
profiles = lf.Topic("profiles", Profile, key=Profile.account, compacted=True, partitions=2)


class Activity(lf.Features, of=payments, by=Payment.account):
    payments_1h = lf.count("1h")
    points_1h = lf.sum(Payment.points, "1h")
    amount_24h = lf.sum(Payment.amount, "24h")
    per_payment = amount_24h / lf.count("24h")
    last_at = lf.last(Payment.at, "24h")
    last_note = lf.last(Payment.note, "24h")
    last_card = lf.last(Payment.card, "24h")
    amounts = lf.last_n(Payment.amount, "24h", n=5)
    shops_24h = lf.distinct(Payment.shop, "24h")


class Known(lf.Table, of=profiles, by=Profile.account):
    city = Profile.city
    tags = Profile.tags
    since = Profile.since
    limit = Profile.limit


class Input(lf.Vector):
    payments_1h = Activity.payments_1h
    points_1h = Activity.points_1h
    amount_24h = Activity.amount_24h
    asked = lf.request(float)
    per_payment = Activity.per_payment.default(-1.0)
    last_at = Activity.last_at
    last_note = Activity.last_note
    last_card = Activity.last_card
    amounts = Activity.amounts
    shops_24h = Activity.shops_24h
    city = Known.city
    tags = Known.tags
    since = Known.since
    limit = Known.limit
    channel = lf.request(str)


class Told(lf.Prediction, of=Input):
    score: float = Field(ge=0)
    rows_are: str
    paid: int | None = None
    when: datetime
    marks: list[str]


told_topic = lf.Predictions("told", Told, partitions=4, replication=3)


@lf.scorer(Input, to=told_topic, model=lf.ModelFile("model.txt", lambda path: float(open(path).read())))
def teller(model, rows):
    return told(model, rows)
"""
# The answer holds each value as Python writes it: a request and a frame are equal if the function saw the same.
ANSWERS = """\
def told(model, rows):
    numbers = rows.matrix(columns=["payments_1h", "amount_24h", "limit", "asked"])
    return {
        "score": [model * abs(float(row[1] if row[1] == row[1] else row[3])) for row in numbers],
        "rows_are": [repr((sorted(row.values.items()), row.read_at)) for row in rows],
        "paid": [row.points_1h for row in rows],
        "when": [row.last_at or row.read_at for row in rows],
        "marks": [[repr(number) for number in row.amounts] for row in rows],
    }
"""
ANSWERED = ("score", "rows_are", "paid", "when", "marks")


@pytest.fixture(scope="module")
def app(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory, spark: Any) -> leftfold.App:
    root = tmp_path_factory.mktemp("scored") / "project"
    root.mkdir()
    (root / "answers.py").write_text(ANSWERS)
    (root / "model.txt").write_text("0.0078125")
    made = projects.make(root, cluster.endpoints, f"f{uuid.uuid4().hex[:8]}", STREAMS)
    projects.apply(made)
    chance = random.Random(SEED)
    fill(made, chance, PAYMENTS)
    run_until_caught_up(made, spark)
    return made


def fill(app: leftfold.App, chance: random.Random, payments: int) -> None:
    now = datetime.now(UTC)

    def payment() -> dict[str, Any]:
        return {
            "account": f"a{min(ACCOUNTS - 1, int(chance.paretovariate(0.5)))}",  # a few pay most
            "shop": chance.randrange(50),
            "amount": round(chance.lognormvariate(3, 1.3), 2) * chance.choice((1, 1, -1)),
            "points": chance.randrange(-5, 2**40),
            "card": chance.random() < 0.5,
            "note": None if chance.random() < 0.3 else f"n{chance.randrange(9)}",
            "at": now - timedelta(seconds=chance.uniform(0, 500)),
        }

    app.send("payments", (payment() for _ in range(payments)))
    known = [f"a{n}" for n in range(0, ACCOUNTS, 2)]
    app.send(
        "profiles",
        (
            {
                "account": account,
                "city": chance.choice(["Rom", "Köln", ""]),
                "tags": ["x"] * chance.randrange(3),
                "since": now - timedelta(days=chance.randrange(900)),
                "limit": None if chance.random() < 0.5 else 0.1 * chance.randrange(100),
            }
            for account in known
        ),
    )


@pytest.fixture(scope="module")
def predictions(app: leftfold.App, spark: Any) -> list[Any]:
    """What requests got, between batches of the views."""
    teller, chance = app.catalog.scorer("teller"), random.Random(SEED + 1)
    answers: list[Any] = []
    for _ in range(2):
        asked = [
            {"account": f"a{chance.randrange(ACCOUNTS + 3)}", "asked": chance.random() * 9, "channel": "web"}
            for _ in range(150)
        ]
        answers += app.score_many(teller, asked)
        fill(app, chance, 500)
        run_until_caught_up(app, spark)
    app.close()
    return answers


def labels_of(spark: Any, predictions: list[Any]) -> Any:
    rows = [
        (p.prediction_id, p.account, p.asked, p.channel, p.scored_at, p.activity__batch, p.known__batch)
        for p in predictions
    ]
    columns = "id string, account string, asked double, channel string, ts timestamp, activity long, known long"
    return spark.createDataFrame(rows, columns)


def served(app: leftfold.App, labels: Any) -> Any:
    batch = {"activity": "activity", "known": "known"}
    return app.score_frame(labels, app.catalog.scorer("teller"), time="ts", as_of="served", batch=batch)


def check_against(predictions: list[Any], rows: dict[str, Any]) -> None:
    assert rows.keys() == {p.prediction_id for p in predictions}
    wrong = []
    for one in predictions:
        row = rows[one.prediction_id]
        for name in ANSWERED:
            mine, theirs = row[name], getattr(one, name)
            mine = mine.astimezone(UTC) if isinstance(mine, datetime) else mine
            if mine != theirs or type(mine) is not type(theirs):
                wrong.append((one.account, name, mine, theirs))
        assert (row.model, row.version) == (one.model, one.version)
    assert wrong[:3] == []


def test_a_frame_is_scored_as_requests_were(app: leftfold.App, spark: Any, predictions: list[Any]) -> None:
    assert len({p.activity__batch for p in predictions}) > 1, "the batch must matter"
    with served(app, labels_of(spark, predictions)) as frame:
        rows = {row.id: row for row in frame.frame.collect()}
        assert frame.frame.columns[-7:] == [*ANSWERED, "model", "version"]
        assert frame.version == predictions[0].version
    check_against(predictions, rows)
    print(f"{len(rows):,} rows, {len(rows) * len(ANSWERED):,} answers equal")


def test_on_other_machines_the_project_is_sent(
    app: leftfold.App, spark: Any, predictions: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scored, "on_this_machine", lambda _: False)
    (app.root / "answers.py").write_text(ANSWERS.replace("def told", "SENT = True\n\n\ndef told"))
    some = predictions[:40]
    with served(app, labels_of(spark, some)) as frame:
        sent = frame.frame
        (app.root / "answers.py").write_text("raise RuntimeError('this file was read')\n")
        try:
            rows = {row.id: row for row in sent.collect()}
        finally:
            (app.root / "answers.py").write_text(ANSWERS)
    check_against(some, rows)


def test_the_verb(app: leftfold.App, monkeypatch: pytest.MonkeyPatch, spark: Any, predictions: list[Any]) -> None:
    """A row without a moment is there, and has no answer."""
    monkeypatch.chdir(app.root)
    labels, out = app.root / "labels.csv", app.root / "out"
    moment = (datetime.now(UTC) - timedelta(minutes=1)).isoformat()
    rows = [f"a{n},1.5,web,{moment}" for n in range(9)] + ["a1,1.5,web,"]
    labels.write_text("\n".join(["account,asked,channel,ts", *rows]))
    arguments = ["score", "teller", str(labels), "--time", "ts", "--out", str(out), "--json"]
    done = CliRunner().invoke(cli, arguments, catch_exceptions=False)
    manifest = json.loads(done.output)["manifest"]
    assert (manifest["rows"], manifest["model"], manifest["model_version"]) == (10, "teller", predictions[0].version)
    assert manifest == json.loads((out / "_scored_frame.json").read_text())
    stored = spark.read.parquet(str(out))
    assert digest_of(stored) == manifest["digest"]
    without, *timed = sorted(stored.collect(), key=lambda row: row.ts is not None)
    assert [without[name] for name in (*ANSWERED, "model", "version")] == [None] * 7
    assert len(timed) == 9
    assert all(row.score >= 0 for row in timed)
    with pytest.raises(LeftfoldError) as taken:
        CliRunner().invoke(cli, arguments, catch_exceptions=False)
    assert taken.value.code == "directory-taken"


def test_what_a_model_raises_is_told(app: leftfold.App, spark: Any, tmp_path: Path) -> None:
    (app.root / "answers.py").write_text("def told(model, rows):\n    return [0.5][7]\n")
    try:
        with pytest.raises(LeftfoldError, match="does not score a row"):
            leftfold.open(app.root).score_frame(spark.range(1), "teller", time="ts")
        failing = ANSWERS.replace(
            "    numbers", "    if rows[0].asked == 1.5:\n        raise KeyError('city')\n    numbers"
        )
        (app.root / "answers.py").write_text(failing)
        labels = spark.createDataFrame(
            [("a1", 1.5, "web", datetime.now(UTC))], "account string, asked double, channel string, ts timestamp"
        )
        with leftfold.open(app.root).score_frame(labels, "teller", time="ts") as frame:
            with pytest.raises(LeftfoldError) as failed:
                frame.write(str(tmp_path / "out"))
            assert failed.value.code == "frame-not-scored"
            assert "KeyError: 'city'" in failed.value.why
    finally:
        (app.root / "answers.py").write_text(ANSWERS)
    assert not (tmp_path / "out" / "_scored_frame.json").exists()
