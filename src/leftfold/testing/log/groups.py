"""A consumer group: members, generations, assignment, and committed positions.

A rebalance is due when a member enters, leaves or expires. It happens once every member has joined it. From then on the
generation is a new one, and a commit that names another is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from leftfold.testing.log.assignment import ASSIGNORS, Assignment, AssignorName, Part


class Fenced(Exception):  # noqa: N818 # the name of what happened to its sender
    """Refused, because a newer generation or epoch exists, or the sender is no member any more."""


class CommittedOffset(NamedTuple):
    """A position: the next offset, and offsets beyond it that are settled already."""

    offset: int
    beyond: frozenset[int] = frozenset()


@dataclass
class GroupModel:
    """One group. `committed` survives its members.

    A partition whose position is in an open transaction has no known position: its next owner waits for the outcome.
    """

    parts: Sequence[Part]
    assignor: AssignorName = "range"
    generation: int = 0
    assignment: Assignment = field(default_factory=dict)
    committed: dict[Part, CommittedOffset] = field(default_factory=dict)
    pending: dict[Part, int] = field(default_factory=dict)  # open transactions that hold a position of it
    rebalancing: bool = False
    waiting: set[str] = field(default_factory=set)  # members that have joined the next generation

    @property
    def is_cooperative(self) -> bool:
        return self.assignor == "cooperative-sticky"

    def enter(self, member: str) -> None:
        """Add a member. It has no partitions before the next generation."""
        self.assignment.setdefault(member, set())
        self.rebalancing = True

    def leave(self, member: str) -> None:
        """Remove a member: it left, or its session has expired."""
        if self.assignment.pop(member, None) is not None:
            self.waiting.discard(member)
            self.rebalancing = True
            self._form()

    def join(self, member: str) -> None:
        """Note that a member has given up what it must, and waits for the next generation."""
        if member not in self.assignment:
            raise Fenced(f"{member} is no member")
        self.waiting.add(member)
        self._form()

    def _form(self) -> None:
        if not self.rebalancing or self.waiting < self.assignment.keys() or not self.assignment:
            return
        self.generation += 1
        self.waiting.clear()
        wanted = ASSIGNORS[self.assignor](self.assignment, self.parts, self.assignment)
        moving = False
        if self.is_cooperative:
            # A partition that moves is first only taken away. A second rebalance gives it to its new owner.
            owners = {part: member for member, parts in self.assignment.items() for part in parts}
            for member, parts in wanted.items():
                early = {part for part in parts if owners.get(part, member) != member}
                wanted[member] = parts - early
                moving = moving or bool(early)
        self.assignment = wanted
        self.rebalancing = moving

    def check(self, member: str, generation: int) -> None:
        if member not in self.assignment or generation != self.generation:
            raise Fenced(f"{member} of generation {generation}; the group has generation {self.generation}")

    def commit(self, member: str, generation: int, positions: Mapping[Part, CommittedOffset]) -> None:
        self.check(member, generation)
        self.committed.update(positions)

    def hold(self, parts: Iterable[Part]) -> None:
        """Note that an open transaction holds positions of these partitions."""
        for part in parts:
            self.pending[part] = self.pending.get(part, 0) + 1

    def release(self, parts: Iterable[Part]) -> None:
        """Note that such a transaction has ended."""
        for part in parts:
            self.pending[part] -= 1
            if not self.pending[part]:
                del self.pending[part]
