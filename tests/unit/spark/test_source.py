"""The options by which Spark bounds a batch of a stream, and its tasks."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

import leftfold as lf
from leftfold.settings import Kafka
from leftfold.spark.source import Source, batch_options


class Click(lf.Event):
    user_id: str
    at: datetime


SOURCE = Source(("clicks",), (24,), Kafka(bootstrap="b:1"), Click, frozenset({"user_id"}), "avro", {})


def test_without_a_rate_each_partition_is_one_task() -> None:
    assert batch_options(SOURCE, 131) == {"maxOffsetsPerTrigger": "1200000"}
    assert batch_options(replace(SOURCE, most_offsets=10), 131) == {"maxOffsetsPerTrigger": "240"}


def test_a_rate_that_needs_no_larger_batch_changes_nothing() -> None:
    assert batch_options(replace(SOURCE, rate=20_000.0), 131) == batch_options(SOURCE, 131)


def test_a_large_rate_makes_larger_batches_of_smaller_tasks() -> None:
    busy = replace(SOURCE, rate=600_000.0)
    assert batch_options(busy, 131) == {"maxOffsetsPerTrigger": "2400000", "maxRecordsPerPartition": "18321"}
    assert batch_options(busy, 8) == {"maxOffsetsPerTrigger": "1600000", "maxRecordsPerPartition": "50000"}
    assert batch_options(busy, 2) == batch_options(SOURCE, 2)


def test_a_stream_with_an_interval_takes_in_one_batch_what_arrives_in_it() -> None:
    """Spark begins no batch before its time, however much is behind: 1,200,000 in 30 s are 40,000 records/s."""
    busy = replace(SOURCE, rate=600_000.0)
    assert batch_options(busy, 131, every_s=30)["maxOffsetsPerTrigger"] == str(30 * 2 * 600_000)
    assert batch_options(SOURCE, 131, every_s=30)["maxOffsetsPerTrigger"] == str(30 * 131 * 50_000)
    laptop = replace(SOURCE, partitions=(6,))
    assert batch_options(laptop, 2, every_s=10) == {
        "maxOffsetsPerTrigger": str(10 * 2 * 50_000),
        "maxRecordsPerPartition": "50000",
    }
    limited = replace(busy, most_offsets=1_000)
    assert batch_options(limited, 131, every_s=30) == {"maxOffsetsPerTrigger": "24000"}


def test_long_records_make_smaller_batches() -> None:
    assert batch_options(replace(SOURCE, record_bytes=100_000), 131) == {"maxOffsetsPerTrigger": str(24 * 671)}


def test_with_care_no_rate_counts() -> None:
    careful = {"maxOffsetsPerTrigger": "75000", "maxRecordsPerPartition": "3125"}
    assert batch_options(replace(SOURCE, careful=True), 131) == careful
    assert batch_options(replace(SOURCE, careful=True, rate=600_000.0), 131) == careful
