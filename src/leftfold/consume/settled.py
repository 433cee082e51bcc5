"""Which records of a partition are settled: handled, skipped, or acknowledged as dead letters.

Records are handled at the same time and so settle out of order. The position that is committed is the lowest offset
that is not settled. What is settled beyond it is written into the metadata of the commit, so that the next owner of the
partition does not hand it over again.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

VERSION = 1
# Brokers refuse metadata of more than 4,096 bytes (offset.metadata.max.bytes). The rest is for the topic's id and JSON.
_MOST_TEXT = 3_800
_MOST_BYTES = _MOST_TEXT * 3 // 4 - 10  # before they are written as base64
_MOST_RANGES = _MOST_BYTES // 2


@dataclass(frozen=True)
class Committed:
    """A position as it was committed: the next offset, the id of its topic, and what is settled beyond the offset."""

    offset: int
    topic_id: str | None = None
    beyond: tuple[range, ...] = ()


class Settled:
    """The state of one partition during one assignment to this process.

    Results of an earlier assignment of the same partition belong to another object, which is no longer `owned`.
    """

    def __init__(self, topic: str, topic_id: str, partition: int, start: Committed) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.partition = partition
        self.owned = True
        self.committed = start.offset  # the offset of the last commit that the broker answered
        self.booked = start.offset  # the position in the consumer's database, if it has one
        self.redelivered = 0  # records that came again and were settled before
        self._beyond = list(start.beyond)
        self._open: dict[int, int] = {}  # log times (µs) of records that are not settled, in the order of offsets
        self.next = start.offset  # the offset after the last record that was taken

    def take(self, offset: int, log_us: int) -> bool:
        """Note a record that was fetched. Returns False if it is settled already, so must not be handed over."""
        self.next = offset + 1
        if self._beyond:
            while self._beyond and self._beyond[0].stop <= offset:
                del self._beyond[0]
            if self._beyond and offset in self._beyond[0]:
                self.redelivered += 1
                return False
        self._open[offset] = log_us
        return True

    def settle(self, offset: int) -> None:
        del self._open[offset]

    def is_open(self, offset: int) -> bool:
        return offset in self._open

    def reach(self, offset: int) -> None:
        """Note that the log holds no record before `offset`: transaction markers and compaction leave such gaps."""
        self.next = max(self.next, offset)

    @property
    def low(self) -> int:
        """The lowest offset that is not settled: the position to commit."""
        return next(iter(self._open), self.next)

    @property
    def in_flight(self) -> int:
        return len(self._open)

    @property
    def oldest_us(self) -> int | None:
        """The log time of the oldest record that is not settled; None if there is none."""
        return next(iter(self._open.values()), None)

    def position(self) -> Committed:
        return Committed(self.low, self.topic_id, tuple(islice(self._settled_beyond(), _MOST_RANGES)))

    def _settled_beyond(self) -> Iterator[range]:
        """Yield the ranges of settled offsets above the lowest open one."""
        offsets = iter(self._open)
        last = next(offsets, self.next)
        for offset in offsets:
            if offset > last + 1:
                yield range(last + 1, offset)
            last = offset
        if last + 1 < self.next:
            yield range(last + 1, self.next)
        # What an earlier owner settled, and what was not fetched again yet.
        yield from (range(max(r.start, self.next), r.stop) for r in self._beyond if r.stop > self.next)


def encoded(position: Committed, token: str = "") -> str:
    """Return the metadata of a commit. If there are too many ranges, the farthest are left out: they come again.

    By a token, a member recognizes its own commit.
    """
    numbers = bytearray()
    at = position.offset
    for settled in position.beyond:
        pair = _varint(settled.start - at) + _varint(len(settled))
        if len(numbers) + len(pair) > _MOST_BYTES:
            break
        numbers += pair
        at = settled.stop
    text = base64.b64encode(bytes(numbers)).decode()
    document = {"v": VERSION, "o": position.offset, "t": position.topic_id, "s": text}
    if token:
        document["m"] = token
    return json.dumps(document, separators=(",", ":"))


def decoded(offset: int, metadata: str | None) -> Committed:
    """Return a committed position. Metadata that is not ours, or of another offset, says nothing."""
    try:
        document = json.loads(metadata or "")
        if document["v"] != VERSION or document["o"] != offset:
            return Committed(offset)
        return Committed(offset, document["t"], tuple(_ranges(offset, base64.b64decode(document["s"], validate=True))))
    except (ValueError, KeyError, TypeError, IndexError, binascii.Error):
        return Committed(offset)


def _ranges(at: int, numbers: bytes) -> Iterator[range]:
    place = 0
    while place < len(numbers):
        gap, place = _read_varint(numbers, place)
        length, place = _read_varint(numbers, place)
        yield range(at + gap, at + gap + length)
        at += gap + length


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def _read_varint(numbers: bytes, place: int) -> tuple[int, int]:
    number, shift = 0, 0
    while numbers[place] & 0x80:
        number |= (numbers[place] & 0x7F) << shift
        place, shift = place + 1, shift + 7
    return number | numbers[place] << shift, place + 1
