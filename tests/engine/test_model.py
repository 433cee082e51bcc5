"""The model predicts: calibrated by a probe, it says how a view will do under a fourfold load and with four times the
keys; then that is run. `make model` prints predicted beside measured.

Rows and bytes must agree within a quarter, in `make engine` by the constants that hold without a probe. Times are
compared by `make model` alone: other work on the machine changes them, so they may differ by a factor of two, and the
percentage that is printed is what to judge the model by.
"""

from __future__ import annotations

import os
import random
import statistics
import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import redis

import leftfold
from leftfold import clock
from leftfold.errors import RunError
from leftfold.fold.definition import Definition
from leftfold.run import probe
from leftfold.run.deployment import Engines
from leftfold.run.probe import PHASES, USUAL_S, WARM_UP, calibrate
from leftfold.run.view import RunningView
from leftfold.sizing.constants import Constants
from leftfold.sizing.load import Load
from leftfold.sizing.pace import Shape, batch, steady
from leftfold.sizing.view_size import expected_tiles, online_bytes, size_view
from leftfold.store.redis.names import Names
from tests.engine import projects
from tests.engine.conftest import Cluster

FULL = os.environ.get("LEFTFOLD_MODEL") == "full"
WITHIN, NOT_ABSURD = 1.25, 2.0
PROBE_S = USUAL_S if FULL else 10.0
PARTITIONS = 6
VIEW = "users"
STREAMS = f"""\
from datetime import datetime

import leftfold as lf


class Click(lf.Event):
    user_id: str
    item_id: str
    price: float
    at: datetime


clicks = lf.Topic("clicks", Click, key=Click.user_id, time=Click.at, partitions={PARTITIONS}, LOG_TIME)


class Users(lf.Features, of=clicks, by=Click.user_id):
    clicks_1h = lf.count("1h")
    big_1h = lf.count("1h", where=Click.price > 100)
    clicks_24h = lf.count("24h")
    spend_24h = lf.sum(Click.price, "24h")
    last_item = lf.last(Click.item_id, "7d")
"""
# Four times the probe's largest batches, and what a live view gets a second, once and fourfold.
FULL_BATCH = 4 * max(phase.size for phase in PHASES)
BATCHES = 4
LIVE, LIVE_S, SETTLED_S = 1_500, 40, 15
# However slow the machine is, there are some batches to tell of.
LEAST_PERIODS, LIVE_AT_MOST_S = 3, 300
KEYS = 20_000
# A history of six hours, by the producer's clock, for what state and store hold at its end.
HISTORY_S = 6 * 3_600
HISTORY_RECORDS, HISTORY_KEYS, HISTORY_BATCHES = (200_000, 2_000, 16) if FULL else (40_000, 400, 8)


@dataclass(frozen=True)
class Compared:
    what: str
    predicted: float
    measured: float

    def __str__(self) -> str:
        off = (self.predicted / self.measured - 1) * 100
        return f"{self.what:<44} predicted {self.predicted:>13,.2f}   measured {self.measured:>13,.2f}   {off:+.0f} %"


def judged(rows: list[Compared], factor: float) -> None:
    print("", *rows, sep="\n")
    for row in rows:
        assert 1 / factor < row.predicted / row.measured < factor, row


def made(cluster: Cluster, root: Path, log_time: str = "broker") -> leftfold.App:
    text = STREAMS.replace("LOG_TIME", f'log_time="{log_time}"')
    app = projects.make(root, cluster.endpoints, f"m{uuid.uuid4().hex[:8]}", text)
    projects.apply(app)
    return app


def definition_of(app: leftfold.App) -> Definition:
    definition = app.catalog.view(VIEW).definition
    assert isinstance(definition, Definition)
    return definition


def record(key: int, at: datetime) -> dict[str, Any]:
    """Texts as long as the model takes them to be."""
    return {"user_id": f"u{key:011}", "item_id": f"i{key % 5_000:011}", "price": key % 20_000 / 100, "at": at}


def limited(app: leftfold.App, offsets: int | None) -> None:
    app.profile = app.profile.model_copy(
        update={"spark": app.profile.spark.model_copy(update={"most_offsets": offsets})}
    )


class Watched:
    """A view with the moments at which its batches began."""

    def __init__(self, app: leftfold.App) -> None:
        (self.view,) = app.supervisor(views=[VIEW], until_caught_up=True).views
        self.view.at_step = self._at
        self.begun: list[tuple[float, int]] = []

    def _at(self, step: str, _batch: int) -> None:
        if step == "begun":
            self.begun.append((clock.monotonic(), sum(self.view.progress.records().values())))

    def caught_up(self, spark: Any, look: Callable[[RunningView], None] = lambda _: None) -> None:
        self.view.start(spark, until_caught_up=True)
        while self.view.running:
            self.view.query.wait(0.2)
            self.view.poll()
            look(self.view)
        self.view.close()
        assert self.view.progress.error is None, self.view.progress.error


def probed(cluster: Cluster, root: Path, spark: Any) -> Constants | None:
    """The constants as the probe measures them. None if it says that other work on the machine disturbed it."""
    app = made(cluster, root / "app")
    engines, store = Engines(app.kafka, app.online, *app.log), redis.Redis.from_url(cluster.endpoints.redis_url)
    started = clock.monotonic()
    constants = None
    try:
        constants = calibrate(
            app.profile, engines, root, session=spark, seconds=PROBE_S, note=lambda text: print(f"  {text}")
        )
    except RunError as unclear:
        if unclear.code != "probe-unclear":
            raise
    print(f"  calibrated in {clock.monotonic() - started:.0f} s: {constants}")
    left = [name for name in app.log[0].metadata().topics if "leftfold-probe" in name]
    assert left == [], "the probe left topics behind"
    assert list(store.scan_iter(match="lf:leftfold-probe*", count=10_000)) == []
    assert list(root.glob("leftfold-probe*")) == []
    return constants


@pytest.fixture(scope="module")
def constants(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory, spark: Any) -> Constants:
    if not FULL:
        return Constants()
    root = tmp_path_factory.mktemp("probe")
    measured = probed(cluster, root / "first", spark) or probed(cluster, root / "second", spark)
    assert measured is not None, "the probe was disturbed twice"
    return measured


@pytest.mark.timeout(900)
@pytest.mark.skipif(FULL, reason="the other tests of `make model` run the probe at its full length")
def test_the_probe_measures_or_says_that_it_was_disturbed(
    cluster: Cluster, tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe, "WARM_UP", replace(WARM_UP, size=3_000))
    monkeypatch.setattr(probe, "PHASES", [replace(phase, size=min(phase.size, 6_000)) for phase in PHASES])
    measured = probed(cluster, tmp_path, spark)
    assert measured is None or measured.source.startswith("probed at")


@pytest.mark.long
@pytest.mark.timeout(900)
def test_throughput_of_batches_four_times_as_large(
    cluster: Cluster, tmp_path: Path, spark: Any, constants: Constants
) -> None:
    app = made(cluster, tmp_path / "full")
    shape = Shape.of(definition_of(app), KEYS, PARTITIONS)
    limited(app, FULL_BATCH // PARTITIONS)
    with app.producer("clicks") as producer:
        now = datetime.now(UTC)
        encoded = [(producer.key_of(r), producer.encode(r)) for r in (record(k, now) for k in range(KEYS))]
        for number in range(FULL_BATCH * BATCHES):
            producer.send_encoded(*encoded[number % KEYS])
    watched = Watched(app)
    watched.caught_up(spark)
    (start, before), (end, after) = watched.begun[1], watched.begun[-1]
    cores = spark.sparkContext.defaultParallelism
    predicted = batch(shape, FULL_BATCH, 1.0, cores, constants)
    seconds = (end - start) / (len(watched.begun) - 2)
    judged(
        [
            Compared(f"records/s, batches of {FULL_BATCH:,}", predicted.through, (after - before) / (end - start)),
            Compared(f"seconds of a batch of {FULL_BATCH:,}", predicted.seconds, seconds),
        ],
        NOT_ABSURD,
    )


@pytest.mark.long
@pytest.mark.timeout(900)
def test_batch_time_at_a_fourfold_rate(cluster: Cluster, tmp_path: Path, spark: Any, constants: Constants) -> None:
    rows = []
    cores = spark.sparkContext.defaultParallelism
    for rate in (LIVE, 4 * LIVE):
        app = made(cluster, tmp_path / f"live{rate}")
        shape = Shape.of(definition_of(app), KEYS, PARTITIONS)
        periods = live_periods(app, spark, rate)
        predicted = steady(shape, rate, cores, constants)
        rows.append(Compared(f"batch time at {rate:,} records/s, s", predicted.seconds, statistics.median(periods)))
        print(f"\n  {len(periods)} batches, {min(periods):.2f} to {max(periods):.2f} s")
    judged(rows, NOT_ABSURD)


def live_periods(app: leftfold.App, spark: Any, rate: int) -> list[float]:
    """Seconds from each batch to the next while so many records a second come in, once that has settled."""
    watched, chance = Watched(app), random.Random(5)
    watched.view.start(spark, until_caught_up=False)
    started = clock.monotonic()

    def periods() -> list[float]:
        settled = [at for at, _ in watched.begun[1:] if at >= started + SETTLED_S]
        return [later - at for at, later in pairwise(settled)]

    with app.producer("clicks") as producer:
        number = 0
        while (elapsed := clock.monotonic() - started) < LIVE_S or len(periods()) < LEAST_PERIODS:
            assert elapsed < LIVE_AT_MOST_S, f"{len(watched.begun)} batches in {elapsed:.0f} s"
            now = datetime.now(UTC)
            while number < elapsed * rate:
                producer.send_dict(record(chance.randrange(KEYS), now))
                number += 1
            watched.view.poll()
            threading.Event().wait(0.01)
    seen = periods()
    watched.view.stop()
    watched.view.wait()
    watched.view.close()
    assert watched.view.progress.error is None, watched.view.progress.error
    return seen


@pytest.mark.long
@pytest.mark.timeout(900)
def test_state_and_memory_of_four_times_the_keys(
    cluster: Cluster, tmp_path: Path, spark: Any, constants: Constants, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(spark), "newSession", telling(type(spark).newSession))
    rows = []
    for keys in (HISTORY_KEYS, 4 * HISTORY_KEYS):
        app = made(cluster, tmp_path / f"keys{keys}", "producer")
        definition, namespace = definition_of(app), app.profile.namespace
        load = Load(rate=HISTORY_RECORDS / HISTORY_S, record_bytes=100, keys=keys, partitions=PARTITIONS)
        predicted = size_view(definition, load, constants, cores=2)
        tiles = expected_tiles(definition, load, HISTORY_S)
        events = HISTORY_RECORDS / keys * len(definition.steps) / sum(tiles.values())
        state_rows, state_bytes, build = with_history(app, spark, keys)
        each = mean_bytes(cluster, Names(namespace, VIEW).row_prefix(build))
        rows += [
            Compared(f"state rows of {keys:,} keys", predicted.result("state rows"), state_rows),
            Compared(f"state bytes of {keys:,} keys", predicted.result("state bytes"), state_bytes),
            Compared(
                f"online bytes of {keys:,} keys",
                keys * online_bytes(definition, tiles, constants, namespace, events=events),
                keys * each,
            ),
        ]
    # How far Spark packs a row of state is measured by the probe at its full length alone.
    judged([row for row in rows if FULL or not row.what.startswith("state bytes")], WITHIN)


def telling(new_session: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """State whose rows and bytes are told exactly: counted, and written as files that are compacted at every commit."""

    def made(session: Any) -> Any:
        own = new_session(session)
        for setting, value in {
            "trackTotalNumberOfRows": "true",
            "changelogCheckpointing.enabled": "false",
            "compactOnCommit": "true",
        }.items():
            own.conf.set(f"spark.sql.streaming.stateStore.rocksdb.{setting}", value)
        return own

    return made


def with_history(app: leftfold.App, spark: Any, keys: int) -> tuple[int, int, str]:
    """Rows and bytes of state at the end of the history, and the build that holds it.

    After it come two batches of a few records each: the first moves the watermark, the second sweeps by it.
    """
    chance, started = random.Random(9), datetime.now(UTC) - timedelta(seconds=HISTORY_S + 60)
    limited(app, HISTORY_RECORDS // HISTORY_BATCHES // PARTITIONS)
    seen: dict[int, tuple[int, int]] = {}

    def look(view: RunningView) -> None:
        for progress in view.query._query.recentProgress:
            if progress.stateOperators:
                state = progress.stateOperators[0]
                seen[progress.batchId] = state.numRowsTotal, state.customMetrics["rocksdbSstFileSize"]

    build, sent = "", 0
    for count in (HISTORY_RECORDS, 60, 60):
        with app.producer("clicks") as producer:
            for number in range(sent, sent + count):
                log_time = started + timedelta(seconds=HISTORY_S) * (number / HISTORY_RECORDS)
                at = log_time - timedelta(seconds=chance.uniform(0, 2))
                producer.send_dict(record(chance.randrange(keys), at), log_time=log_time)
        sent += count
        watched = Watched(app)
        watched.caught_up(spark, look)
        build = str(watched.view.progress.build)
    return *seen[max(seen)], build


def mean_bytes(cluster: Cluster, prefix: str) -> float:
    """Of a row in the store, as Redis counts it."""
    client: Any = redis.Redis.from_url(cluster.endpoints.redis_url)
    names = sorted(client.scan_iter(match=f"{prefix}*", count=10_000))
    some = random.Random(1).sample(names, min(1_000, len(names)))
    return statistics.mean(int(client.execute_command("MEMORY", "USAGE", name, "SAMPLES", 0)) for name in some)
