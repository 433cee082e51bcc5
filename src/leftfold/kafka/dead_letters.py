"""Dead letters of a consumer: records that its handler could not handle, kept with everything that they had.

A dead letter lies in NAME.dead under the position of its record, so the newest one of a position counts. A re-drive
appends the record to NAME.again, which the same group reads, and then removes the dead letter. It never goes to the
source topic: there every other reader would get it a second time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, TopicPartition
from confluent_kafka import Producer as Client

from leftfold import clock
from leftfold.errors import DeliveryError, LogError
from leftfold.kafka.admin import TIMEOUT_S, Admin
from leftfold.kafka.failures import Heard, quiet, refused, unreachable
from leftfold.kafka.log_reader import Scanned, headers_of, scan
from leftfold.kafka.producer import LARGEST_MESSAGE, SETTINGS, produce
from leftfold.kafka.transactions import Outgoing
from leftfold.settings import Kafka

# Our headers begin with this. All others are the record's own, and stay as they were.
_OURS = "leftfold."
_LONGEST_REASON = 1_000
_AT_ONCE = 1_000
_ROUNDS = 10  # of a re-drive of parked keys: each takes what was parked during the one before
_FLUSH_S = 150.0  # longer than delivery.timeout.ms, so no record stays open

Headers = list[tuple[str, bytes | None]]

REJECTED, PARKED = "rejected", "parked"
# On the record that removes a dead letter, if its record was appended to NAME.again before.
_REDRIVEN: Headers = [(f"{_OURS}redriven", b"1")]


class RecordPlace(NamedTuple):
    """The position of a record: its topic in the cluster, partition and offset."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}/{self.offset}"

    @classmethod
    def parse(cls, text: str | bytes | None) -> RecordPlace | None:
        """Return the position that a text names, as `str` writes it; None if it names none."""
        text = text.decode(errors="replace") if isinstance(text, bytes) else text or ""
        topic, _, rest = text.partition("/")
        partition, _, offset = rest.partition("/")
        if not topic or not partition.isdecimal() or not offset.isdecimal():
            return None
        return cls(topic, int(partition), int(offset))


@dataclass(frozen=True)
class DeadLetter:
    """A record that was given up. `attempts` counts all calls of the handler, over all re-drives."""

    place: RecordPlace
    outcome: str  # "rejected": no event of the topic; "failed": the handler failed; "parked": one of its key failed
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
    place = RecordPlace.parse(ours.get("position"))
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
                fix="leftfold apply creates the topic; leftfold topics shows whether the brokers take records",
                retriable=True,
            )

    def flush(self, seconds: float) -> None:
        self._client.flush(seconds)
        self.look()


class DeadLetters:
    """The dead letters of one consumer, for people: list them, re-drive them, drop them. Made by `App.dead`."""

    def __init__(
        self, consumer: str, dead: str, again: str, kafka: Kafka, admin: Admin, *, parks: bool = False
    ) -> None:
        self._consumer = consumer
        self._dead = dead
        self._again = again
        self._kafka = kafka
        self._admin = admin
        self._parks = parks

    def letters(self, most: int | None = None) -> list[DeadLetter]:
        """Return the open dead letters, ordered by position.

        With `most`, only the first records of their topic are read. A letter that is removed later counts as open then.
        """
        newest: dict[RecordPlace, DeadLetter | None] = {}
        for place, record in islice(self._scan(self._dead), most):
            newest[place] = None if _is_gone(record.value, record.headers) else DeadLetter.of(place, record)
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
        chosen = self._with_keys(letters)
        self._redrive(chosen)
        done, keys = {letter.place for letter in chosen}, {letter.key for letter in chosen}
        for _ in range(_ROUNDS if self._parks else 0):
            # Records of these keys that arrived meanwhile were parked, too.
            parked = [letter for letter in self.letters() if letter.outcome == PARKED and letter.key in keys]
            more = [letter for letter in parked if letter.place not in done]
            if not more:
                break
            self._redrive(more)
            done.update(letter.place for letter in more)
        return len(done)

    def _redrive(self, letters: list[DeadLetter]) -> None:
        there = {(place, record.headers.get(f"{_OURS}letter")) for place, record in self._scan(self._again)}
        new = [letter for letter in letters if (letter.place, str(letter.offset).encode()) not in there]
        self._send(
            self._again, [Outgoing(self._again, letter.key, letter.value, _again_headers(letter)) for letter in new]
        )
        self._send(self._dead, [self._removal(letter, _REDRIVEN) for letter in letters])

    def _with_keys(self, letters: Iterable[DeadLetter]) -> list[DeadLetter]:
        """Return letters with all others of their keys, if keys are parked: a key comes back as a whole, in order."""
        chosen = {letter.place: letter for letter in letters}
        if self._parks:
            keys = {letter.key for letter in chosen.values() if letter.outcome != REJECTED}
            chosen |= {one.place: one for one in self.letters() if one.key in keys and one.outcome != REJECTED}
        return [chosen[place] for place in sorted(chosen)]

    def drop(self, letters: Iterable[DeadLetter]) -> int:
        """Remove dead letters for ever, and return their number. Durable when this returns."""
        removed = [self._removal(letter, []) for letter in letters]
        self._send(self._dead, removed)
        return len(removed)

    def _removal(self, letter: DeadLetter, headers: Headers) -> Outgoing:
        return Outgoing(self._dead, str(letter.place).encode(), None, headers)

    def _send(self, topic: str, records: list[Outgoing]) -> None:
        failures: list[KafkaError] = []

        def told(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                failures.append(error)

        settings = {**SETTINGS, "message.max.bytes": LARGEST_MESSAGE}
        client = Client({**self._kafka.for_librdkafka(), **settings, **quiet(Heard(self._kafka))})
        for record in records:
            produce(client, record.topic, record.value, record.key, headers=record.headers, on_delivery=told)
        left = client.flush(_FLUSH_S)
        if failures or left:
            raise (refused(self._kafka, failures[0], topic=topic) if failures else None) or DeliveryError(
                "not-redriven",
                f"{len(failures) + left:,} of {len(records):,} records to {topic} were not acknowledged",
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
                why=f"Leftfold keeps the dead letters of {self._consumer} in topics of its own, which apply creates",
                fix="leftfold apply",
            )
        for record in scan(self._kafka, topic, range(partitions)):
            place = first_place_of(record) if topic == self._again else RecordPlace.parse(record.key)
            if place is not None:  # else Leftfold did not write it
                yield place, record


def _is_gone(value: bytes | None, headers: Mapping[str, bytes | None]) -> bool:
    """Return whether a record removes a dead letter. A dead letter itself may have no value, and has an outcome."""
    return value is None and f"{_OURS}outcome" not in headers


def first_place_of(record: Scanned) -> RecordPlace | None:
    """Return the first place of a record in NAME.again; None if Leftfold did not write it."""
    return RecordPlace.parse(record.headers.get(f"{_OURS}position"))


class FollowedLetters:
    """The places of open dead letters by key, kept up to date by calls of `look`. One thread owns it.

    Letters of records that are no events are left out.
    """

    def __init__(self, kafka: Kafka, topic: str) -> None:
        self.open: dict[bytes, set[RecordPlace]] = {}
        self.redriven: deque[tuple[bytes, RecordPlace]] = deque()  # removed since they were last taken from here
        self._kafka = kafka
        self._keys: dict[RecordPlace, bytes] = {}
        self._place = TopicPartition(topic, 0, OFFSET_BEGINNING)
        self._next = 0
        self._consumer = Consumer(
            {
                **kafka.for_librdkafka(),
                "group.id": kafka.reading_group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,  # the last offsets may hold no record
                **quiet(Heard(kafka)),
            }
        )
        self._consumer.assign([self._place])

    def add(self, key: bytes, place: RecordPlace) -> None:
        """Note a dead letter that this process writes: it is read back later."""
        self.open.setdefault(key, set()).add(place)
        self._keys[place] = key

    def look(self, timeout: float = 0.0) -> None:
        """Take what has arrived."""
        for message in self._consumer.consume(_AT_ONCE, timeout=timeout):
            error = message.error()
            if error is None:
                self._take(message)
            if error is None or error.code() == KafkaError._PARTITION_EOF:
                self._next = max(self._next, (message.offset() or 0) + (error is None))

    def _take(self, message: Message) -> None:
        headers = dict(headers_of(message))
        place = RecordPlace.parse(message.key())
        if place is None:
            return
        if _is_gone(message.value(), headers):
            if (key := self._keys.pop(place, None)) is not None:
                self._remove(key, place)
                if f"{_OURS}redriven" in headers:
                    self.redriven.append((key, place))
        elif headers.get(f"{_OURS}outcome") != REJECTED.encode() and (key := headers.get(f"{_OURS}key")) is not None:
            self.add(key, place)

    def _remove(self, key: bytes, place: RecordPlace) -> None:
        places = self.open.get(key, set())
        places.discard(place)
        if not places:
            self.open.pop(key, None)

    def catch_up(self) -> None:
        """Read all that the topic holds now."""
        _, end = self._consumer.get_watermark_offsets(self._place, timeout=TIMEOUT_S)
        deadline = clock.monotonic() + TIMEOUT_S
        while self._next < end:
            if clock.monotonic() > deadline:
                raise unreachable(self._kafka.bootstrap, f"{self._place.topic} could not be read to its end")
            self.look(0.1)

    def close(self) -> None:
        self._consumer.close()


def _again_headers(letter: DeadLetter) -> Headers:
    ours = {
        "position": str(letter.place),
        "letter": str(letter.offset),
        "attempts": str(letter.attempts),
        "log_time": str(letter.log_us),
        "stamped": "broker" if letter.by_broker else "producer",
    }
    return [*letter.headers, *((_OURS + name, text.encode()) for name, text in ours.items())]
