"""The partitions of a topic merged by log time, as far as it is known what comes next. Connects to nothing."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import cast

from confluent_kafka import Message

# Of a transaction. A commit costs some tens of milliseconds, and readers wait for it.
SLICE = 5_000
_SLICE_BYTES = 16 * 1_024 * 1_024


@dataclass
class Lane:
    """A partition of the source: what waits to be merged, and how far it has been copied."""

    partition: int
    position: int  # the next offset to copy
    end: int | None  # None: it has none
    waiting: deque[tuple[int, Message]] = field(default_factory=deque)  # with their log times
    bytes: int = 0  # of what waits
    fetched: int = -1  # the next offset to fetch
    at_end: bool = False  # nothing more is there at the moment

    def __post_init__(self) -> None:
        self.fetched = max(self.fetched, self.position)

    @property
    def done(self) -> bool:
        return self.end is not None and self.position >= self.end

    @property
    def ready(self) -> bool:
        """Whether it is known what its next record is."""
        return self.done or self.at_end or bool(self.waiting)

    def take(self) -> Message:
        _, message = self.waiting.popleft()
        self.bytes -= len(message)
        self.position = cast(int, message.offset()) + 1
        self._finish()
        return message

    def add(self, log_us: int, message: Message) -> None:
        offset = cast(int, message.offset())
        if offset < self.fetched:
            return  # it was on its way when fetching ended, and came again when it went on
        self.fetched = offset + 1
        self.at_end = self.end is not None and offset >= self.end
        if self.at_end:
            self._finish()
        else:
            self.waiting.append((log_us, message))
            self.bytes += len(message)

    def reach(self, offset: int) -> None:
        """Nothing lies between what was fetched and this offset, where the log ends for now."""
        if offset >= self.fetched:  # else it is the end of what was fetched before
            self.fetched = offset
            self.at_end = True
            self._finish()

    def _finish(self) -> None:
        """Offsets without a record may lie before the end."""
        if self.end is not None and not self.waiting and self.at_end and self.fetched >= self.end:
            self.position = self.end


def merged(lanes: Mapping[int, Lane], most: int) -> Iterator[Message]:
    """The oldest records of all lanes by log time, until one is empty of which it is not known what comes next.

    In each lane in its own order, whatever its log times are.
    """
    if not all(lane.ready for lane in lanes.values()):
        return
    heads = [(lane.waiting[0][0], number) for number, lane in lanes.items() if lane.waiting]
    heapq.heapify(heads)
    while heads and most:
        lane = lanes[heads[0][1]]
        yield lane.take()
        most -= 1
        if lane.waiting:
            heapq.heapreplace(heads, (lane.waiting[0][0], lane.partition))
        else:
            heapq.heappop(heads)
            if not lane.ready:
                return


def next_slice(lanes: Mapping[int, Lane]) -> list[Message]:
    """What one transaction copies."""
    found: list[Message] = []
    size = 0
    for message in merged(lanes, SLICE):
        found.append(message)
        size += len(message)
        if size > _SLICE_BYTES:
            break
    return found


def positions(lanes: Mapping[int, Lane]) -> dict[int, int]:
    return {p: lane.position for p, lane in lanes.items()}
