from __future__ import annotations

import pytest

from leftfold.adopt.options import options_of, seen_lines
from tests import clusters


def options(**configs: str):  # type: ignore[no-untyped-def]
    return options_of(clusters.seen_topic("orders", 6, 2, {k.replace("_", "."): v for k, v in configs.items()}))


def test_as_found() -> None:
    found = options(cleanup_policy="delete", retention_ms="3600000", message_timestamp_type="LogAppendTime")
    assert (found.partitions, found.replication, found.compacted) == (6, 2, False)
    assert (found.retention, found.retention_note, found.log_time, found.log_time_note) == ("1h", "", "broker", "")


@pytest.mark.parametrize(("kept", "text"), [("604800000", "7d"), ("1500", "1500ms"), ("0", "1ms"), ("-1", "36500d")])
def test_retention(kept: str, text: str) -> None:
    assert options(retention_ms=kept).retention == text


def test_retention_that_is_not_all() -> None:
    assert options(retention_ms="-1").retention_note == "retention.ms=-1 is for ever, said as a hundred years"
    assert "retention.bytes=5 of a partition may end it sooner" in options(retention_bytes="5").retention_note
    assert "; retention.bytes=5" in options(retention_ms="-1", retention_bytes="5").retention_note


def test_compaction() -> None:
    found = options(cleanup_policy="compact", message_timestamp_type="CreateTime")
    assert (found.compacted, found.compacted_note, found.retention) == (True, "", None)
    assert found.log_time_note == "message.timestamp.type=CreateTime"  # nothing is late in a table
    assert "deleted by age" in options(cleanup_policy="compact,delete").compacted_note


def test_producers_time() -> None:
    found = options(message_timestamp_type="CreateTime")
    assert found.log_time == "producer"
    assert "a producer's clock decides what is late" in found.log_time_note


def test_what_was_seen() -> None:
    topic = clusters.seen_topic("orders", 1, 1, {"cleanup.policy": "delete", "other": "x"}, records=7)
    assert seen_lines(topic) == ("1 partition, 1 replica, 7 offsets", "cleanup.policy=delete")
