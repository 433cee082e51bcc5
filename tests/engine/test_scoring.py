"""Scorers on real engines: a stream, requests, the trigger that is applied, and what a prediction holds."""

from __future__ import annotations

import os
import random
import subprocess
import time
import uuid
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import leftfold
from tests.engine import consumers, projects
from tests.engine.conftest import Cluster
from tests.engine.driving import run_until_caught_up
from tests.engine.dying_consumer import DIED, SCORING_STEPS

FULL = bool(os.environ.get("LEFTFOLD_SCORING"))
DEATHS = 20 if FULL else 1  # at each step
EVENTS, RATE, ACCOUNTS = (100_000, 1_000, 5_000) if FULL else (600, 200, 20)
IN_CI = {"at_least_once": ("scored", "predictions acknowledged"), "exactly_once": ("scored", "records written")}

pytestmark = pytest.mark.timeout(7_200 if FULL else 600)
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)

SCORER = """
from collections.abc import Sequence

from pydantic import Field


class FraudInput(lf.Vector):
    payments_1h = AccountActivity.payments_1h
    amount_24h = AccountActivity.amount_24h
    amount = lf.request(float)


class FraudScore(lf.Prediction, of=FraudInput):
    score: float = Field(ge=0, le=1)


fraud_scores = lf.Predictions("fraud_scores", FraudScore, partitions=6)


def load() -> lf.Model[float]:
    return lf.Model(0.01, version="7")


@lf.scorer(FraudInput, to=fraud_scores, model=load, on=lf.each(payments, start="beginning"){options})
def fraud(model: float, rows: lf.Rows[FraudInput]) -> Sequence[float]:
    return [min(1.0, model * (row.payments_1h or 0)) for row in rows]
"""


# A second scorer, which stands after the first one in the declarations and does not wait.
EAGER = """)
def fraud(model: float, rows: lf.Rows[FraudInput]) -> Sequence[float]:
    return [min(1.0, model * (row.payments_1h or 0)) for row in rows]


eager_scores = lf.Predictions("eager_scores", FraudScore, partitions=6)


@lf.scorer(FraudInput, to=eager_scores, model=load, name="eager", on=lf.each(payments, start="beginning")"""


@pytest.fixture
def make(cluster: Cluster, tmp_path: Path) -> Callable[[str], leftfold.App]:
    def made(options: str = "") -> leftfold.App:
        streams = projects.PAYMENTS + SCORER.replace("{options}", options)
        app = projects.make(tmp_path / "project", cluster.endpoints, f"s{uuid.uuid4().hex[:8]}", streams)
        projects.apply(app)
        return app

    return made


def payment(number: int, accounts: int = 20) -> dict[str, Any]:
    account = f"a{number * number % accounts}"  # some accounts pay often
    return {"id": number, "account": account, "amount": 1.5, "points": 1, "note": None, "at": datetime.now(UTC)}


def send(app: leftfold.App, numbers: range) -> None:
    app.send("payments", (payment(number) for number in numbers))


def scored(app: leftfold.App) -> Any:
    (one,) = app.consume("fraud", until_caught_up=True)
    if one.error is not None:
        raise one.error
    return one


def predictions(app: leftfold.App, topic: str = "fraud_scores") -> list[dict[str, Any]]:
    return [dict(record.fields) for record in app.read(topic, start=LONG_AGO, most=None) if record.fields]


@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_every_record_of_a_stream_has_one_prediction(
    make: Callable[[str], leftfold.App], spark: Any, delivery: str
) -> None:
    app = make(f', delivery="{delivery}"')
    send(app, range(400))
    run_until_caught_up(app, spark)
    assert scored(app).handled == 400
    made = predictions(app)
    assert len({p["prediction_id"] for p in made}) == len(made) == 400
    paid = Counter(f"a{n * n % 20}" for n in range(400))
    for one in made:
        assert one["payments_1h"] == paid[one["account"]]
        assert one["score"] == min(1.0, 0.01 * one["payments_1h"])
        assert (one["outcome"], one["role"], one["version"], one["amount"]) == ("scored", "live", "7", 1.5)
        assert one["trigger_applied"] is True
        assert one["prediction_id"] == f"{one['trigger']}/fraud"
        assert one["account_activity__found"] is True
    send(app, range(400, 450))  # the view does not run: these are not in the features
    assert scored(app).handled == 50
    after = predictions(app)
    assert Counter(p["trigger_applied"] for p in after) == {True: 400, False: 50}


def test_a_request_is_answered_and_logged(make: Callable[[str], leftfold.App], spark: Any) -> None:
    app = make(', log="before", missing="fallback", fallback=0.5')
    send(app, range(100))
    run_until_caught_up(app, spark)
    fraud = app.catalog.scorer("fraud")
    answer = app.score(fraud, account="a1", amount=3.0)
    row = answer.inputs(fraud.vector)
    assert row.payments_1h == sum(n * n % 20 == 1 for n in range(100))
    assert (answer.score, answer.version, answer.outcome) == (0.01 * row.payments_1h, "7", "scored")
    assert row.values == app.get(fraud.vector, account="a1", amount=3.0).values
    nobody = app.score(fraud, account="nobody", amount=3.0)
    assert (nobody.score, nobody.outcome, nobody.account_activity__found) == (0.5, "fallback", False)
    app.close()
    logged = {p["prediction_id"]: p for p in predictions(app)}
    assert set(logged) == {answer.prediction_id, nobody.prediction_id}
    assert logged[answer.prediction_id]["payments_1h"] == row.payments_1h


@pytest.mark.nightly
def test_a_scorer_knows_whether_its_features_hold_the_record_that_woke_it(
    make: Callable[[str], leftfold.App], spark: Any
) -> None:
    """One scorer waits for the record, another does not. `make scoring` has 100,000 payments, 1,000 a second."""
    app = make(f', trigger="applied", within="{"30s" if FULL else "60s"}"' + EAGER)
    send(app, range(100))
    run_until_caught_up(app, spark)
    send(app, range(100, 101))
    with projects.running(app.root):
        seen = sum(n * n % 20 == 0 for n in range(101))
        projects.await_true(
            lambda: app.get("account_activity", account="a0").payments_1h == seen, timeout=240, what="the view"
        )
        with consumers.consuming(app.root):
            # Before that the scorers are still starting, and the view would be ahead of them.
            projects.await_true(partial(has, app, "eager_scores", 101), timeout=300, what="the first scores")
            with app.producer("payments") as producer:
                began = time.monotonic()
                for number in range(101, EVENTS):
                    producer.send_dict(payment(number, accounts=ACCOUNTS))
                    if number % 10 == 0:
                        time.sleep(max(0.0, began + (number - 101) / RATE - time.monotonic()))
            behind = time.monotonic() - began - (EVENTS - 101) / RATE
            for topic in ("fraud_scores", "eager_scores"):
                projects.await_true(partial(has, app, topic, EVENTS), timeout=300, what=f"all of {topic}")
    ranks: dict[str, int] = {}  # by place: the first payment of an account has rank 1
    logged: dict[str, float] = {}
    paid = Counter[str]()
    topic = app.profile.topic_name("payments")
    records = app.read("payments", start=LONG_AGO, most=None)
    for record in sorted(records, key=lambda record: (record.partition, record.offset)):
        assert record.fields is not None
        paid[record.fields["account"]] += 1
        place = f"{topic}/{record.partition}/{record.offset}"
        ranks[place], logged[place] = paid[record.fields["account"]], record.log_us / 1e6
    assert len(ranks) == EVENTS
    for name in ("fraud_scores", "eager_scores"):
        told, waits = Counter[bool | None](), []
        for one in predictions(app, name):
            # A batch holds a partition up to an offset, so the count says which of the account's payments are in it.
            holds = one["payments_1h"] is not None and one["payments_1h"] >= ranks[one["trigger"]]
            assert one["trigger_applied"] in (holds, None), (name, one)  # null: the rows are newer than their mark
            told[one["trigger_applied"]] += 1
            waits.append(one["scored_at"].timestamp() - logged[one["trigger"]])
        assert sum(told.values()) >= EVENTS
        waits.sort()
        shown = ", ".join(f"p{q} {waits[len(waits) * q // 100]:.2f} s" for q in (50, 99))
        print(f"{name}: trigger_applied {dict(told)}, 0 wrong; from log to score {shown}; {behind:.1f} s more to send")
        if name == "fraud_scores" and not FULL:
            assert set(told) == {True}
        if name == "eager_scores":
            assert told[False] > 0, "the view was never behind"


def has(app: leftfold.App, topic: str, records: int) -> bool:
    name = app.profile.topic_name(topic)
    return sum(app.log[0].stable_offsets(name, app.log[0].partitions_of(name)).values()) >= records


@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_a_scorer_that_dies_loses_no_prediction(
    make: Callable[[str], leftfold.App], spark: Any, tmp_path: Path, delivery: str
) -> None:
    """`make scoring` has 20 deaths at each step; here some steps have one."""
    app = make(f', delivery="{delivery}"')
    consumers.shorten_sessions(app, "fraud")
    send(app, range(100))
    run_until_caught_up(app, spark)
    sent, chance = 100, random.Random(20261118)
    for step in SCORING_STEPS[delivery] if FULL else IN_CI[delivery]:
        for _ in range(DEATHS):
            count = str(chance.randint(1, 2))
            command = [consumers.PYTHON, "-m", "tests.engine.dying_consumer", str(app.root), step, count, "fraud"]
            deadline = time.monotonic() + 240
            with (tmp_path / "died.err").open("w+") as said, subprocess.Popen(command, stderr=said) as dying:
                # It may take all records at once, come to the step once, and wait for more to come to it again.
                while dying.poll() is None and time.monotonic() < deadline:
                    send(app, range(sent, sent + 300))
                    sent += 300
                    with suppress(subprocess.TimeoutExpired):
                        dying.wait(5)
                dying.kill()
            assert dying.returncode == DIED, (step, (tmp_path / "died.err").read_text()[-2_000:])
    scored(app)
    topic = app.profile.topic_name("payments")
    wanted = {f"{topic}/{r.partition}/{r.offset}/fraud" for r in app.read("payments", start=LONG_AGO, most=None)}
    assert len(wanted) == sent
    # A transaction of a process that died is aborted after 10 s. Until then readers see nothing behind it.
    deadline = time.monotonic() + 60
    while set(found := Counter(p["prediction_id"] for p in predictions(app))) < wanted and time.monotonic() < deadline:
        time.sleep(0.5)
    assert set(found) == wanted, "every payment has a prediction, and no other is there"
    repeats = sum(found.values()) - len(found)
    print(f"{delivery}: {sent:,} payments, {repeats:,} predictions repeated, each with the id of the first")
    if delivery == "exactly_once":
        assert repeats == 0
    else:
        assert repeats > 0, "no death came between an acknowledged prediction and its position"
