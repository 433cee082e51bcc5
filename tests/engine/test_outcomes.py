"""Outcomes on real brokers against DuckDB: who is credited, what is closed, what stays, and a table of each row once.

`make outcomes` joins 1,000,000 predictions with 1,000,000 events.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from pyspark.sql import functions as F

import leftfold
from leftfold.quality import outcomes as quality
from leftfold.spark.quality import outcome_table
from leftfold.spark.sinks import delta
from tests.engine import projects
from tests.engine.conftest import Cluster
from tests.engine.driving import run_until_caught_up
from tests.engine.made_outcomes import CREDITS, DECLARED, LABELS, WITHIN, Made, Oracle, S, micros, moment, now_us

LONG = os.environ.get("LEFTFOLD_OUTCOMES", "")
FULL = bool(LONG)
NUMBER = {"": 20_000, "full": 1_000_000}[LONG] if LONG in ("", "full") else int(LONG)
SPAN = (150 if FULL else 10) * S
ROOM = (240 if FULL else 8) * S  # to send everything in, before its oldest is late
HOUR = 3_600 * S
TWICE = CREDITS if FULL else ("last",)  # outcomes that are made twice

pytestmark = [pytest.mark.timeout(3_600 if FULL else 600), pytest.mark.usefixtures("near_clocks")]


@contextmanager
def at(moment_us: int) -> Any:
    """Look at the log at another moment. That is sound as long as nothing is logged between now and then."""
    with mock.patch("leftfold.clock.now_us", return_value=moment_us):
        yield


@dataclass
class Sent:
    app: leftfold.App
    base: int
    early: dict[str, tuple[str, int]]  # by credit: the rows that were closed at the first look, and until when
    late: dict[str, tuple[str, int]]


@pytest.fixture(scope="module")
def sent(cluster: Cluster, spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Sent:
    """Everything is sent, looked at when half of it is closed, and looked at again when more was sent."""
    root = tmp_path_factory.mktemp("outcomes")
    app = projects.make(root / "project", cluster.endpoints, f"o{uuid.uuid4().hex[:8]}", DECLARED)
    projects.apply(app)
    base = now_us() - 600 * S + ROOM
    fingerprint = app.catalog.view("buyer").fingerprint
    made = Made(NUMBER, base=base, span=SPAN, seed=20261118, fingerprint=fingerprint)
    first = NUMBER if FULL else NUMBER * 4 // 5  # in the long test the first look is at a moment that is yet to come
    app.send("ranker_scores", made.predictions())
    app.send("purchases", made.events(first))
    print(f"sent in {(now_us() - base - 600 * S + ROOM) / S:.1f} s")
    slack = S // 2
    half = base + SPAN // 2 + WITHIN + slack + 600 * S
    with mock.patch("leftfold.run.watermark.CLOCK_SLACK", slack):
        if not FULL:
            projects.await_true(lambda: now_us() > half, timeout=240, what="half of the predictions being closed")
        early = _looked(app, spark, root / "early", half if FULL else now_us(), TWICE)
        app.send("purchases", made.events(NUMBER - first))
        late = _looked(app, spark, root / "late", now_us() + HOUR, (*CREDITS, "by_id"))
    return Sent(app, base, early, late)


def _looked(
    app: leftfold.App, spark: Any, directory: Path, when: int, names: tuple[str, ...]
) -> dict[str, tuple[str, int]]:
    found = {}
    for name in names:
        began = time.monotonic()
        with at(when), app.outcomes(name) as outcomes:
            rows = outcomes.write(f"{directory}/{name}")
            found[name] = (f"{directory}/{name}", micros(outcomes.closed_until))
        print(f"{directory.name} {name}: {rows:,} closed rows in {time.monotonic() - began:.1f} s")
    return found


@pytest.fixture(scope="module")
def oracle(sent: Sent) -> Oracle:
    return Oracle(sent.app)


@pytest.mark.parametrize("name", [*CREDITS, "by_id"])
def test_closed_rows_equal_those_of_an_oracle(sent: Sent, oracle: Oracle, name: str) -> None:
    began = time.monotonic()
    labels = oracle.label("each", by_id=True) if name == "by_id" else oracle.label(name)
    directory, until = sent.late[name]
    assert oracle.one(f"SELECT count(*) FROM {labels} WHERE scored_at <= {until}") > NUMBER * 0.9
    assert oracle.one(f"SELECT count(*) FROM {labels} WHERE bought") > NUMBER / 20
    assert oracle.differences(directory, labels, until=until) == 0
    print(f"{name}: 0 rows differ from DuckDB, which took {time.monotonic() - began:.1f} s")


def test_the_log_has_what_makes_it_hard(sent: Sent, oracle: Oracle) -> None:
    assert oracle.one("SELECT count(*) FROM e WHERE NOT accepted") > 0, "late events"
    assert oracle.one("SELECT count(*) - count(DISTINCT prediction_id) FROM p WHERE accepted") > 0, "repeats"
    for edge in ("e.at = p.scored_at", f"e.at = p.scored_at + {WITHIN}", f"e.at = p.scored_at + {WITHIN - 1}"):
        assert oracle.one(f"SELECT count(*) FROM prediction p JOIN event e USING (user_id) WHERE {edge}") > 100, edge
    many = "SELECT max(n) FROM (SELECT count(*) AS n FROM event GROUP BY user_id)"
    assert oracle.one(many) > NUMBER / 100, "a hot key"


@pytest.mark.parametrize("name", TWICE)
def test_a_closed_row_stays_as_it_is(sent: Sent, oracle: Oracle, name: str) -> None:
    """Rows closed at the first look equal those of the second, although more events were logged in between."""
    (early, until), (late, _) = sent.early[name], sent.late[name]
    closed = oracle.one(f"SELECT count(*) FROM read_parquet('{early}/*.parquet')")
    assert NUMBER / 4 < closed < NUMBER * 0.95
    columns = f"SELECT * FROM read_parquet('{{}}/*.parquet') WHERE epoch_us(scored_at) <= {until}"
    one, other = columns.format(early), columns.format(late)
    assert oracle.one(f"SELECT count(*) FROM ({one}) WHERE NOT closed") == 0
    assert oracle.one(f"SELECT count(*) FROM ({one} EXCEPT {other})") == 0
    assert oracle.one(f"SELECT count(*) FROM ({other} EXCEPT {one})") == 0


def test_open_rows_have_no_labels(sent: Sent, spark: Any) -> None:
    """The middle of the range is closed, so some rows are open, and no event of theirs shows."""
    half, shown = sent.base + SPAN // 2, ", ".join(f"cast({label} as string)" for label in LABELS)
    with (
        at(half + WITHIN + 600 * S + S // 2),
        sent.app.outcomes("last", start=moment(sent.base + SPAN // 4), open=True) as outcomes,
    ):
        rows = outcomes.frame.selectExpr(
            "count_if(closed) as closed",
            "count_if(not closed) as open",
            f"count_if(not closed and coalesce({shown}) is not null) as labelled",
            f"count_if(closed != (unix_micros(scored_at) <= {half})) as wrong",
            "count_if(closed and (bought is null or purchases is null or spent is null)) as missing",
        ).collect()[0]
    assert (rows.labelled, rows.wrong, rows.missing) == (0, 0, 0)
    assert min(rows.closed, rows.open) > NUMBER / 20


@pytest.mark.nightly  # closed rows are compared one by one above
@pytest.mark.parametrize("name", ["each", "last"])
def test_counts(sent: Sent, spark: Any, oracle: Oracle, name: str) -> None:
    labels = oracle.label(name)
    with at(now_us() + HOUR), sent.app.outcomes(name) as outcomes:
        counts = outcomes.report()
    reached = (
        'SELECT DISTINCT e.partition, e."offset" FROM event e JOIN prediction p ON p.user_id = e.user_id '
        f"AND e.at >= p.scored_at AND e.at < p.scored_at + {WITHIN}"
    )
    assert counts.predictions == counts.closed == oracle.one("SELECT count(*) FROM prediction")
    assert (counts.open, counts.lost) == (0, 0)
    assert counts.matched == oracle.one(f"SELECT count(*) FROM {labels} WHERE bought")
    assert counts.events_credited == oracle.one(f"SELECT count(*) FROM ({reached})")
    since = "(SELECT min(scored_at) FROM prediction)"
    assert counts.events_without_prediction == oracle.one(
        f"SELECT (SELECT count(*) FROM event e WHERE e.at >= {since}) - count(*) FROM ({reached})"
    )
    assert counts.repeated == oracle.one("SELECT count(*) - count(DISTINCT prediction_id) FROM p WHERE accepted")


class KilledError(BaseException):
    """Stands for the death of the process: nothing after it runs."""


def dying(function: Callable[..., Any], *, after: bool) -> Callable[..., Any]:
    def called(*arguments: Any, **named: Any) -> Any:
        if after:
            function(*arguments, **named)
        raise KilledError

    return called


def test_a_table_gets_every_row_once_whatever_dies(sent: Sent, spark: Any, oracle: Oracle, tmp_path: Path) -> None:
    """An append is killed before its commit, one after it (in the short version: this only), and two run at once."""
    table, app = str(tmp_path / "table"), sent.app
    quarter, half = (sent.base + SPAN * part // 4 + WITHIN + 601 * S for part in (1, 2))
    for when, after in ((quarter, False), (half, True)) if FULL else ((half, True),):
        append = dying(delta.append, after=after)
        with at(when), mock.patch.object(outcome_table, "append", append), pytest.raises(KilledError):
            app.append_outcomes("last", table=table)
        with at(when):
            found = app.append_outcomes("last", table=table)
        assert (found.rows == 0) == after, "what the dead one committed is there"
    added: list[int] = []
    with at(now_us() + HOUR):
        both = [
            threading.Thread(target=lambda: added.append(app.append_outcomes("last", table=table).rows))
            for _ in range(2)
        ]
        for thread in both:
            thread.start()
        for thread in both:
            thread.join()
        assert len(added) == 2
        assert min(added) == 0 < max(added), "one of them found that the other had been faster"
        assert app.append_outcomes("last", table=table).rows == 0
        other = {"last": replace(app.catalog.outcomes["last"], within=WITHIN * 2)}
        with mock.patch.dict(app.catalog.outcomes, other), pytest.raises(leftfold.RunError) as told:
            app.append_outcomes("last", table=table)
    assert told.value.code == "outcome-changed"
    _equals(table, spark, oracle, tmp_path)


def _equals(table: str, spark: Any, oracle: Oracle, tmp_path: Path) -> None:
    """The table holds every prediction of the oracle once, with its labels."""
    rows = spark.read.format("delta").load(table)
    rows.write.parquet(str(tmp_path / "rows"))
    assert rows.count() == rows.select("prediction_id").distinct().count()
    assert oracle.differences(str(tmp_path / "rows"), oracle.label("last"), until=now_us() + HOUR) == 0


@pytest.mark.nightly
def test_a_training_set_takes_outcomes_as_labels(sent: Sent, spark: Any) -> None:
    vector = sent.app.catalog.vectors["ranker_input"]
    end = moment(sent.base + SPAN // 4)
    with at(now_us() + HOUR), sent.app.outcomes("last", end=end) as outcomes:
        plain = outcomes.frame.select("user_id", "scored_at", "cart", "prediction_id")
        with (
            sent.app.training_set(outcomes, vector, time="scored_at", as_of="event") as of_outcomes,
            sent.app.training_set(plain, vector, time="scored_at", as_of="event") as of_labels,
        ):
            made = of_outcomes.frame
            columns = ["prediction_id", "purchases_1h", "spent_1h", "cart"]
            assert {"bought", "after_s", "closed", *columns} <= set(made.columns)
            assert made.columns.count("purchases_1h") == 1
            one, other = made.select(columns), of_labels.frame.select(columns)
            assert one.count() == plain.count() > NUMBER / 20
            assert one.exceptAll(other).isEmpty()
            assert one.where("purchases_1h > 10").count() > 100, "computed: what was logged is below 7"


@pytest.mark.nightly
def test_a_training_set_takes_what_was_logged(sent: Sent, spark: Any, tmp_path: Path) -> None:
    """Half of the predictions were logged by a build of the view's definition. The others are computed."""
    run_until_caught_up(sent.app, spark)
    vector, end = sent.app.catalog.vectors["ranker_input"], moment(sent.base + SPAN // 4)
    asked: Any = {"time": "scored_at", "as_of": "served"}
    with at(now_us() + HOUR), sent.app.outcomes("last", end=end) as outcomes:
        with sent.app.training_set(outcomes, vector, **asked, logged=True) as made:
            manifest = made.write(str(tmp_path / "set"))
        with sent.app.training_set(outcomes, vector, **asked) as computed:
            computed.write(str(tmp_path / "computed"))
    number = "cast(regexp_extract(request_id, '[0-9]+', 0) as long)"
    rows = spark.read.parquet(str(tmp_path / "set")).withColumn("number", F.expr(number))
    logged = rows.where("number % 2 = 1")
    assert manifest["logged"] == dict.fromkeys(["purchases_1h", "spent_1h"], logged.count())
    assert logged.count() > NUMBER / 20
    assert logged.where("purchases_1h != number % 7 or spent_1h is not null").isEmpty()
    columns = ["prediction_id", "purchases_1h", "spent_1h"]
    others = spark.read.parquet(str(tmp_path / "computed")).join(logged, "prediction_id", "left_anti")
    assert rows.where("number % 2 = 0").select(columns).exceptAll(others.select(columns)).isEmpty()
    with sent.app.training_set_again(tmp_path / "set") as again:
        assert again.digest() == again.expected


@pytest.mark.skipif(not FULL, reason="starts ten processes")
def test_ten_killed_processes(sent: Sent, spark: Any, oracle: Oracle, tmp_path: Path) -> None:
    """Processes that append are killed at random; the last one is not."""
    table = str(tmp_path / "table")
    steps = [sent.base + SPAN * part // 11 + WITHIN + 601 * S for part in range(1, 11)]
    for number, when in enumerate([*steps, now_us() + HOUR]):
        command = [sys.executable, "-m", "tests.engine.appending_outcomes", str(sent.app.root), table, str(when)]
        process = subprocess.Popen(command, start_new_session=True)
        if number < 10:
            time.sleep(20 + number * 2)
            if process.poll() is None:
                os.killpg(process.pid, 9)
            process.wait()
        else:
            assert process.wait(timeout=900) == 0
    _equals(table, spark, oracle, tmp_path)
    assert quality.next_start(spark, table) is not None
