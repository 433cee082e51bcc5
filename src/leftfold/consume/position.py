"""The position of a consumer's group: shows it beside the log, and sets it while the group has no members."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from leftfold.consume.clients import ConsumerNames, LogClients
from leftfold.consume.settled import Committed, decoded, encoded
from leftfold.errors import LogError
from leftfold.fold.expressions import to_micros
from leftfold.kafka.consumer_log import begun_key, begun_note
from leftfold.kafka.group import LogPartition, Position
from leftfold.kafka.group_offsets import group_offsets, set_group_offsets

if TYPE_CHECKING:
    from leftfold.consume.sql_rows import SqlRows

To = str | datetime | Mapping[int, int]  # "beginning", "now", a moment, or an offset for each partition


@dataclass(frozen=True)
class PartPosition:
    """The position of a group in one partition. `settled_beyond` counts records after it that are handled already."""

    topic: str
    partition: int
    position: int | None
    first: int
    end: int
    settled_beyond: int

    @property
    def lag(self) -> int | None:
        return None if self.position is None else max(0, self.end - self.position)

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "lag": self.lag}


@dataclass(frozen=True)
class Move:
    """The change of a position: records from `before` to `after` are skipped, or handled again if it is negative."""

    topic: str
    partition: int
    before: int | None
    after: int

    @property
    def skipped(self) -> int:
        return 0 if self.before is None else self.after - self.before

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "skipped": self.skipped}


class ConsumerPosition:
    """The position of one consumer: that of its group, or in its database. Made by `App.position`."""

    def __init__(self, consumer: str, names: ConsumerNames, clients: LogClients, rows: SqlRows | None = None) -> None:
        self._rows = rows
        self._consumer = consumer
        self._names = names
        self._clients = clients

    def show(self) -> list[PartPosition]:
        parts, shown = self._parts(), []
        positions = self._positions(parts)
        for part, (first, end) in parts.items():
            at = positions.get(part)
            beyond = sum(map(len, decoded(at.offset, at.metadata).beyond)) if at else 0
            shown.append(PartPosition(*part, None if at is None else at.offset, first, end, beyond))
        return shown

    def _positions(self, parts: Mapping[LogPartition, Any]) -> dict[LogPartition, Position]:
        """Return the positions of those partitions that have one. In a database nothing is settled beyond them."""
        admin = self._clients.admin
        if self._rows is None:
            return group_offsets(self._clients.kafka, self._names.group, parts)
        ids = admin.topic_ids({part.topic for part in parts})
        with self._rows.opened():
            return {part: Position(at, "") for part, at in self._rows.read(parts, ids).items()}

    def moves(self, to: To) -> list[Move]:
        """Return what `set` would change: for each partition of its topics, the position before and after."""
        admin = self._clients.admin
        parts = {part: bounds for part, bounds in self._parts().items() if part.topic != self._names.again}
        positions = self._positions(parts)
        after: dict[LogPartition, int] = {}
        if isinstance(to, datetime):
            for topic in self._names.sources:
                at = admin.offsets_at(topic, admin.partitions_of(topic), to_micros(to))
                ends = {part.partition: end for part, (_, end) in parts.items() if part.topic == topic}
                after |= {LogPartition(topic, p): ends[p] if offset is None else offset for p, offset in at.items()}
        elif isinstance(to, str):
            after = {part: first if to == "beginning" else end for part, (first, end) in parts.items()}
        else:
            after = {part: to[part.partition] for part in parts if part.partition in to}
            self._check_there(after, parts, to)
        before = {part: positions[part].offset if part in positions else None for part in after}
        return [Move(*part, before[part], offset) for part, offset in after.items()]

    def set(self, moves: list[Move]) -> None:
        """Set the positions. Refused while the group has members: each of them would go on from its own."""
        admin = self._clients.admin
        ids = admin.topic_ids({move.topic for move in moves})
        at = {LogPartition(m.topic, m.partition): Committed(m.after, ids[m.topic]) for m in moves}
        positions = {part: Position(c.offset, encoded(c)) for part, c in at.items()}
        set_group_offsets(self._clients.kafka, self._names.group, positions)  # refused if the group has members
        if self._rows is not None:
            with self._rows.opened():
                self._rows.put({(c.topic_id or "", part.partition): c.offset for part, c in at.items()})
        notes = self._clients.notes.notes(self._consumer)
        old = {key for key, note in notes.items() if key.startswith("began/") and note["topic"] in ids}
        counts = admin.partitions(ids)
        new: dict[str, dict[str, Any] | None] = {
            begun_key(ids[m.topic], m.partition): begun_note(m.topic, m.partition, of=counts[m.topic], offset=m.after)
            for m in moves
        }
        stale: dict[str, dict[str, Any] | None] = {key: None for key in old if key.split("/")[1] not in ids.values()}
        self._clients.notes.note(self._consumer, stale | new)

    def _parts(self) -> dict[LogPartition, tuple[int, int]]:
        """Return the first offset and the end of each partition that the group reads."""
        return self._clients.bounds((*self._names.sources, self._names.again))

    def _check_there(
        self, after: Mapping[LogPartition, int], parts: Mapping[LogPartition, tuple[int, int]], to: Mapping[int, int]
    ) -> None:
        for part, offset in after.items():
            first, end = parts[part]
            if not first <= offset <= end:
                raise LogError(
                    "offset-not-there",
                    f"{part.topic}/{part.partition} has no offset {offset:,}",
                    why=f"it holds offsets {first:,} to {end:,}",
                    fix="name an offset between these",
                )
        if unknown := set(to) - {part.partition for part in after}:
            raise LogError(
                "partition-missing",
                f"no topic of {self._consumer} has partition {min(unknown)}",
                why="the partitions of a topic are numbered from 0",
                fix="leftfold position show lists them",
            )
