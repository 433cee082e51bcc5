"""Writes records from any thread, and tells each caller when all in-sync replicas have them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import Producer as Client

from leftfold.kafka.failures import Heard, quiet, refused
from leftfold.kafka.producer import LARGEST_MESSAGE, SETTINGS, produce
from leftfold.kafka.transactions import Outgoing
from leftfold.settings import Kafka

_POLL_S = 0.2
_LAST_S = 10.0


class NotWrittenError(Exception):
    """Records were not acknowledged. They may be in the log or not."""


class Sending:
    """Records on their way. `wait` returns once all are acknowledged.

    It raises a LogError if brokers refuse records for good, and NotWrittenError if they may take them later.
    """

    def __init__(self, records: int, kafka: Kafka) -> None:
        self._kafka = kafka
        self.error: KafkaError | None = None
        self._left = records
        self._lock = threading.Lock()
        self._done = threading.Event()
        if not records:
            self._done.set()

    def told(self, error: KafkaError | None) -> None:
        with self._lock:
            self.error = self.error or error
            self._left -= 1
            if not self._left:
                self._done.set()

    def wait(self, seconds: float) -> None:
        if not self._done.wait(seconds):
            raise NotWrittenError(f"no answer of the brokers for {seconds:g} s")
        if self.error is not None:
            raise refused(self._kafka, self.error) or NotWrittenError(self.error.str())


class LogWriter:
    """A client that any thread may use. A thread of its own takes the answers of the brokers."""

    def __init__(self, kafka: Kafka) -> None:
        self.unwritten = 0  # records that were not acknowledged
        self._kafka = kafka
        ours = {"delivery.report.only.error": False, "message.max.bytes": LARGEST_MESSAGE, "linger.ms": 2}
        self._client = Client({**kafka.for_librdkafka(), **SETTINGS, **ours, **quiet(Heard(kafka))})
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._answers, name="leftfold-log-writer", daemon=True)
        self._thread.start()

    def write(self, records: Sequence[Outgoing], each: Callable[[int, bool], None] | None = None) -> Sending:
        """Hand records to the client; wait while its buffer is full.

        `each` is called with the number of a record in the sequence, and whether it was acknowledged, from any thread.
        """
        written = Sending(len(records), self._kafka)

        def told(error: KafkaError | None, _: Any) -> None:
            self._tell(written, error)

        for number, record in enumerate(records):
            noted = told if each is None else partial(self._note, written, each, number)
            try:
                produce(self._client, record.topic, record.value, record.key, on_delivery=noted)
            except KafkaException as error:
                noted(error.args[0], None)
        return written

    def _note(
        self, written: Sending, each: Callable[[int, bool], None], number: int, error: KafkaError | None, _: Any
    ) -> None:
        each(number, error is None)
        self._tell(written, error)

    def _tell(self, written: Sending, error: KafkaError | None) -> None:
        if error is not None:
            self.unwritten += 1
        written.told(error)

    def _answers(self) -> None:
        while not self._closed.is_set():
            self._client.poll(_POLL_S)

    def close(self, seconds: float = _LAST_S) -> int:
        """Wait for the answers to all records, at most so long. Returns how many are without one."""
        left = self._client.flush(seconds)
        self._closed.set()
        self._thread.join()
        return left
