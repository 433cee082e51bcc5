"""The cutover of a build from a batch scan of history to its stream: which tiles each makes. Kept in the checkpoint.

The end of history is frozen per partition. A tile that starts before the cut of its step belongs to history: no record
after the ends can lie in it. The stream starts early enough for all other tiles. So scan and stream both read some
records, and each makes only its own tiles of them. The ledger counts a record before the ends in the scan only.
"""

from __future__ import annotations

import json
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F

from leftfold.offsets import SLOTS_PER_TOPIC, Offsets, later
from leftfold.store.layout import LedgerRow

NOT_CLOSED = "leftfold-history-not-closed"


@dataclass(frozen=True)
class FrozenHistory:
    """The bounds of a scan of history. They are decided before it is read, so a second scan gives the same result."""

    id: str  # of the checkpoint that is made from it
    firsts: Offsets  # where history begins; topics by their names in the cluster
    starts: Offsets  # where the stream begins: early enough for every tile that it makes
    ends: Offsets  # where history ends
    cuts: dict[int, int]  # by step, µs: tiles that start before this belong to history
    oldest: dict[int, int]  # by step, µs: no read reaches tiles that start before this
    since: int | None = None  # the start that the user asked for, µs; None: all of history

    def as_json(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "since": self.since,
            **{name: _by_text(getattr(self, name)) for name in ("firsts", "starts", "ends")},
            "cuts": {str(step): at for step, at in self.cuts.items()},
            "oldest": {str(step): at for step, at in self.oldest.items()},
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> FrozenHistory:
        firsts, starts, ends = (_by_number(document[name]) for name in ("firsts", "starts", "ends"))
        cuts, oldest = ({int(step): at for step, at in document[name].items()} for name in ("cuts", "oldest"))
        return cls(document["id"], firsts, starts, ends, cuts, oldest, document["since"])

    def reached(self, offsets: Offsets) -> Offsets:
        """The offsets that a build has reached after history and after its stream came to `offsets`."""
        return later(offsets, self.ends)

    def passed_by(self, offsets: Offsets) -> bool:
        """Return whether the stream is past the end of history in every partition."""
        return all(offsets.get(t, {}).get(p, 0) >= end for t, parts in self.ends.items() for p, end in parts.items())

    def closed(self) -> Column:
        """The condition for exploded rows (step `s`) that history folds: rows of closed tiles, and ledger rows."""
        mine = [
            (F.col("s") == step) & (F.col("event_us") < cut) & (F.col("event_us") >= self.oldest[step])
            for step, cut in self.cuts.items()
        ]
        return reduce(lambda a, b: a | b, mine, F.col("s") < 0)

    def open(self, topics: Sequence[str]) -> Column:
        """The condition for rows, exploded to steps `s`, that the stream folds.

        A record after the ends that lies in a closed tile stops the stream, because the tile would be wrong from then
        on. This can only happen if a broker's clock went back by more than the allowance.
        """
        cut = F.when(F.lit(False), F.lit(0))
        for step, at in self.cuts.items():
            cut = cut.when(F.col("s") == step, F.lit(at))
        after = F.col("offset") >= self._end(topics)
        own = F.col("event_us") >= cut
        stop = F.raise_error(F.lit(NOT_CLOSED)).cast("boolean")
        return F.when(F.col("s") < 0, after).when(own, F.lit(True)).when(after, stop).otherwise(F.lit(False))

    def _end(self, topics: Sequence[str]) -> Column:
        """The offset where history ends in a record's partition; 0 for a partition that was added later."""
        arrays = []
        for topic in topics:
            ends = self.ends.get(topic, {})
            by_place = [ends.get(p, 0) for p in range(max(ends, default=-1) + 1)]
            arrays.append(F.array(*(F.lit(end).cast("long") for end in by_place)) if by_place else None)
        partition = F.col("slot") % F.lit(SLOTS_PER_TOPIC) if len(topics) > 1 else F.col("slot")
        place = F.floor(F.col("slot") / SLOTS_PER_TOPIC)
        case = F.when(F.lit(False), F.lit(0).cast("long"))
        for number, ends_of in enumerate(arrays):
            if ends_of is not None:
                mine = F.coalesce(F.get(ends_of, partition), F.lit(0).cast("long"))
                case = case.when(place == number, mine) if len(topics) > 1 else mine
        return case


@dataclass(frozen=True)
class Past:
    """A history that was read to its end, and its result."""

    frozen: FrozenHistory
    ledger: tuple[LedgerRow, ...]
    rows: int
    digest: int

    def as_text(self) -> str:
        document = {
            "frozen": self.frozen.as_json(),
            "ledger": {row.name: row.entry for row in self.ledger},
            "rows": self.rows,
            "digest": f"{self.digest:016x}",
        }
        return json.dumps(document, indent=1)

    @classmethod
    def from_text(cls, text: str) -> Past:
        document = json.loads(text)
        return cls(
            FrozenHistory.from_json(document["frozen"]),
            tuple(LedgerRow.parse(name, entry) for name, entry in document["ledger"].items()),
            document["rows"],
            int(document["digest"], 16),
        )

    def total(self, ledger: Sequence[LedgerRow], known: Container[str]) -> tuple[LedgerRow, ...]:
        """Ledger rows of the stream added to those of history, and the rows of history that are not yet in `known`."""
        before = {row.name: row for row in self.ledger}
        new = {name: row for name, row in before.items() if name not in known}
        return tuple((new | {row.name: row.after(before.get(row.name)) for row in ledger}).values())


def _by_text(offsets: Offsets) -> dict[str, dict[str, int]]:
    return {topic: {str(p): offset for p, offset in parts.items()} for topic, parts in offsets.items()}


def _by_number(document: Mapping[str, Mapping[str, int]]) -> Offsets:
    return {topic: {int(p): offset for p, offset in parts.items()} for topic, parts in document.items()}
