"""What the producer says of records under way. The client is real; nobody listens where it sends."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

import leftfold as lf
from leftfold import clock
from leftfold.errors import DeclarationError, DeliveryError
from leftfold.kafka import producer as module
from leftfold.kafka.producer import Producer
from leftfold.settings import Kafka

DEAD = "127.0.0.1:1"  # port 1 is never listened on


class Tap(lf.Event):
    who: str
    at: datetime


RECORD = {"who": "ada", "at": datetime(2026, 1, 5, tzinfo=UTC)}


@pytest.fixture
def producer(monkeypatch: pytest.MonkeyPatch) -> Producer:
    monkeypatch.setitem(module.SETTINGS, "delivery.timeout.ms", 1_000)
    return made()


def made() -> Producer:
    registry: Any = SimpleNamespace(id_of=lambda subject, schema: 1)
    topic = lf.Topic("taps", Tap, key=Tap.who, time=Tap.at)
    return Producer(topic, "taps", Kafka(bootstrap=DEAD), registry)


def timed_out(producer: Producer, key: bytes) -> None:
    """As if it had been given to a partition and no answer had come."""
    producer.sent += 1
    message: Any = SimpleNamespace(partition=lambda: 0, key=lambda: key)
    producer._undelivered.report(KafkaError(KafkaError._MSG_TIMED_OUT), message)


def test_what_never_left_failed(producer: Producer) -> None:
    told: list[str] = []
    producer.send_dict(RECORD, on_failure=told.append)
    with pytest.raises(DeliveryError) as raised, producer:
        producer.send_dict(RECORD)
    assert raised.value.code == "not-delivered"
    assert told == ["failed"]
    assert {k: raised.value.details[k] for k in ("acknowledged", "failed", "unknown", "under_way")} == {
        "acknowledged": 0,
        "failed": 2,
        "unknown": 0,
        "under_way": 0,
    }
    assert raised.value.details["failed_keys"] == ["ada", "ada"]
    assert pickle.loads(pickle.dumps(raised.value)).details == raised.value.details


def test_a_time_out_is_unknown_and_is_not_to_be_sent_again_unseen(producer: Producer) -> None:
    timed_out(producer, b"x0")
    with pytest.raises(DeliveryError) as raised:
        producer.flush()
    assert raised.value.code == "delivery-unknown"
    assert "may be in the log" in raised.value.state
    assert "'x0'" in raised.value.state
    assert "twice" in raised.value.fix
    assert "leftfold replay taps --from " in raised.value.fix
    producer.flush()  # said once


class BrokenClient:
    """A client that heard that it may not write: librdkafka's Python client raises that once, from any call."""

    def __init__(self) -> None:
        denied = KafkaError(KafkaError.CLUSTER_AUTHORIZATION_FAILED, "no producer id: not authorized", fatal=True)
        self._news = [KafkaException(denied)]

    def poll(self, _: float) -> int:
        if self._news:
            raise self._news.pop()
        return 0

    flush = poll

    def purge(self) -> None:
        """Nothing is under way."""

    def __len__(self) -> int:
        return 0


def broken(producer: Producer) -> None:
    client: Any = BrokenClient()
    producer._client = client


def test_a_client_that_may_not_write_is_told_as_denied(producer: Producer) -> None:
    told: list[str] = []
    broken(producer)
    with pytest.raises(DeliveryError) as raised, producer:
        producer.send_dict(RECORD, on_failure=told.append)
    error = raised.value
    assert (error.code, error.why, told) == ("kafka-denied", "no producer id: not authorized", ["failed"])
    assert (error.details["failed"], error.details["acknowledged"]) == (1, 0)
    assert error.fix.endswith("then send again what failed")


def test_a_client_that_breaks_while_it_is_awaited_tells_of_the_records(producer: Producer) -> None:
    broken(producer)
    producer.flush()  # nothing was under way
    timed_out(producer, b"x0")
    with pytest.raises(DeliveryError) as raised:
        producer.flush()
    assert raised.value.code == "delivery-unknown"
    assert raised.value.why.startswith("no producer id: not authorized: they were given up")


def test_both_are_told_apart_in_one_error(producer: Producer) -> None:
    timed_out(producer, b"x0")
    with pytest.raises(DeliveryError) as raised, producer:
        producer.send_dict(RECORD)
    assert raised.value.code == "delivery-unknown"
    assert "1 failed and are not in the log, of the keys 'ada'" in raised.value.state
    assert "1 are unknown and may be in the log, of the keys 'x0'" in raised.value.state


def test_an_error_in_the_block_does_not_hide_what_became_of_the_records(producer: Producer) -> None:
    producer.send_dict(RECORD)
    with pytest.raises(DeliveryError) as raised, producer:
        raise ValueError("of the caller")
    assert raised.value.code == "not-delivered"
    assert isinstance(raised.value.__cause__, ValueError)


def test_an_error_in_the_block_stays_what_it_is_if_all_is_acknowledged(producer: Producer) -> None:
    with pytest.raises(ValueError, match="of the caller") as raised, producer:
        raise ValueError("of the caller")
    assert raised.value.__notes__ == ["of 0 records to taps: 0 are acknowledged"]


def test_what_was_under_way_when_an_error_was_raised_is_said_at_the_end(producer: Producer) -> None:
    producer.send_dict(RECORD)
    timed_out(producer, b"x0")
    with pytest.raises(DeliveryError) as raised, producer:
        producer.flush(0)
    assert raised.value.details["under_way"] == 0
    assert (raised.value.details["failed"], raised.value.details["unknown"]) == (1, 1)
    first = raised.value.__cause__
    assert isinstance(first, DeliveryError)
    assert first.details["under_way"] >= 1


def test_an_interrupt_ends_soon_and_says_what_is_open() -> None:
    patient = made()
    patient.send_dict(RECORD)
    timed_out(patient, b"x0")
    started = clock.monotonic()
    with pytest.raises(KeyboardInterrupt) as raised, patient:
        raise KeyboardInterrupt
    assert clock.monotonic() - started < 30
    (note,) = raised.value.__notes__
    assert note.startswith("of 2 records to taps: 0 are acknowledged; 1 failed")
    assert "may be in the log" in note


def test_a_record_that_the_client_does_not_take_failed(producer: Producer) -> None:
    told: list[str] = []
    with pytest.raises(DeliveryError) as raised:
        producer.send_encoded(b"ada", b"x" * 2_000_000, on_failure=told.append)
    assert raised.value.code == "not-delivered"
    assert "size too large" in raised.value.why
    assert told == ["failed"]


def test_what_raises_did_not_send_the_record_at_hand(producer: Producer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_POLL_EVERY", 1)
    timed_out(producer, b"x0")
    before = producer.sent
    with pytest.raises(DeliveryError):
        producer.send_dict(RECORD)
    assert producer.sent == before


def test_a_record_that_does_not_fit_claims_nothing_of_those_before_it(producer: Producer) -> None:
    with pytest.raises(DeclarationError) as raised:
        producer.send_dict({"who": "ada", "at": "noon"})
    assert raised.value.state == "it was not sent, nor was any before it"
    producer.send_dict(RECORD)
    with pytest.raises(DeclarationError) as raised:
        producer.send_dict({"who": "ada", "at": "noon"})
    assert raised.value.state.startswith("it was not sent; flush, or the end of the block, says")
