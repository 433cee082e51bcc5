"""The size of a batch: as it always was without a declared rate, some seconds of the rate with one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from leftfold.declare.batches import (
    BACKLOG_S,
    BYTES_PER_PARTITION,
    OFFSETS_PER_PARTITION,
    offsets_per_batch,
    offsets_per_task,
    shared_task,
)


def test_a_task_is_bounded_in_offsets_and_in_bytes() -> None:
    assert offsets_per_task(0) == offsets_per_task(100) == OFFSETS_PER_PARTITION == 50_000
    assert offsets_per_task(100, most_offsets=7) == 7
    assert offsets_per_task(100_000) == BYTES_PER_PARTITION // 100_000 == 671
    assert offsets_per_task(100_000, most_offsets=1_000) == 671
    assert offsets_per_task(1e12) == 1


def test_without_a_rate_a_batch_has_a_task_for_each_partition() -> None:
    assert offsets_per_batch(50_000, 6, rate=None, cores=1_000) == 300_000


def test_with_a_rate_a_batch_is_some_seconds_of_it() -> None:
    assert offsets_per_batch(50_000, 24, rate=600_000, cores=131) == 600_000 * BACKLOG_S == 2_400_000
    assert offsets_per_batch(50_000, 12, rate=600_000, cores=131) == 2_400_000  # partitions do not matter
    assert offsets_per_batch(50_000, 24, rate=20_000, cores=131) == 1_200_000  # never less than without a rate


def test_few_cores_bound_what_a_large_rate_asks_for() -> None:
    assert offsets_per_batch(50_000, 6, rate=600_000, cores=2) == BACKLOG_S * 2 * 50_000
    assert offsets_per_batch(671, 6, rate=600_000, cores=2) == BACKLOG_S * 2 * 671  # records of 100 kB


def test_a_large_batch_has_a_task_for_each_core() -> None:
    assert shared_task(50_000, 2_400_000, 131) == 18_321
    assert shared_task(50_000, 2_400_000, 2) == 50_000


@given(
    record_bytes=st.floats(0, 1e7),
    partitions=st.integers(1, 4_000),
    rate=st.floats(1, 1e8),
    cores=st.integers(1, 10_000),
)
def test_no_task_holds_more_than_without_a_rate(record_bytes: float, partitions: int, rate: float, cores: int) -> None:
    per_task = offsets_per_task(record_bytes)
    least = offsets_per_batch(per_task, partitions, rate=None, cores=cores)
    most = offsets_per_batch(per_task, partitions, rate=rate, cores=cores)
    assert least <= most <= max(least, BACKLOG_S * per_task * cores)
    assert 1 <= shared_task(per_task, most, cores) <= per_task
