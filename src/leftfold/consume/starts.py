"""The start of a consumer in a partition that was assigned to it: after the group's position, or where `start` says.

A position that the log does not have, or that brokers have forgotten, is refused: going on from anywhere else would
skip records or handle them again, and nobody would notice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from leftfold.consume.clients import ConsumerNames, LogClients
from leftfold.consume.settled import Committed, Settled, decoded, encoded
from leftfold.declare.consumer import Consumer
from leftfold.errors import LogError
from leftfold.fold.expressions import to_micros
from leftfold.kafka.consumer_log import begun_key, begun_note
from leftfold.kafka.group import LogPartition, Member, Position

if TYPE_CHECKING:
    from leftfold.consume.sql_rows import SqlRows

_PATIENCE_S = 20.0  # for a group's first coordinator


class Starts:
    """Chooses and checks the starts of one consumer."""

    def __init__(
        self, consumer: Consumer[..., Any], names: ConsumerNames, clients: LogClients, rows: SqlRows | None = None
    ) -> None:
        self._consumer = consumer
        self._names = names
        self._clients = clients
        self._rows = rows  # positions in the consumer's database, which then count, and not those of the group
        self._noted: set[str] = set()  # keys of notes that are known to be written

    def choose(self, parts: list[LogPartition], member: Member) -> dict[LogPartition, Settled]:
        """Return the state with which each partition begins."""
        ids = self._clients.admin.topic_ids({part.topic for part in parts})
        starts = self._positions(parts, member, ids)
        bounds = self._clients.bounds({part.topic for part in parts})
        firsts, ends = ({part: pair[i] for part, pair in bounds.items()} for i in (0, 1))
        for part, at in starts.items():
            self._check(part, at, ids[part.topic], firsts[part], ends[part])
        sources = {
            part: begun_key(ids[part.topic], part.partition) for part in parts if part.topic in self._names.sources
        }
        if not self._noted.issuperset(sources.values()):
            notes = self._clients.notes.notes(self._consumer.name)
            for part in sources.keys() - starts.keys():
                self._check_never_read(part, ids[part.topic], notes)
            starts |= self._begin([part for part in parts if part not in starts], member, ids, firsts, ends, notes)
            self._note({key: part for part, key in sources.items() if key not in notes}, starts, ends)
            self._noted.update(sources.values())
        elif new := [part for part in parts if part not in starts]:
            starts |= self._begin(new, member, ids, firsts, ends, {})
        return {part: Settled(part.topic, ids[part.topic], part.partition, at) for part, at in starts.items()}

    def _positions(
        self, parts: list[LogPartition], member: Member, ids: Mapping[str, str]
    ) -> dict[LogPartition, Committed]:
        """Return the positions of those partitions that have one."""
        if self._rows is None:
            return {part: decoded(at.offset, at.metadata) for part, at in member.committed(parts).items()}
        keys = {part: (ids[part.topic], part.partition) for part in parts}
        claimed = self._rows.claim(keys.values())
        return {part: Committed(claimed[key], key[0]) for part, key in keys.items() if key in claimed}

    def _check(self, part: LogPartition, at: Committed, topic_id: str, first: int, end: int) -> None:
        if at.topic_id is not None and at.topic_id != topic_id:
            raise self._recreated(part, at.topic_id, topic_id)
        if at.offset < first:
            raise self._overtaken(part, at.offset, first)
        if at.offset > end:
            raise self._beyond_end(part, at.offset, end)

    def _begin(
        self,
        parts: list[LogPartition],
        member: Member,
        ids: Mapping[str, str],
        firsts: Mapping[LogPartition, int],
        ends: Mapping[LogPartition, int],
        notes: Mapping[str, Mapping[str, Any]],
    ) -> dict[LogPartition, Committed]:
        """Choose and commit the first position of partitions that the group has never read.

        The position is committed before anything is read: with start="now", a death before the first commit would
        otherwise skip what arrived in between.
        """
        added = {part for part in parts if _was_added(part, ids[part.topic], notes)}
        chosen = self._firsts([part for part in parts if part not in added], firsts, ends)
        chosen |= {part: firsts[part] for part in added}
        if self._rows is not None:
            keys = {part: (ids[part.topic], part.partition) for part in chosen}
            begun = self._rows.begin({key: chosen[part] for part, key in keys.items()})
            chosen = {part: begun[key] for part, key in keys.items()}
        starts = {part: Committed(offset, ids[part.topic]) for part, offset in chosen.items()}
        first = {part: Position(at.offset, encoded(at)) for part, at in starts.items()}
        if first and not member.commit(first, patience_s=_PATIENCE_S):
            raise LogError(
                "position-not-committed",
                f"the first position of {self._consumer.name} could not be committed",
                why="the coordinator of its group is away, or has given the partitions to another member",
                state="no record was read",
                fix="start it again",
                retriable=True,
            )
        return starts

    def _note(
        self,
        parts: Mapping[str, LogPartition],
        starts: Mapping[LogPartition, Committed],
        ends: Mapping[LogPartition, int],
    ) -> None:
        """Note that the group has a position in these partitions, by the keys of the notes.

        The note comes after the position: a note without a position means that brokers have forgotten the position. A
        death between the two leaves a position without a note, which the next assignment adds.
        """
        counts = Counter(part.topic for part in ends)
        self._clients.notes.note(
            self._consumer.name,
            {key: begun_note(*part, of=counts[part.topic], offset=starts[part].offset) for key, part in parts.items()},
        )

    def _firsts(
        self, parts: list[LogPartition], firsts: Mapping[LogPartition, int], ends: Mapping[LogPartition, int]
    ) -> dict[LogPartition, int]:
        start = self._consumer.start
        if start == "beginning":
            return {part: firsts[part] for part in parts}
        again = {part: firsts[part] for part in parts if part.topic == self._names.again}
        sources = [part for part in parts if part.topic != self._names.again]
        if start == "now":
            return again | {part: ends[part] for part in sources}
        since = to_micros(start)
        for topic in {part.topic for part in sources}:
            at = self._clients.admin.offsets_at(topic, self._clients.admin.partitions_of(topic), since)
            again |= {part: _or(at[part.partition], ends[part]) for part in sources if part.topic == topic}
        return again

    def _check_never_read(self, part: LogPartition, topic_id: str, notes: Mapping[str, Mapping[str, Any]]) -> None:
        if (note := notes.get(begun_key(topic_id, part.partition))) is not None:
            raise LogError(
                "position-forgotten",
                f"{self._consumer.name} has read {part.topic}/{part.partition}, and its position is gone",
                why=f"it began at offset {note['offset']:,} on {note['at'][:10]}; "
                + (
                    "brokers forget the position of a group that was away for a week"
                    if self._rows is None
                    else "its database has no such row: it is another database, or is older than that"
                ),
                fix=f"choose where it continues: leftfold position set {self._consumer.name} --start TIME",
                source=self._consumer.source,
            )
        for key, note in notes.items():
            if note.get("topic") == part.topic and note.get("partition") == part.partition:
                raise self._recreated(part, key.split("/")[1], topic_id)

    def _recreated(self, part: LogPartition, before: str, now: str) -> LogError:
        return LogError(
            "topic-recreated",
            f"{part.topic} is not the topic that {self._consumer.name} has read",
            why=f"it was deleted and recreated: its id was {before}, and is {now}",
            fix=f"choose where it begins: leftfold position set {self._consumer.name} --start beginning",
            source=self._consumer.source,
        )

    def _overtaken(self, part: LogPartition, offset: int, first: int) -> LogError:
        return LogError(
            "log-overtaken",
            f"{part.topic}/{part.partition} no longer has {first - offset:,} offsets that {self._consumer.name} "
            "has not handled",
            why=f"its position is {offset:,}; retention has deleted what was before {first:,}",
            fix=f"leftfold position set {self._consumer.name} --start beginning goes on with what is left; an archive "
            "holds the rest",
            source=self._consumer.source,
            details={"partition": part.partition, "from": offset, "to": first},
        )

    def _beyond_end(self, part: LogPartition, offset: int, end: int) -> LogError:
        return LogError(
            "position-beyond-log",
            f"{part.topic}/{part.partition} ends before the position of {self._consumer.name}",
            why=f"its position is {offset:,}, and the log ends at {end:,}: the log has lost acknowledged records",
            fix=f"leftfold position set {self._consumer.name} --start now continues with new records",
            source=self._consumer.source,
        )


def _was_added(part: LogPartition, topic_id: str, notes: Mapping[str, Mapping[str, Any]]) -> bool:
    """Return whether a partition was added after the consumer had begun: then all its records are new."""
    of = [note["of"] for key, note in notes.items() if key.startswith(begun_key(topic_id, 0)[:-1])]
    return bool(of) and part.partition >= max(of)


def _or(offset: int | None, end: int) -> int:
    return end if offset is None else offset
