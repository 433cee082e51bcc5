"""Commits of positions that follow what is settled: from time to time, and before partitions are given up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from leftfold import clock
from leftfold.consume.booking import DatabaseAway
from leftfold.consume.settled import Committed, Settled, encoded
from leftfold.kafka.group import LogPartition, Member, Position

if TYPE_CHECKING:
    from leftfold.consume.sql_rows import SqlRows

Parts = Mapping[LogPartition, Settled]
_State = tuple[int, int, int]

_EVERY_S = 1.0
_EVERY = 1_000  # records
_IDLE_S = 3_600.0  # brokers forget positions that are not committed for a week
_LAST_S = 5.0  # how long giving up a partition waits for a coordinator


def _state(settled: Settled) -> _State:
    """Return numbers that change with a partition's position: a record is taken, or settled, or booked."""
    return settled.next, settled.in_flight, settled.booked


class Commits:
    """The commits of one process. One thread owns it.

    With `rows`, the database has the positions, and the group is told what is booked there.
    """

    def __init__(self, rows: SqlRows | None) -> None:
        self.uncommitted = 0  # records settled since the last commit
        self._rows = rows
        self._last = clock.monotonic()
        self._sent: dict[LogPartition, _State] = {}

    def if_due(self, parts: Parts, member: Member, *, at_once: bool = False) -> None:
        """Commit without waiting for the answer, if a commit is due and positions have moved."""
        now = clock.monotonic()
        waited = now - self._last
        if waited < _EVERY_S and self.uncommitted < _EVERY and not at_once:
            return
        self._pass_over(parts)
        states = {part: _state(settled) for part, settled in parts.items()}
        changed = {part: parts[part] for part, state in states.items() if state != self._sent.get(part)}
        if not changed and waited < _IDLE_S:
            self._last = now
            return
        if member.commit_soon(self._positions(changed or parts)):
            self._last, self.uncommitted = now, 0
            self._sent |= {part: states[part] for part in changed}

    def now(self, parts: Parts, member: Member) -> dict[LogPartition, int]:
        """Commit and wait for the answer. Returns the offsets that are committed."""
        self._pass_over(parts)
        positions = self._positions(parts)
        if positions and member.commit(positions, patience_s=_LAST_S):
            return {part: at.offset for part, at in positions.items()}
        return {}

    def refused(self) -> None:
        """The last commit was refused: the next one sends all positions again."""
        self._sent.clear()

    def forget(self, part: LogPartition) -> None:
        """Forget a partition that was given up."""
        self._sent.pop(part, None)

    def _positions(self, parts: Parts) -> dict[LogPartition, Position]:
        at = {
            part: s.position() if self._rows is None else Committed(s.booked, s.topic_id)
            for part, s in parts.items()
            if s.owned
        }
        return {part: Position(position.offset, encoded(position)) for part, position in at.items()}

    def _pass_over(self, parts: Parts) -> None:
        """Move positions in the consumer's database past settled records after which nothing was booked."""
        if self._rows is None:
            return
        try:
            for part in parts.values():
                if part.owned and not part.in_flight and part.low > part.booked:
                    self._rows.pass_over(part)
        except DatabaseAway:
            pass  # with the next commit, or by the next owner
