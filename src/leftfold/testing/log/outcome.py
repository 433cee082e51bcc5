"""The outcome of consuming in the model: what was handled, lost and doubled, and which deaths happened."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Consumed:
    """Counts by `record.id`.

    An effect is a call of the handler that returned; exactly once, it is a transaction that holds the record and was
    committed.
    """

    effects: Counter[str] = field(default_factory=Counter)
    calls: Counter[str] = field(default_factory=Counter)  # that returned
    half: Counter[str] = field(default_factory=Counter)  # calls that a death ended half-way
    dead: dict[str, str] = field(default_factory=dict)  # dead letters: the reason
    skipped: set[str] = field(default_factory=set)  # late records of a consumer that does not want them
    crashes: list[tuple[str, str]] = field(default_factory=list)  # the process and the step
    fenced: int = 0  # commits that were refused, because others had taken over
    generations: int = 0  # of the group: rebalances
    expected: frozenset[str] = frozenset()  # the records that were to be handled

    @property
    def lost(self) -> int:
        """The number of records that had no effect, and are neither dead letters nor skipped."""
        return sum(not self.effects[name] for name in self.expected - self.dead.keys() - self.skipped)

    @property
    def doubled(self) -> int:
        """The number of effects that were repeats."""
        return sum(count - 1 for count in self.effects.values() if count > 1)
