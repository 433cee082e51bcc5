"""The changelog of a view: a compacted topic that mirrors the online store, written by fenced writers.

A record's key is BUILD/FIELD/ENTITY, its value the text that the store holds, its header `batch` the number of the
batch; a deleted row is a tombstone whose headers are `batch` and `index`. Compaction keeps the last record of a key,
not the one of the newest batch, so an old writer that wakes up must not be able to append at all:

- A build has a few writers; an entity has always the same one. Each is a `transactional.id`, so a new run's writer
  fences the old run's, and its open transaction is aborted.
- That alone is not enough: the old run may open its writer anew too, and so fence the new one. Therefore each
  transaction also commits the writer's mark, batch + 1 as an offset of the group `scope` at the partition of the
  writer's number, and a writer reads it back after it has been opened. A mark beyond the batch refuses an old run;
  the mark of the batch itself says that it is written already, so that a repeated batch has one effect.

The mark is sent before the rows: whether a writer was fenced is known before the first row is taken. A mark that
nobody moved for `offsets.retention.minutes` (a week by default) is forgotten by the brokers; the next batch sets it.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka import Producer as Client

from leftfold.errors import LogError
from leftfold.settings import Kafka

# Writers of a build, fewer if the topic has fewer partitions. The number belongs to the build, as its topic's
# partitions do: an entity that changed its writer would leave its old one's mark behind.
WRITERS = 4
# A transaction lasts as long as one writer's rows of one batch: some millions of rows at tens of thousands a second.
# Readers wait for it, but not for a dead one: whoever opens the writer next aborts it at once.
_TRANSACTION_S = 180
# Opening a writer waits for its last transaction to end; sending the mark and the commit wait for elections.
_ANSWER_S = 60.0
# What a person must know is an error of ours. librdkafka tells of a fenced writer at any log level, so it is given a
# logger that says nothing; being fenced is how writers change hands.
_SILENT = logging.Logger("leftfold.changelog")
_SILENT.addHandler(logging.NullHandler())
_QUIET: dict[str, Any] = {"log_level": 0, "error_cb": lambda _: None, "logger": _SILENT}
SETTINGS: dict[str, Any] = {
    "acks": "all",
    "enable.idempotence": True,
    "partitioner": "murmur2_random",  # Java's: one partition per key, whoever writes it
    "compression.type": "lz4",
    "transaction.timeout.ms": _TRANSACTION_S * 1_000,
    "delivery.timeout.ms": 60_000,  # below the transaction's, as it must be: a row fails before its transaction does
    # The brokers ask to come again while the last transaction's end is still on its way to the partitions.
    "retry.backoff.ms": 20,
    **_QUIET,
}
_NO_MARK = 0

Row = tuple[str, str, str]  # entity, field, value
Headers = list[tuple[str, str | bytes | None]]


@dataclass(frozen=True)
class Changelog:
    """Where a build's rows are logged. Travels to executors."""

    kafka: Kafka
    topic: str  # as the cluster names it
    scope: str  # names the namespace, the view and the build
    build: str
    writers: int = WRITERS


class StaleWriterError(Exception):
    """Another run has written later batches: this one is over, and wrote nothing."""

    def __init__(self, found: int, batch: int) -> None:
        super().__init__(found, batch)  # these arguments, so that it can be pickled
        self.found = found  # the newest batch that the writer has written, whoever ran it
        self.batch = batch

    def __str__(self) -> str:
        return f"the changelog holds batch {self.found}, and {self.batch} was to be written"


def writer_of(entity: str, writers: int) -> int:
    """Spark SQL says the same with pmod(crc32(entity), writers)."""
    return zlib.crc32(entity.encode()) % writers


def record(build: str, batch: int, row: Row) -> tuple[bytes, bytes | None, Headers]:
    """Key, value and headers of a row's record. A value that holds an index and a batch only is a deletion."""
    entity, field, value = row
    key = f"{build}/{field}/{entity}".encode()
    headers: Headers = [("batch", str(batch))]
    if value.count(",") == 1:  # "[index,batch]"; every partial would bring another comma
        return key, None, [*headers, ("index", value[1 : value.index(",")])]
    return key, value.encode(), headers


def write(changelog: Changelog, writer: int, batch: int, rows: Iterable[Row], *, repair: bool = False) -> int:
    """Write one writer's rows of a batch in one transaction; returns how many records, 0 if they are there already.

    Without rows nothing happens, and the mark stays. A repair writes a batch again that is there already. Raises
    StaleWriterError if another run has gone on, and a retriable LogError if the same call may work later.
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
        except BaseException:  # the rows' own failures too: no row may be seen without the others
            opened.discard()
            raise
    _kept[changelog, writer] = opened
    return sent


def marks(changelog: Changelog) -> dict[int, int]:
    """The last batch of each writer, -1 if it has none. Opens every writer: from here on an older run is fenced."""
    found = {}
    for writer in range(changelog.writers):
        if (old := _kept.pop((changelog, writer), None)) is not None:
            old.discard()
        with _explained(changelog, None):
            opened = _kept[changelog, writer] = _Writer(changelog, writer)
        found[writer] = opened.mark - 1
    return found


def close() -> None:
    """Close the writers that this process keeps open."""
    while _kept:
        _kept.popitem()[1].discard()


class _Writer:
    """One opened writer: its client, and its mark as this process knows it."""

    def __init__(self, changelog: Changelog, writer: int) -> None:
        self.place = changelog, writer
        self._changelog = changelog
        identity = {"transactional.id": f"{changelog.scope}/{writer}"}
        self._client = Client({**changelog.kafka.for_librdkafka(), **SETTINGS, **identity})
        try:
            self._client.init_transactions(_ANSWER_S)
            self.mark, self._group = self._stored()
        except BaseException:
            self.discard()
            raise

    def _stored(self) -> tuple[int, Any]:
        """The mark, and the group as a transaction wants it. Read-committed: never a mark that may yet be aborted."""
        group = {"group.id": self._changelog.scope, "isolation.level": "read_committed", "enable.auto.commit": False}
        reader = Consumer({**self._changelog.kafka.for_librdkafka(), **group, **_QUIET})
        try:
            found = reader.committed([self._mark_at()], timeout=_ANSWER_S)[0]
            if found.error is not None:
                raise KafkaException(found.error)
            return max(found.offset, _NO_MARK), reader.consumer_group_metadata()
        finally:
            reader.close()

    def _mark_at(self, offset: int = 0) -> TopicPartition:
        return TopicPartition(self._changelog.topic, self.place[1], offset)

    def has(self, batch: int) -> bool:
        """Whether the batch is written already; a batch of the past is refused."""
        if self.mark > batch + 1:
            self.discard()
            raise StaleWriterError(self.mark - 1, batch)
        return self.mark == batch + 1

    def begin(self, batch: int) -> None:
        """Open a transaction. Its mark goes first: the brokers refuse it if this writer has been fenced."""
        try:
            self._client.begin_transaction()
            self._client.send_offsets_to_transaction([self._mark_at(batch + 1)], self._group, _ANSWER_S)
        except KafkaException:
            self.discard()
            raise

    def send(self, batch: int, rows: Iterator[Row]) -> int:
        """Write the rows, and commit them with the mark."""
        produce, topic, build, sent = self._client.produce, self._changelog.topic, self._changelog.build, 0
        for row in rows:
            key, value, headers = record(build, batch, row)
            while True:
                try:
                    produce(topic, value, key, headers=headers)
                    break
                except BufferError:  # rows leave the buffer, delivered or failed, within delivery.timeout.ms
                    self._client.poll(0.1)
            sent += 1
        self._client.commit_transaction(_ANSWER_S)
        self.mark = batch + 1
        return sent

    def discard(self) -> None:
        """Abort what is open, and never use this client again: after a failure librdkafka promises little of it."""
        with suppress(KafkaException):
            self._client.abort_transaction(_ANSWER_S)
        self._client.purge()
        del self._client


# By changelog and writer: a Python worker of Spark serves many batches. One that is at work is not in here, so that
# a writer that failed is not met again.
_kept: dict[tuple[Changelog, int], _Writer] = {}


def _begun(changelog: Changelog, writer: int, batch: int, *, repair: bool) -> _Writer | None:
    """The writer with its transaction open; None if the batch is there already."""
    kept = _kept.pop((changelog, writer), None)
    if kept is not None:
        with suppress(KafkaException):  # fenced, most likely: another process wrote the last batch
            return _begin(kept, batch, repair=repair)
    return _begin(_Writer(changelog, writer), batch, repair=repair)


def _begin(opened: _Writer, batch: int, *, repair: bool) -> _Writer | None:
    if opened.has(batch) and not repair:
        _kept[opened.place] = opened
        return None
    opened.begin(batch)
    return opened


@contextmanager
def _explained(changelog: Changelog, batch: int | None) -> Iterator[None]:
    try:
        yield
    except KafkaException as error:
        what = "its writers could not be opened" if batch is None else f"batch {batch} was not written"
        raise LogError(
            "changelog-not-written",
            f"{changelog.topic}: {what}",
            why=error.args[0].str(),
            state="the transaction is aborted: nobody sees any of its records",
            fix="run it again, which continues where it stopped; leftfold status shows the brokers",
            retriable=True,
        ) from error
