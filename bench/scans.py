"""Scans of history: two comparisons in one warm JVM.

- `scan`: our stateless scan of the log against a bare Spark batch read with the same decoding and the same settings of
  Kafka's consumer. The bare read does not decide which records are accepted.
- `archive_key`: the records of one key on one day of ten, read from the archive against read from the log.

One topic spans ten days by its producer's clock, and nearly all of its records are of one day. It is archived, and the
archive's closed days are compacted. Both sides of a pair compute the same figures from the same records.
"""

from __future__ import annotations

import random
import tempfile
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import leftfold
from bench.clicks import EVENT, bare_read
from bench.engines import project
from bench.pairs import Case, interleave, note
from leftfold import clock
from leftfold.replay.replay import Replay
from leftfold.spark.history.archive import compact_closed, days
from leftfold.spark.session import build_session
from leftfold.spark.source import POLLS

DAYS, KEYS = 10, 1_000
BUSY = DAYS // 2  # the day that is read by key: the log is read from its first record to its last, the archive by key
RECORDS = [6_000_000 if day == BUSY else 60_000 for day in range(DAYS)]
SCAN_GOAL, KEY_GOAL = 0.90, 3.0
WARM_UP = 3
STREAMS = f"""{EVENT}\
clicks = lf.Topic(
    "clicks", Click, key=Click.user_id, time=Click.at, partitions=6, retention="60d", log_time="producer", archive=True
)
"""


def measure(pairs: int) -> dict[str, Case]:
    with tempfile.TemporaryDirectory(prefix="leftfold-bench-") as directory:
        root = Path(directory) / "shop"
        root.mkdir()
        with project(root, STREAMS) as app:
            today = clock.now().replace(hour=0, minute=0, second=0, microsecond=0)
            _send(app, today - timedelta(days=DAYS))
            session = build_session(
                app.profile.spark, application="bench", log_file=app.log_directory / "spark.log", lake=True
            )
            try:
                _archive(app, session)
                bench = _Bench(app, session, today - timedelta(days=DAYS - BUSY))
                for side in (bench.scan, bench.bare, bench.key, bench.key_in_log) * WARM_UP:
                    side()
                scans = interleave("scan", pairs, bench.scan, bench.bare)
                keys = interleave("archive_key", pairs, bench.key, bench.key_in_log)
                note(f"made of them: {bench.made}")
                return {
                    "scan": Case(scans, SCAN_GOAL, bench.equal("scan", "bare"), figures={"records": sum(RECORDS)}),
                    "archive_key": Case(keys, KEY_GOAL, bench.equal("key", "key_in_log"), figures={"days": DAYS}),
                }
            finally:
                session.stop()


def _send(app: leftfold.App, start: datetime) -> None:
    chance = random.Random(1)
    moments = (
        start + timedelta(days=day) + number * (timedelta(days=1) / count)
        for day, count in enumerate(RECORDS)
        for number in range(count)
    )
    with app.producer("clicks") as producer:
        for at in moments:
            record = {
                "user_id": f"u{chance.randrange(KEYS)}",
                "item_id": f"i{chance.randrange(5_000)}",
                "price": round(chance.lognormvariate(3.5, 1.0), 2),
                "at": at - timedelta(seconds=chance.uniform(0, 60)),
            }
            producer.send_dict(record, log_time=at)
    note(f"{sum(RECORDS):,} records of {DAYS} days sent, {RECORDS[BUSY]:,} of one of them")


def _archive(app: leftfold.App, session: Any) -> None:
    (intake,) = app.supervisor().helpers
    intake.start(session, until_caught_up=True)
    intake.wait()
    assert intake.progress.error is None, intake.progress.error
    table = f"{app.lake}/archive/clicks"
    for _ in range(DAYS):
        said = compact_closed(session, table, datetime.now(UTC))
        assert said is None, said
    note(f"archived: {[(str(day.date), day.files) for day in days(session, table)]}")


class _Bench:
    def __init__(self, app: leftfold.App, session: Any, day: datetime) -> None:
        self._app, self._session = app, session
        self._all = app.replay("clicks")
        self._day = app.replay("clicks", start=day, end=day + timedelta(days=1))
        self.made: dict[str, set[tuple[Any, ...]]] = {}

    def scan(self) -> float:
        return self._timed("scan", lambda: self._of_log(self._all)._rows(self._session))

    def bare(self) -> float:
        def read() -> DataFrame:
            return bare_read(self._app, self._session, POLLS).withColumnRenamed("offset", "_offset")

        return self._timed("bare", read)

    def key(self) -> float:
        return self._timed("key", lambda: self._day._rows(self._session, b"u7"))

    def key_in_log(self) -> float:
        return self._timed("key_in_log", lambda: self._of_log(self._day)._rows(self._session, b"u7"))

    def equal(self, one: str, other: str) -> bool:
        """Return whether every run of both sides computed the same figures, from at least one record."""
        return len(self.made[one] | self.made[other]) == 1 and all(made[0] for made in self.made[one])

    def _of_log(self, made: Replay) -> Replay:
        of_log = replace(made)
        of_log.source = replace(made.source, archives=())
        return of_log

    def _timed(self, name: str, read: Any) -> float:
        started = clock.monotonic()
        rows = read()
        (row,) = rows.agg(
            F.count(F.lit(1)),
            F.sum("_offset"),
            F.sum(F.xxhash64("user_id", "item_id", "price", "at").cast("decimal(20,0)")),
        ).collect()
        self.made.setdefault(name, set()).add(tuple(row))
        return clock.monotonic() - started
