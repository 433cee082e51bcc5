"""A rebuild of a windowed view against a bare Spark batch read of the same topic with the same decoding.

Both run in one warm JVM. Our side freezes the end offsets, reads all of history, folds it into tiles of two steps,
counts the outcome of every record, and writes the tiles to Redis. The bare side reads, decodes, and discards the rows.

- `rebuild` compares with a bare read under Spark's default settings.
- `tuned` compares with a bare read that has the same settings of Kafka's consumer as ours.
- `with_stream` measures our side until the build has caught up with the head of the log, including its checkpoint,
  first batch and receipt. The bare side has Spark's default settings.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import redis

import leftfold
from bench.clicks import EVENT, bare_read
from bench.engines import project
from bench.pairs import Case, interleave, note
from bench.rows import definition_of, tiles_in
from leftfold import clock
from leftfold.declare.acceptance import ACCEPTED
from leftfold.declare.synthetic import synthetic
from leftfold.run.progress import Progress
from leftfold.spark.session import build_session
from leftfold.spark.source import POLLS

RECORDS = 2_000_000
GOAL = 0.60
VIEW = "user_activity"
WARM_UP = 8  # after so many runs neither side gets faster
# The coarsest tiles last a minute. They are closed after the lateness, the clocks' slack (a minute) and that minute.
_CLOSED_S = 5 + 60 + 60
STREAMS = f"""{EVENT}\
clicks = lf.Topic("clicks", Click, key=Click.user_id, time=Click.at, partitions=6, lateness="5s")


class UserActivity(lf.Features, of=clicks, by=Click.user_id):
    clicks_2m = lf.count("2m")
    big_2m = lf.count("2m", where=Click.price > 100)
    spend_15m = lf.sum(Click.price, "15m")
    last_item = lf.last(Click.item_id, "15m")
"""


def measure(pairs: int) -> dict[str, Case]:
    with tempfile.TemporaryDirectory(prefix="leftfold-bench-") as directory:
        root = Path(directory) / "shop"
        root.mkdir()
        with project(root, STREAMS) as app:
            with app.producer("clicks") as producer:
                for record in synthetic(app.catalog.topic("clicks"), RECORDS, seed=1):
                    producer.send_dict(record)
            note(f"{RECORDS:,} records sent; {_CLOSED_S} s until their tiles are closed")
            time.sleep(_CLOSED_S)
            session = build_session(app.profile.spark, application="bench", log_file=app.log_directory / "spark.log")
            try:
                bench = _Bench(app, session)
                for _ in range(WARM_UP):
                    bench.ours()
                    bench.bare()
                    bench.tuned()
                ratios = interleave("rebuild", pairs, bench.ours, bench.bare)
                times = zip(ratios, bench.last(pairs), strict=True)
                with_stream = tuple(ratio * mine / whole for ratio, (mine, whole) in times)
                tuned = interleave("tuned", pairs, bench.ours, bench.tuned)
                equal = bench.true_to_the_log()
                return {
                    "rebuild": Case(ratios, GOAL, equal, figures={"tiles": float(bench.tiles)}),
                    "tuned": Case(tuned, None, equal),
                    "with_stream": Case(with_stream, None, equal),
                }
            finally:
                session.stop()


class _Bench:
    def __init__(self, app: leftfold.App, session: Any) -> None:
        self._app, self._session = app, session
        self._store: Any = redis.Redis.from_url(app.online.url.get_secret_value())
        self._times: list[tuple[float, float]] = []
        self.tiles = 0

    def ours(self) -> float:
        """Rebuild, and return the seconds until all closed tiles of history are in the store."""
        self._store.flushall()
        rebuild = self._app.rebuild(VIEW, until_caught_up=True, restart=True)
        scanned: list[float] = []
        rebuild.at_step = lambda step: scanned.append(clock.monotonic()) if step == "created" else None
        started = clock.monotonic()
        done = rebuild.run(_looked, session=self._session)
        whole = clock.monotonic() - started
        assert done.error is None, done.error
        assert sum(done.totals().values()) == RECORDS
        self._build, self._accepted = done.build, done.totals()[ACCEPTED]
        self._times.append((scanned[0] - started, whole))
        return scanned[0] - started

    def last(self, number: int) -> list[tuple[float, float]]:
        return self._times[-number:]

    def bare(self) -> float:
        return self._read({})

    def tuned(self) -> float:
        return self._read(POLLS)

    def _read(self, settings: Mapping[str, str]) -> float:
        started = clock.monotonic()
        decoded = bare_read(self._app, self._session, settings)
        decoded.write.format("noop").mode("overwrite").save()
        return clock.monotonic() - started

    def true_to_the_log(self) -> bool:
        """Return whether the tiles hold every accepted record.

        Each accepted record lies in one tile of each step. So the steps must have equal counts and sums, and the count
        must be the number of accepted records.
        """
        found: dict[int, list[int]] = {}
        for step, (_index, _batch, count, _big, spend, _item) in self._tiles():
            totals = found.setdefault(step, [0, 0, 0])
            totals[0] += count
            totals[1] += spend
            totals[2] += 1
        note(f"by step: records, micro-units, tiles: {found}")
        self.tiles = sum(totals[2] for totals in found.values())
        sums = {tuple(totals[:2]) for totals in found.values()}
        return len(found) == 2 and len(sums) == 1 and next(iter(sums))[0] == self._accepted

    def _tiles(self) -> Iterator[tuple[int, list[Any]]]:
        prefix = f"lf:{self._app.profile.namespace}:row:{VIEW}:{self._build}:"
        for key in self._store.scan_iter(match=f"{prefix}*", count=10_000):
            yield from tiles_in(definition_of(self._app, VIEW), self._store.hgetall(key))


def _looked(_: Progress) -> None:
    """Ignore the progress."""
