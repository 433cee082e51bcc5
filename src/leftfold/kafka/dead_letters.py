"""Dead letters of a consumer: records that its handler could not handle, kept with everything that they had.

A dead letter lies in NAME.dead under the position of its record, so the newest one of a position counts. A re-drive
appends the record to NAME.again, which the same group reads, and then removes the dead letter. It never goes to the
source topic: there every other reader would get it a second time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, Message
from confluent_kafka import Producer as Client

from leftfold.errors import DeliveryError, LogError
from leftfold.kafka.admin import Admin
from leftfold.kafka.failures import Heard, quiet, refused
from leftfold.kafka.log_reader import Scanned, headers_of, scan
from leftfold.kafka.producer import LARGEST_MESSAGE, SETTINGS, produce
from leftfold.settings import Kafka

# Our headers begin with this. All others are the record's own, and stay as they were.
_OURS = "leftfold."
_LONGEST_REASON = 1_000
_FLUSH_S = 150.0  # longer than delivery.timeout.ms, so no record stays open

Headers = list[tuple[str, bytes | None]]


class RecordPlace(NamedTuple):
    """The position of a record: its topic in the cluster, partition and offset."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}/{self.offset}"

    @classmethod
    def parse(cls, text: str) -> RecordPlace | None:
        topic, _, rest = text.partition("/")
        partition, _, offset = rest.partition("/")
        if not topic or not partition.isdecimal() or not offset.isdecimal():
            return None
        return cls(topic, int(partition), int(offset))


@dataclass(frozen=True)
class DeadLetter:
    """A record that was given up. `attempts` counts all calls of the handler, over all re-drives."""

    place: RecordPlace
    outcome: str  # "rejected": it is no event of the topic; "failed": the handler failed
    reason: str
    attempts: int
    log_us: int
    by_broker: bool
    key: bytes | None
    value: bytes | None
    headers: Headers
    offset: int = -1  # of the dead letter itself, in its topic
    since_us: int = 0  # when it was written

    def packed(self) -> Headers:
        ours = {
            "outcome": self.outcome,
            "reason": self.reason[:_LONGEST_REASON],
            "attempts": str(self.attempts),
            "log_time": str(self.log_us),
            "stamped": "broker" if self.by_broker else "producer",
        }
        key: Headers = [] if self.key is None else [(f"{_OURS}key", self.key)]
        return [*self.headers, *key, *((_OURS + name, text.encode()) for name, text in ours.items())]

    @classmethod
    def of(cls, place: RecordPlace, record: Scanned) -> DeadLetter:
        ours = {n.removeprefix(_OURS): v for n, v in record.headers.items() if n.startswith(_OURS)}
        return cls(
            place=place,
            outcome=ours["outcome"].decode(),
            reason=ours["reason"].decode(errors="replace"),
            attempts=int(ours["attempts"]),
            log_us=int(ours["log_time"]),
            by_broker=ours["stamped"] == b"broker",
            key=ours.get("key"),
            value=record.value,
            headers=[(n, v) for n, v in record.headers.items() if not n.startswith(_OURS)],
            offset=record.offset,
            since_us=record.log_us,
        )


class FirstPlace(NamedTuple):
    """The first place of a re-driven record in the log, as its headers say it."""

    place: RecordPlace
    attempts: int
    log_us: int
    by_broker: bool
    headers: Headers


def redriven_from(message: Message) -> FirstPlace | None:
    """Return the first place of a re-driven record; None if Leftfold did not write it."""
    headers = headers_of(message)
    ours = {n.removeprefix(_OURS): v or b"" for n, v in headers if n.startswith(_OURS)}
    place = RecordPlace.parse(ours.get("position", b"").decode(errors="replace"))
    if place is None:
        return None
    rest: Headers = [(n, v) for n, v in headers if not n.startswith(_OURS)]
    return FirstPlace(place, int(ours["attempts"]), int(ours["log_time"]), ours["stamped"] == b"broker", rest)


class DeadLetterWriter:
    """Writes the dead letters of a running consumer. One thread owns it.

    `acknowledged` holds the tokens of the letters that all in-sync replicas have.
    """

    def __init__(self, kafka: Kafka, topic: str) -> None:
        self.acknowledged: deque[Any] = deque()
        self._kafka = kafka
        self._topic = topic
        self._failures: list[KafkaError] = []
        ours = {"delivery.report.only.error": False, "message.max.bytes": LARGEST_MESSAGE, "linger.ms": 5}
        self._client = Client({**kafka.for_librdkafka(), **SETTINGS, **ours, **quiet(Heard(kafka))})

    def write(self, letter: DeadLetter, token: Any) -> None:
        def told(error: KafkaError | None, _: Message) -> None:
            if error is None:
                self.acknowledged.append(token)
            else:
                self._failures.append(error)

        place, headers = str(letter.place).encode(), letter.packed()
        produce(self._client, self._topic, letter.value, place, headers=headers, on_delivery=told)

    def look(self) -> None:
        """Take the answers that have come. Raises if a letter was refused: its record must not be passed over."""
        self._client.poll(0)
        if self._failures:
            raise refused(self._kafka, self._failures[0], topic=self._topic) or LogError(
                "dead-letter-not-written",
                f"a dead letter was not acknowledged by {self._topic}",
                why=self._failures[0].str(),
                state="its record is not settled: the next start handles it again",
                fix="leftfold apply --yes creates the topic; leftfold topics shows whether the brokers take records",
                retriable=True,
            )

    def flush(self, seconds: float) -> None:
        self._client.flush(seconds)
        self.look()


class DeadLetters:
    """The dead letters of one consumer, for people: list them, re-drive them, drop them. Made by `App.dead`."""

    def __init__(self, consumer: str, dead: str, again: str, kafka: Kafka, admin: Admin) -> None:
        self._consumer = consumer
        self._dead = dead
        self._again = again
        self._kafka = kafka
        self._admin = admin

    def letters(self, most: int | None = None) -> list[DeadLetter]:
        """Return the open dead letters, ordered by position.

        With `most`, only the first records of their topic are read. A letter that is removed later counts as open then.
        """
        newest: dict[RecordPlace, DeadLetter | None] = {}
        for place, record in islice(self._scan(self._dead), most):
            gone = record.value is None and not record.headers
            newest[place] = None if gone else DeadLetter.of(place, record)
        return [letter for _, letter in sorted(newest.items()) if letter is not None]

    def find(self, places: Iterable[RecordPlace]) -> list[DeadLetter]:
        """Return the open dead letters of these positions, in their order. Raises if one is not there."""
        by_place = {letter.place: letter for letter in self.letters()}
        wanted = list(dict.fromkeys(places))
        for place in wanted:
            if place not in by_place:
                raise LogError(
                    "unknown-position",
                    f"{self._consumer} has no dead letter of {place}",
                    why=f"{self._dead} does not hold it: it was re-driven or dropped, or its retention is over",
                    fix=f"leftfold dead list {self._consumer}",
                )
        return [by_place[place] for place in wanted]

    def redrive(self, letters: Iterable[DeadLetter]) -> int:
        """Hand records to the consumer again, and return their number. Durable when this returns.

        A record that an earlier redrive appended, and did not remove from the dead letters, is not appended again.
        """
        there = {(place, record.headers.get(f"{_OURS}letter")) for place, record in self._scan(self._again)}
        letters = list(letters)
        new = [letter for letter in letters if (letter.place, str(letter.offset).encode()) not in there]
        self._send(self._again, new, _again_headers, lambda letter: letter.key)
        self.drop(letters)
        return len(letters)

    def drop(self, letters: Iterable[DeadLetter]) -> int:
        """Remove dead letters for ever, and return their number. Durable when this returns."""
        removed = list(letters)
        self._send(self._dead, removed, None, lambda letter: str(letter.place).encode())
        return len(removed)

    def _send(
        self,
        topic: str,
        letters: list[DeadLetter],
        headers: Callable[[DeadLetter], Headers] | None,
        key: Callable[[DeadLetter], bytes | None],
    ) -> None:
        failures: list[KafkaError] = []

        def told(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                failures.append(error)

        settings = {**SETTINGS, "message.max.bytes": LARGEST_MESSAGE}
        client = Client({**self._kafka.for_librdkafka(), **settings, **quiet(Heard(self._kafka))})
        for letter in letters:
            value, own = (letter.value, headers(letter)) if headers else (None, [])
            produce(client, topic, value, key(letter), headers=own, on_delivery=told)
        left = client.flush(_FLUSH_S)
        if failures or left:
            raise (refused(self._kafka, failures[0], topic=topic) if failures else None) or DeliveryError(
                "not-redriven",
                f"{len(failures) + left:,} of {len(letters):,} records to {topic} were not acknowledged",
                why=failures[0].str() if failures else "the brokers are slow, or too few replicas are in sync",
                state="those that were acknowledged are done; a second attempt leaves them out",
                fix="correct the cause and run the same command again",
                retriable=True,
            )

    def _scan(self, topic: str) -> Iterator[tuple[RecordPlace, Scanned]]:
        partitions = self._admin.partitions([topic]).get(topic)
        if partitions is None:
            raise LogError(
                "companion-missing",
                f"topic {topic} does not exist",
                why=f"the dead letters of {self._consumer} are kept in topics of its own, which apply makes",
                fix="leftfold apply --yes",
            )
        for record in scan(self._kafka, topic, range(partitions)):
            text = record.headers.get(f"{_OURS}position") if topic == self._again else record.key
            place = RecordPlace.parse((text or b"").decode(errors="replace"))
            if place is not None:  # else Leftfold did not write it
                yield place, record


def _again_headers(letter: DeadLetter) -> Headers:
    ours = {
        "position": str(letter.place),
        "letter": str(letter.offset),
        "attempts": str(letter.attempts),
        "log_time": str(letter.log_us),
        "stamped": "broker" if letter.by_broker else "producer",
    }
    return [*letter.headers, *((_OURS + name, text.encode()) for name, text in ours.items())]
