"""Counts of a run: what this run did, not what the build did before it."""

from __future__ import annotations

import pytest

from leftfold import clock
from leftfold.run.progress import NewestBatch, Progress
from leftfold.store.layout import LedgerRow


def row(partition: int, outcome: str, records: int, *, topic: str = "payments") -> LedgerRow:
    return LedgerRow(topic, partition, outcome, records, newest_log=0, newest_event=0, newest_offset=0)


def test_counts_start_where_the_store_was() -> None:
    progress = Progress("v")
    progress.resume([row(0, "accepted", 100), row(1, "late", 7)])
    assert progress.records() == {"accepted": 0, "late": 0, "future": 0, "rejected": 0}
    progress.applied(
        NewestBatch(3, tiles=5, newest_log=0, applied_at=0), [row(0, "accepted", 130), row(2, "accepted", 4)]
    )
    progress.applied(NewestBatch(4, tiles=2, newest_log=0, applied_at=0), [row(1, "late", 9), row(2, "accepted", 5)])
    assert progress.records() == {"accepted": 35, "late": 2, "future": 0, "rejected": 0}
    assert (progress.batches, progress.tiles) == (2, 7)


def test_partitions_of_two_topics_are_counted_apart() -> None:
    progress = Progress("v")
    progress.resume([row(0, "accepted", 100)])
    ledger = [row(0, "accepted", 101), row(0, "accepted", 5, topic="refunds")]
    progress.applied(NewestBatch(3, tiles=5, newest_log=0, applied_at=0), ledger)
    assert progress.records()["accepted"] == 6


def test_lag_in_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "now_us", lambda: 90_000_000)
    progress = Progress("v")
    assert progress.lag_s is None
    progress.applied(NewestBatch(0, tiles=1, newest_log=60_000_000, applied_at=61_500_000), [])
    progress.lag = 10
    assert progress.lag_s == 30.0
    progress.lag = 0
    assert progress.lag_s == 0.0
    assert progress.as_json()["freshness_s"] == 1.5


def test_totals_are_of_the_build() -> None:
    progress = Progress("v")
    progress.resume([row(0, "accepted", 100), row(1, "late", 7)])
    progress.applied(NewestBatch(3, tiles=5, newest_log=0, applied_at=0), [row(0, "accepted", 130)])
    assert progress.totals() == {"accepted": 130, "late": 7, "future": 0, "rejected": 0}


def test_a_look_at_the_counts_is_not_disturbed_by_a_batch() -> None:
    progress = Progress("v")
    progress.resume([row(0, "accepted", 100)])
    seen = progress._ledger
    progress.applied(NewestBatch(3, tiles=5, newest_log=0, applied_at=0), [row(1, "accepted", 1)])
    assert seen == {"payments/0:accepted": 100}
