"""Writes records and the positions of a group in one Kafka transaction.

A client that met any error is thrown away. librdkafka has no transactions of version 2 (KIP-890), so an answer that
comes late could end the next transaction of the same client. A new client with the same transactional id aborts what
the old one left open, or waits until its commit has ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from confluent_kafka import KafkaException
from confluent_kafka import Producer as Client

from leftfold import clock
from leftfold.kafka.failures import Heard, quiet, refused
from leftfold.kafka.group import LogPartition, Position, places_of
from leftfold.kafka.producer import LARGEST_MESSAGE, SETTINGS, produce
from leftfold.settings import Kafka

TRANSACTION_S = 10  # readers wait at most so long for the transaction of a process that died
_ANSWER_S = 20.0
_COMMIT_S = 60.0  # a coordinator that died has a successor by then
_ABORT_S = 2.0
_SETTINGS: dict[str, Any] = {
    **SETTINGS,
    "transaction.timeout.ms": TRANSACTION_S * 1_000,
    "delivery.timeout.ms": (TRANSACTION_S - 2) * 1_000,  # a record fails before its transaction
    # Brokers ask for a retry while the end of the last transaction is still on its way to the partitions.
    "retry.backoff.ms": 20,
    "linger.ms": 5,
    "message.max.bytes": LARGEST_MESSAGE,
}


class Outgoing(NamedTuple):
    """A record to be written."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


class Transactions:
    """The transactions of one process of a consumer, one after the other. One thread owns it."""

    def __init__(self, kafka: Kafka, transactional_id: str) -> None:
        self.failure: str | None = None  # why the last transaction was not committed
        self._kafka = kafka
        self._id = transactional_id
        self._client: Client | None = None

    def commit(self, records: Iterable[Outgoing], positions: Mapping[LogPartition, Position], group: Any) -> bool:
        """Write records and positions in one transaction. `group` is the group's metadata.

        Returns False if it was aborted, or if its outcome is unknown. Then the positions of the group tell.
        """
        try:
            client = self._open()
            client.begin_transaction()
            for record in records:
                produce(client, record.topic, record.value, record.key, headers=record.headers)
            client.send_offsets_to_transaction(places_of(positions), group, _ANSWER_S)
            self._commit(client)
        except KafkaException as error:
            self.close()
            if (refusal := refused(self._kafka, error.args[0], group=self._id)) is not None:
                raise refusal from error
            self.failure = error.args[0].str()
            return False
        self.failure = None
        return True

    @staticmethod
    def _commit(client: Client) -> None:
        """Commit. A call without an answer in time is made again: it waits for the same commit, also of another broker.

        To give up instead would be to abort what may be committed, and to wait for its end anyway.
        """
        deadline = clock.monotonic() + _COMMIT_S
        while True:
            try:
                client.commit_transaction(_ANSWER_S)
                return
            except KafkaException as error:
                if not error.args[0].retriable() or clock.monotonic() > deadline:
                    raise

    def settle(self) -> None:
        """Wait until no transaction of this process is open or about to end."""
        try:
            self._open()
        except KafkaException as error:
            self.close()
            self.failure = error.args[0].str()

    def _open(self) -> Client:
        if self._client is None:
            identity = {"transactional.id": self._id}
            client = Client({**self._kafka.for_librdkafka(), **_SETTINGS, **identity, **quiet(Heard(self._kafka))})
            client.init_transactions(_ANSWER_S)
            self._client = client
        return self._client

    def close(self) -> None:
        """Give up the client. A transaction that is open is aborted, by this or by the next client of the same id."""
        client, self._client = self._client, None
        if client is not None:
            with suppress(KafkaException):
                client.purge()
                client.abort_transaction(_ABORT_S)
