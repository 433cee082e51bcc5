"""The changelog of a view: a compacted topic that mirrors the online store, written by fenced writers.

A record's key is BUILD/FIELD/ENTITY. Its value is the text that the store holds. Its header `batch` is the number of
the batch. A deleted row is a tombstone with the headers `batch` and `index`. Compaction keeps the last record of a key,
not the record of the newest batch. So an old writer that wakes up must not be able to append at all:

- A build has a few writers. The same entity always has the same writer. Each writer is a `transactional.id`, so the
  writer of a new run fences the writer of the old run, and the old run's open transaction is aborted.
- Fencing alone is not enough: the old run may open its writer again too, and so fence the new run. Therefore each
  transaction also commits the writer's mark. The mark is batch + 1, stored as an offset of the group `scope`; its
  partition is the writer's number. A writer reads the mark after it has been opened. A mark beyond the batch refuses an
  old run. The mark of the batch itself says that the batch is already written, so that a repeated batch has one effect.

The mark is sent before the rows: so the writer learns whether it was fenced before it takes the first row. Brokers
forget a mark that did not move for `offsets.retention.minutes` (a week by default). The next batch sets it again.
"""

from __future__ import annotations

import logging
import time
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka import Producer as Client

from leftfold import clock
from leftfold.errors import LogError
from leftfold.kafka.admin import MOVING
from leftfold.kafka.failures import Heard, refused
from leftfold.settings import Kafka

# Writers of a build, fewer if the topic has fewer partitions. The number is fixed for a build, like the partitions of
# its topic: an entity that changed its writer would leave a mark behind at its old writer.
WRITERS = 4
# A transaction lasts as long as one writer's rows of one batch: some millions of rows at tens of thousands a second.
# Readers wait for a running transaction. They do not wait for a dead one: the next process that opens the writer aborts
# it at once.
_TRANSACTION_S = 180
# Opening a writer waits for its last transaction to end. Sending the mark and committing wait for elections.
_ANSWER_S = 60.0
# A writer that is given up has little time to abort: the next process that opens it aborts the transaction at once.
_ABORT_S = 5.0
# What a user must know is reported as an error of ours. librdkafka logs a fenced writer at any log level, so it gets a
# logger that writes nothing. Fencing is the normal way in which a writer moves to another process.
_SILENT = logging.Logger("leftfold.changelog")
_SILENT.addHandler(logging.NullHandler())
_QUIET: dict[str, Any] = {"log_level": 0, "logger": _SILENT}
SETTINGS: dict[str, Any] = {
    "acks": "all",
    "enable.idempotence": True,
    "partitioner": "murmur2_random",  # Java's: one partition per key, whoever writes it
    "compression.type": "lz4",
    "transaction.timeout.ms": _TRANSACTION_S * 1_000,
    "delivery.timeout.ms": 60_000,  # must be below the transaction's: a row fails before its transaction
    # Brokers ask for a retry while the end of the last transaction is still on its way to the partitions.
    "retry.backoff.ms": 20,
    **_QUIET,
}
_NO_MARK = 0

Row = tuple[str, str, str]  # entity, field, value
Headers = list[tuple[str, str | bytes | None]]


@dataclass(frozen=True)
class ChangelogTopic:
    """The topic and the scope where a build's rows are logged. Spark sends it to executors."""

    kafka: Kafka
    topic: str  # its name in the cluster
    scope: str  # names the namespace, the view and the build
    build: str
    writers: int = WRITERS


class StaleWriterError(Exception):
    """Another run has written later batches: this run is over, and wrote nothing."""

    def __init__(self, newest: int, batch: int) -> None:
        super().__init__(newest, batch)  # the constructor's arguments, so that it can be pickled
        self.found = newest  # the newest batch that this writer has written, in any run
        self.batch = batch

    def __str__(self) -> str:
        return f"the changelog holds batch {self.found}, and {self.batch} was to be written"


def writer_of(entity: str, writers: int) -> int:
    """Return the number of an entity's writer. In Spark SQL it is pmod(crc32(entity), writers)."""
    return zlib.crc32(entity.encode()) % writers


def record(build: str, batch: int, row: Row) -> tuple[bytes, bytes | None, Headers]:
    """Return key, value and headers of a row's record.

    A row's value that holds only an index and a batch is a deletion: its record is a tombstone.
    """
    entity, field, value = row
    key = f"{build}/{field}/{entity}".encode()
    headers: Headers = [("batch", str(batch))]
    if value.count(",") == 1:  # "[index,batch]"; each partial would add a comma
        return key, None, [*headers, ("index", value[1 : value.index(",")])]
    return key, value.encode(), headers


def write(changelog: ChangelogTopic, writer: int, batch: int, rows: Iterable[Row], *, repair: bool = False) -> int:
    """Write one writer's rows of a batch in one transaction, and return the number of records written.

    Returns 0 if the batch is already written. Without rows nothing happens, and the mark stays. A repair writes a batch
    again that is already written. Raises StaleWriterError if another run has written later batches, and a retriable
    LogError if the same call may succeed later.
    """
    waiting = iter(rows)
    first = next(waiting, None)
    if first is None:
        return 0
    with _explained(changelog, batch):
        opened = _begun(changelog, writer, batch, repair=repair)
        if opened is None:
            return 0
        try:
            sent = opened.send(batch, chain([first], waiting))
        except BaseException:  # also failures of `rows`: no row may be visible without the others
            opened.discard()
            raise
    _kept[changelog, writer] = opened
    return sent


def marks(changelog: ChangelogTopic) -> dict[int, int]:
    """Return the last batch of each writer, -1 if it has none.

    It opens every writer: from then on an older run is fenced.
    """
    batches = {}
    for writer in range(changelog.writers):
        if (old := _kept.pop((changelog, writer), None)) is not None:
            old.discard()
        with _explained(changelog, None):
            opened = _kept[changelog, writer] = _Writer(changelog, writer)
        batches[writer] = opened.mark - 1
    return batches


def close() -> None:
    """Close the writers that this process keeps open."""
    while _kept:
        _kept.popitem()[1].discard()


class _Heard(Heard):
    """A `Heard` that also remembers whether a connection to a broker broke."""

    lost = False

    def __call__(self, error: KafkaError) -> None:
        super().__call__(error)
        self.lost = self.lost or error.code() in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN)


class _Writer:
    """One opened writer: its client, and its mark as this process knows it."""

    def __init__(self, changelog: ChangelogTopic, writer: int) -> None:
        self.place = changelog, writer
        self._changelog = changelog
        self._heard = heard = _Heard(changelog.kafka)
        identity = {"transactional.id": f"{changelog.scope}/{writer}", "error_cb": heard}
        self._client = Client({**changelog.kafka.for_librdkafka(), **SETTINGS, **identity})
        try:
            self._client.init_transactions(_ANSWER_S)
            self.mark, self._group = self._stored(heard)
        except KafkaException as error:
            with suppress(KafkaException):  # a fatal error: `error` already reports it
                self._client.poll(0)  # calls `heard` with the errors that arrived meanwhile
            self.discard()
            raise KafkaException(heard.instead_of(error.args[0])) from error
        except BaseException:
            self.discard()
            raise
        heard.lost = False  # connections may have broken before, but the brokers have answered now

    def _stored(self, heard: Heard) -> tuple[int, Any]:
        """Return the stored mark, and the group's metadata in the form that a transaction needs.

        It reads only committed marks, never a mark that may still be aborted.
        """
        group = {"group.id": self._changelog.scope, "isolation.level": "read_committed", "enable.auto.commit": False}
        reader = Consumer({**self._changelog.kafka.for_librdkafka(), **group, **_QUIET, "error_cb": heard})
        try:
            return max(self._committed(reader), _NO_MARK), reader.consumer_group_metadata()
        finally:
            reader.close()

    def _committed(self, reader: Consumer) -> int:
        """Return the group's committed offset. While its coordinator moves, or loads, ask again."""
        deadline = clock.monotonic() + _ANSWER_S
        while True:
            try:
                answer = reader.committed([self._mark_at()], timeout=_ANSWER_S)[0]
                if answer.error is not None:
                    raise KafkaException(answer.error)
                return int(answer.offset)
            except KafkaException as error:
                if error.args[0].code() not in MOVING or clock.monotonic() > deadline:
                    raise
                time.sleep(0.1)  # no event says when it has moved

    def _mark_at(self, offset: int = 0) -> TopicPartition:
        return TopicPartition(self._changelog.topic, self.place[1], offset)

    def has(self, batch: int) -> bool:
        """Return whether the batch is already written. Raises StaleWriterError if a later batch is written."""
        if self.mark > batch + 1:
            self.discard()
            raise StaleWriterError(self.mark - 1, batch)
        return self.mark == batch + 1

    def has_lost_brokers(self) -> bool:
        """Return whether all brokers were away at once since this writer was opened.

        librdkafka does not report a single broker that is away. After an outage of all brokers, such a client was seen
        to wait in `send_offsets_to_transaction` for two to three minutes, beyond the timeout that it was given. A new
        client continued within seconds.
        """
        self._client.poll(0)
        return self._heard.lost

    def begin(self, batch: int) -> None:
        """Open a transaction and send its mark first: the brokers refuse the mark if this writer has been fenced."""
        try:
            self._client.begin_transaction()
            self._client.send_offsets_to_transaction([self._mark_at(batch + 1)], self._group, _ANSWER_S)
        except KafkaException:
            self.discard()
            raise

    def send(self, batch: int, rows: Iterator[Row]) -> int:
        """Write the rows, and commit them together with the mark."""
        produce, topic, build, sent = self._client.produce, self._changelog.topic, self._changelog.build, 0
        for row in rows:
            key, value, headers = record(build, batch, row)
            while True:
                try:
                    produce(topic, value, key, headers=headers)
                    break
                except BufferError:  # rows leave it, delivered or failed, within delivery.timeout.ms
                    self._client.poll(0.1)
            sent += 1
        self._client.commit_transaction(_ANSWER_S)
        self.mark = batch + 1
        return sent

    def discard(self) -> None:
        """Abort the open transaction, and give up this client.

        The client is never used again, because librdkafka promises little about a client after a failure.
        """
        with suppress(KafkaException):
            self._client.abort_transaction(_ABORT_S)
        self._client.purge()
        del self._client


# Open writers by changelog and number: a Python worker of Spark serves many batches. A writer that is at work is not in
# here, so that a writer that failed is not used again.
_kept: dict[tuple[ChangelogTopic, int], _Writer] = {}


def _begun(changelog: ChangelogTopic, writer: int, batch: int, *, repair: bool) -> _Writer | None:
    """Return the writer with its transaction open; None if the batch is already written."""
    cached = _kept.pop((changelog, writer), None)
    if cached is not None:
        with suppress(KafkaException):  # most likely fenced: another process wrote the last batch
            if not cached.has_lost_brokers():
                return _begin(cached, batch, repair=repair)
            cached.discard()
    return _begin(_Writer(changelog, writer), batch, repair=repair)


def _begin(opened: _Writer, batch: int, *, repair: bool) -> _Writer | None:
    if opened.has(batch) and not repair:
        _kept[opened.place] = opened
        return None
    opened.begin(batch)
    return opened


@contextmanager
def _explained(changelog: ChangelogTopic, batch: int | None) -> Iterator[None]:
    try:
        yield
    except KafkaException as error:
        what = "its writers could not be opened" if batch is None else f"batch {batch} was not acknowledged"
        raise refused(changelog.kafka, error.args[0], topic=changelog.topic, group=changelog.scope) or LogError(
            "changelog-not-written",
            f"{changelog.topic}: {what}",
            why=error.args[0].str(),
            state="its transaction is aborted, or committed as a whole with its mark: no row of it is seen twice",
            fix="run it again, which continues where it stopped; leftfold status shows the brokers",
            retriable=True,
        ) from error
