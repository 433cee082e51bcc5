"""The records that a topic's intake did not accept: reads them, and re-drives them once they are good.

A re-drive never goes to the source topic: there the record would be late, and every reader would get it twice. It is
appended to the topic's redrive topic, under the position of the record that it stands for. The batch paths read both
the log and the redrive topic.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, Message
from confluent_kafka import Producer as Client
from pydantic import ValidationError

from leftfold.declare.topic import Topic
from leftfold.errors import DeclarationError, DeliveryError, LogError
from leftfold.fold.values import entity_text
from leftfold.kafka.admin import Admin
from leftfold.kafka.decode import partly_decoded, schema_id_of
from leftfold.kafka.delivery import Undelivered
from leftfold.kafka.encode import MISFITS
from leftfold.kafka.failures import refused
from leftfold.kafka.judge import Keyed, RecordJudge
from leftfold.kafka.log_reader import Scanned, scan
from leftfold.kafka.producer import LARGEST_MESSAGE, SETTINGS, encoder_of, produce
from leftfold.kafka.registry import SchemaRegistry
from leftfold.settings import Kafka

_POSITION = re.compile(r"(\d{1,9})/(\d{1,18})")
_FLUSH_S = 150.0  # longer than delivery.timeout.ms, so no record stays open


class RecordPosition(NamedTuple):
    """The position of a record in the source topic."""

    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.partition}/{self.offset}"

    @classmethod
    def parse(cls, text: str) -> RecordPosition | None:
        match = _POSITION.fullmatch(text)
        return cls(int(match[1]), int(match[2])) if match else None


@dataclass(frozen=True)
class RejectTopics:
    """The names of a topic and its companion topics in the cluster."""

    source: str
    rejects: str
    late: str
    redrive: str


@dataclass(frozen=True)
class Refused:
    """A record that was not accepted, as the intake stored it."""

    position: RecordPosition
    outcome: str
    reason: str
    log_us: int
    by_broker: bool
    key: bytes | None
    value: bytes | None

    @classmethod
    def of(cls, position: RecordPosition, record: Scanned) -> Refused:
        headers = record.headers
        return cls(
            position=position,
            outcome=headers["outcome"].decode(),
            reason=headers["reason"].decode(),
            log_us=int(headers["log_time"]),
            by_broker=headers["stamped"] == b"broker",
            key=headers.get("key"),
            value=record.value,
        )


@dataclass(frozen=True)
class Entry:
    """One line of a list of refused records. It leaves out the record's bytes, because the list may be long."""

    position: RecordPosition
    outcome: str
    reason: str
    log_us: int
    redriven: bool


@dataclass
class Redriven:
    """The result of a re-drive: the positions that were sent, were already re-driven, or were refused."""

    sent: list[RecordPosition] = field(default_factory=list)
    already: list[RecordPosition] = field(default_factory=list)
    refused: list[tuple[RecordPosition, str]] = field(default_factory=list)


Judge = Callable[[Refused], "tuple[bytes | None, bytes] | str"]  # key and value to send, or the reason why not


class Rejects:
    """The refused records of one topic. Made by `App.rejects`."""

    def __init__(
        self,
        topic: Topic[Any],
        names: RejectTopics,
        kafka: Kafka,
        admin: Admin,
        registry: SchemaRegistry,
        keyed: Keyed = (),
    ) -> None:
        self._topic = topic
        self._names = names
        self._kafka = kafka
        self._admin = admin
        self._registry = registry
        self._keyed = keyed
        self.schema = cache(registry.schema)

    def entries(self, *, late: bool = False) -> list[Entry]:
        """Return all late records, or all other refused records, ordered by position."""
        if late and self._topic.compacted:
            return []  # records of a compacted topic are never late
        again = self._positions_redriven()
        names: dict[str, str] = {}  # shares one text among all records with the same reason
        by_position = {
            r.position: Entry(
                r.position, r.outcome, names.setdefault(r.reason, r.reason), r.log_us, r.position in again
            )
            for r in self._refused(self._names.late if late else self._names.rejects)
        }
        return [by_position[position] for position in sorted(by_position)]

    def find(self, position: RecordPosition) -> tuple[Refused, bool]:
        """Return everything that is known about one record, and whether it was re-driven."""
        (record,) = self._refused_at([position]).values()
        return record, position in self._positions_redriven()

    def decoded(self, value: bytes) -> dict[str, Any] | str:
        """Decode as much of the bytes as possible: the fields, or else text."""
        schema_id = schema_id_of(value) if self._topic.format == "avro" else None
        if schema_id is not None and (writer := self.schema(schema_id)) is not None:
            return partly_decoded(value, writer)
        return value.decode(errors="backslashreplace")

    def redrive(self, positions: Collection[RecordPosition] | None = None) -> Redriven:
        """Send those original records again that are accepted by now. None as `positions` means all records.

        Records that would still be refused are not sent.
        """
        self._refuse_compacted()
        judge = RecordJudge(self._topic, self.schema, self._keyed)

        def original(record: Refused) -> tuple[bytes | None, bytes] | str:
            _, verdict = judge.record(record.key, record.value, log_us=record.log_us, by_broker=record.by_broker)
            if verdict is not None:
                return verdict.reason
            assert record.value is not None, "without a value nothing is accepted"
            return record.key, record.value

        records = self._everything() if positions is None else iter(self._refused_at(positions).values())
        return self._append(records, original)

    def correct(self, events: Mapping[RecordPosition, str]) -> Redriven:
        """Send corrected events, given as JSON.

        Each event takes the place of the record at its position, and keeps that record's log time.
        """
        self._refuse_compacted()
        encode = encoder_of(self._topic, self._names.source, self._registry)
        judge = RecordJudge(self._topic, self.schema, self._keyed)

        def corrected(record: Refused) -> tuple[bytes | None, bytes] | str:
            try:
                event = self._topic.event.model_validate_json(events[record.position])
            except ValidationError as error:
                first = error.errors(include_url=False)[0]
                return f"{'.'.join(str(part) for part in first['loc']) or 'the event'}: {first['msg']}"
            fields = event.micros()
            verdict = judge.fields(fields, log_us=record.log_us, by_broker=record.by_broker)
            if verdict is not None:
                return verdict.reason
            try:
                return entity_text([fields[k.name] for k in self._topic.key]).encode(), encode(event.__dict__)
            except MISFITS as misfit:  # a number of more than 64 bits
                return str(misfit)

        return self._append(iter(self._refused_at(events).values()), corrected)

    # Reading ---------------------------------------------------------------------------------------------------------

    def _everything(self) -> Iterator[Refused]:
        """Yield each refused record once: a batch that ran again has written the same record twice."""
        seen: set[RecordPosition] = set()
        for topic in (self._names.rejects, self._names.late):
            for record in self._refused(topic):
                if record.position not in seen:
                    seen.add(record.position)
                    yield record

    def _refused_at(self, positions: Collection[RecordPosition]) -> dict[RecordPosition, Refused]:
        topics = (self._names.rejects,) if self._topic.compacted else (self._names.rejects, self._names.late)
        records = {r.position: r for t in topics for r in self._refused(t) if r.position in positions}
        if missing := sorted(set(positions) - records.keys()):
            raise LogError(
                "unknown-position",
                f"no record of {self._topic.name} was refused at {missing[0]}",
                why=f"neither {' nor '.join(topics)} has it: it was accepted, its retention is over, or the intake "
                "has not come to it",
                fix=f"leftfold rejects list {self._topic.name}",
            )
        return {position: records[position] for position in sorted(records)}

    def _refused(self, topic: str) -> Iterator[Refused]:
        for position, record in self._scan(topic):
            yield Refused.of(position, record)

    def _positions_redriven(self) -> set[RecordPosition]:
        return set() if self._topic.compacted else {position for position, _ in self._scan(self._names.redrive)}

    def _scan(self, topic: str) -> Iterator[tuple[RecordPosition, Scanned]]:
        partitions = self._admin.partitions([topic]).get(topic)
        if partitions is None:
            raise LogError(
                "companion-missing",
                f"topic {topic} does not exist",
                why=f"Leftfold keeps late and rejected records of {self._topic.name} in topics of its own, which apply "
                "creates",
                fix="leftfold apply",
                source=self._topic.source,
            )
        for record in scan(self._kafka, topic, range(partitions)):
            position = RecordPosition.parse((record.key or b"").decode(errors="replace"))
            if position is not None:  # else Leftfold did not write it
                yield position, record

    # Writing ---------------------------------------------------------------------------------------------------------

    def _append(self, records: Iterable[Refused], judge: Judge) -> Redriven:
        done, again, undelivered = Redriven(), self._positions_redriven(), Undelivered()
        refusals: list[LogError] = []
        state = "those that were acknowledged are re-driven; a second attempt leaves them out"

        def on_delivery(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                undelivered.report(error, message)
                if (refusal := refused(self._kafka, error, topic=self._names.redrive, state=state)) is not None:
                    refusals.append(refusal)

        settings = {**self._kafka.for_librdkafka(), **SETTINGS, "message.max.bytes": LARGEST_MESSAGE}
        client = Client({**settings, "on_delivery": on_delivery})
        for record in records:
            if record.position in again:
                done.already.append(record.position)
                continue
            judgement = judge(record)
            if isinstance(judgement, str):
                done.refused.append((record.position, judgement))
                continue
            self._produce(client, record, *judgement)
            done.sent.append(record.position)
        remaining = client.flush(_FLUSH_S)
        if refusals:
            raise refusals[0]
        if lost := len(undelivered) + remaining:
            failed = undelivered.failed
            raise DeliveryError(
                "not-redriven",
                f"{lost:,} of {len(done.sent):,} records to {self._names.redrive} were not acknowledged",
                why=failed.reason
                or undelivered.unknown.reason
                or "the brokers are slow or fewer than min.insync.replicas are in sync",
                state=f"{failed.records:,} are not in it, {lost - failed.records:,} may be; "
                "a second attempt leaves out what is, and a position that is there twice counts once",
                fix="correct the cause and run the same command again",
                retriable=True,
                details={
                    "acknowledged": len(done.sent) - lost,
                    "failed": failed.records,
                    "unknown": lost - failed.records,
                },
            )
        return done

    def _produce(self, client: Client, record: Refused, key: bytes | None, value: bytes) -> None:
        position = str(record.position).encode()
        headers: list[tuple[str, bytes]] = [("position", position), ("log_time", str(record.log_us).encode())]
        if key is not None:
            headers.append(("key", key))
        produce(client, self._names.redrive, value, position, headers=headers)
        client.poll(0)

    def _refuse_compacted(self) -> None:
        if self._topic.compacted:
            raise DeclarationError(
                "redrive-compacted",
                f"topic {self._topic.name} is compacted; Leftfold redrives nothing to it",
                why="a key's newest record is all that counts, so a correction is simply the next record",
                fix=f"send a good record of the same key: leftfold send {self._topic.name} FILE",
                source=self._topic.source,
            )
