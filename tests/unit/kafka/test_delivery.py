"""Which delivery reports prove that a record is not in the log."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError

from leftfold.kafka.delivery import Undelivered, outcome_of


def message(partition: int | None = 0, key: bytes | None = b"u1") -> Any:
    return SimpleNamespace(partition=lambda: partition, key=lambda: key)


@pytest.mark.parametrize(
    "code",
    [
        KafkaError._MSG_TIMED_OUT,
        KafkaError._TIMED_OUT,
        KafkaError._TRANSPORT,
        KafkaError._PURGE_INFLIGHT,
        KafkaError._PURGE_QUEUE,  # a retry waits in the queue, too
        KafkaError._FATAL,
        KafkaError._UNKNOWN_TOPIC,  # deleted since
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.NOT_ENOUGH_REPLICAS,  # a retry may be refused that was written before
        KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER,
        KafkaError.UNKNOWN_PRODUCER_ID,
        KafkaError.UNKNOWN,
    ],
)
def test_what_may_have_been_written_is_unknown(code: int) -> None:
    assert outcome_of(KafkaError(code), message()) == "unknown"
    assert outcome_of(KafkaError(code), message(partition=None)) == "failed", "without a partition it never left"


@pytest.mark.parametrize(
    "code",
    [
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.INVALID_RECORD,
        KafkaError.INVALID_TIMESTAMP,
        KafkaError.POLICY_VIOLATION,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
    ],
)
def test_what_was_refused_before_it_was_written_failed(code: int) -> None:
    assert outcome_of(KafkaError(code), message()) == "failed"


def test_a_million_take_the_room_of_a_few() -> None:
    undelivered = Undelivered()
    for number in range(10_000):
        undelivered.report(KafkaError(KafkaError._MSG_TIMED_OUT), message(key=b"k%d" % number))
    undelivered.report(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE), message(key=None))
    assert (len(undelivered), undelivered.failed.records, undelivered.unknown.records) == (10_001, 1, 10_000)
    assert undelivered.unknown.keys == ["k0", "k1", "k2", "k3", "k4"]
    assert str(undelivered.unknown).endswith("'k4' …")
    assert str(undelivered.failed) == "''"
