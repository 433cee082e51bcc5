"""Our view against a hand-written tuned Spark job that computes and writes the same tiles: records a second, and how
long an event takes into the store; and against the same job under Spark's default settings, which is not judged.

One warm JVM, one topic. For throughput every run starts from an empty checkpoint and reads the whole topic; for
freshness both go on from where they were, while 1,000 events a second come in.
"""

from __future__ import annotations

import json
import shutil
import uuid
from pathlib import Path
from typing import Any

import redis

import leftfold
from bench import freshness, tuned
from bench.engines import shop
from bench.pairs import Case, interleave, note
from leftfold import clock
from leftfold.spark.session import SETTINGS, build_session
from leftfold.spark.source import OFFSETS_PER_PARTITION
from leftfold.spec.schema import avro_schema
from leftfold.spec.synthetic import synthetic

RECORDS = 1_000_000
GOAL = 0.95
VIEW = "user_activity"
WARM_UP = 2  # runs of each side before the first pair: by then the JIT has compiled both
# The default settings are more than ten times slower (minutes a run), so they get one pair.
DEFAULT_PAIRS = 1
Tiles = dict[tuple[str, int, int], tuple[int, int, int | None, str | None]]


def measure(pairs: int) -> dict[str, Case]:
    with shop() as app:
        with app.producer("clicks") as producer:
            for record in synthetic(app.catalog.topic("clicks"), RECORDS, seed=1):
                producer.send_dict(record)
        session = build_session(app.profile.spark, application="bench", log_file=app.log_directory / "spark.log")
        try:
            bench = _Bench(app, session)
            for _ in range(WARM_UP):
                bench.ours()
                bench.tuned()
            equal = bench.outputs_equal()
            note(f"all {len(bench.last_tuned)} tiles equal: {equal}")
            ratios = interleave("vs_tuned", pairs, bench.ours, bench.tuned)
            fresh = freshness.measure(app, session, pairs)
            default = interleave("vs_default", min(pairs, DEFAULT_PAIRS), bench.ours, bench.default)
            return {
                "vs_tuned": Case(ratios, GOAL, equal and bench.outputs_equal()),
                "freshness_vs_tuned": fresh,
                "vs_default": Case(default, None, equal and bench.outputs_equal()),
            }
        finally:
            session.stop()


class _Bench:
    def __init__(self, app: leftfold.App, session: Any) -> None:
        self._app = app
        self._session = session
        self._store = redis.Redis.from_url(app.online.url.get_secret_value(), decode_responses=True)

    def ours(self) -> float:
        self._store.flushall()
        checkpoints = self._app.state / "ours" / uuid.uuid4().hex
        self._app.profile = self._app.profile.model_copy(update={"checkpoints": str(checkpoints)})
        (view,) = self._app.supervisor(views=[VIEW], until_caught_up=True).views
        started = clock.monotonic()
        view.start(self._session, until_caught_up=True)
        view.wait()
        seconds = clock.monotonic() - started
        assert view.progress.error is None, view.progress.error
        assert view.progress.records()["accepted"] == RECORDS
        shutil.rmtree(checkpoints)
        self.last_ours = self._read_ours(f"lf::row:{VIEW}:{view.progress.build}:")
        return seconds

    def tuned(self) -> float:
        return self._hand_written(self._session.newSession(), tuned_settings=True)

    def default(self) -> float:
        return self._hand_written(self._session.newSession(), tuned_settings=False)

    def outputs_equal(self) -> bool:
        return self.last_ours == self.last_tuned and len(self.last_ours) > 0

    def _hand_written(self, session: Any, *, tuned_settings: bool) -> float:
        if tuned_settings:
            session.conf.set("spark.sql.shuffle.partitions", self._session.conf.get("spark.sql.shuffle.partitions"))
        else:
            for name in SETTINGS:  # what a session can change; the JVM's options stay
                if name.startswith("spark.sql.") and session.conf.isModifiable(name):
                    session.conf.unset(name)
            session.conf.set("spark.sql.shuffle.partitions", "200")
        self._store.flushall()
        checkpoint = Path(self._app.state) / "tuned" / uuid.uuid4().hex
        started = clock.monotonic()
        tuned.run(
            session,
            bootstrap=self._app.kafka.bootstrap,
            topic="clicks",
            schema=avro_schema(self._app.catalog.topic("clicks").event),
            redis_url=self._app.online.url.get_secret_value(),
            prefix="tuned:",
            checkpoint=str(checkpoint),
            per_trigger=OFFSETS_PER_PARTITION * 6,
        )
        seconds = clock.monotonic() - started
        shutil.rmtree(checkpoint)
        self.last_tuned = self._read_tuned()
        return seconds

    def _read_ours(self, prefix: str) -> Tiles:
        tiles: Tiles = {}
        for key, field, value in self._fields(prefix):
            index, _batch, n, big, spend, item = json.loads(value)
            step = int(field.split(":")[0])
            tiles[key, step, index * step] = (n, big, spend, item)
        return tiles

    def _read_tuned(self) -> Tiles:
        tiles: Tiles = {}
        for key, field, value in self._fields("tuned:"):
            step, start = map(int, field.split(":"))
            n, big, spend, item = value.split("|")
            tiles[key, step, start] = (int(n), int(big), int(spend.replace(".", "")), item)
        return tiles

    def _fields(self, prefix: str) -> list[tuple[str, str, str]]:
        keys = list(self._store.scan_iter(match=f"{prefix}*", count=10_000))
        found = []
        for start in range(0, len(keys), 1_000):
            pipeline = self._store.pipeline(transaction=False)
            chunk = keys[start : start + 1_000]
            for key in chunk:
                pipeline.hgetall(key)
            for key, row in zip(chunk, pipeline.execute(), strict=True):
                found += [(key.removeprefix(prefix), field, value) for field, value in row.items()]
        return found
