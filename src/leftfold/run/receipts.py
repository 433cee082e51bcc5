"""Receipts: what a build has done with every offset, batch by batch, closed hours rolled up into one.

Written after all stores of a batch, before Spark commits it. A batch that runs again writes its receipt again, under
the same key. Ranges of consecutive receipts meet without gap or overlap.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from leftfold.kafka.receipt_log import ReceiptLog
from leftfold.store.layout import DIGESTS, OUTCOMES, LedgerRow

VERSION = 1
_HOUR = 3_600_000_000

Ranges = dict[str, dict[int, tuple[int, int]]]  # by topic as declared, and partition: from, up to and without


@dataclass(frozen=True)
class Receipt:
    """One batch, or several in a row."""

    first: int
    last: int
    topics: dict[str, str]  # the ids of the topics that were read: a topic made anew keeps its name, not its id
    ranges: Ranges
    records: dict[str, int]  # by outcome, of these batches
    rows: int
    digest: int
    ledger: tuple[LedgerRow, ...]  # cumulative, after `last`
    applied: dict[str, int]  # when each store had `last`, µs
    stores: dict[str, str]  # ids of the topics that were written
    redriven: int  # how far the re-driven records have taken effect

    @property
    def key(self) -> str:
        return f"{self.first:012d}" if self.first == self.last else f"{self.first:012d}-{self.last:012d}"

    @property
    def ends(self) -> dict[str, dict[int, int]]:
        return {topic: {p: end for p, (_, end) in parts.items()} for topic, parts in self.ranges.items()}

    def as_json(self) -> dict[str, Any]:
        return {
            "version": VERSION,
            "first": self.first,
            "last": self.last,
            "topics": self.topics,
            "ranges": {t: {str(p): list(r) for p, r in parts.items()} for t, parts in self.ranges.items()},
            "records": {"in": sum(self.records.values()), **self.records},
            "rows": self.rows,
            "digest": f"{self.digest:016x}",
            "ledger": {row.name: row.entry for row in self.ledger},
            "applied": self.applied,
            "stores": self.stores,
            "redriven": self.redriven,
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Receipt:
        return cls(
            first=document["first"],
            last=document["last"],
            topics=document["topics"],
            ranges={t: {int(p): (r[0], r[1]) for p, r in parts.items()} for t, parts in document["ranges"].items()},
            records={outcome: document["records"][outcome] for outcome in OUTCOMES},
            rows=document["rows"],
            digest=int(document["digest"], 16),
            ledger=tuple(LedgerRow.parse(name, entry) for name, entry in document["ledger"].items()),
            applied=document["applied"],
            stores=document["stores"],
            redriven=document["redriven"],
        )


def counted(ledger: Iterable[LedgerRow], before: Iterable[LedgerRow]) -> dict[str, int]:
    """Records by outcome between two states of the ledger."""
    counts = dict.fromkeys(OUTCOMES, 0)
    for rows, sign in ((ledger, 1), (before, -1)):
        for row in rows:
            counts[row.outcome] += sign * row.records
    return counts


def rolled_up(receipts: Sequence[Receipt]) -> Receipt:
    """Consecutive receipts as one: ranges joined, counts and digests added, the rest as it was after the last."""
    first, last = receipts[0], receipts[-1]
    starts: dict[tuple[str, int], int] = {}
    for receipt in receipts:  # a partition may have been added on the way
        for topic, parts in receipt.ranges.items():
            for p, (start, _) in parts.items():
                starts.setdefault((topic, p), start)
    return replace(
        last,
        first=first.first,
        ranges={t: {p: (starts[t, p], end) for p, (_, end) in parts.items()} for t, parts in last.ranges.items()},
        records={outcome: sum(r.records[outcome] for r in receipts) for outcome in OUTCOMES},
        rows=sum(r.rows for r in receipts),
        digest=sum(r.digest for r in receipts) % DIGESTS,
    )


class Books:
    """The receipts of one build. Keeps those of the hour in memory, to roll them up when it is over."""

    def __init__(self, log: ReceiptLog, scope: str) -> None:
        self._log = log
        self._scope = scope
        self._single: dict[int, Receipt] = {}

    def read(self) -> list[Receipt]:
        """All, in the order of batches, without those that a rolled-up one covers."""
        found = [Receipt.from_json(document) for document in self._log.read(self._scope).values()]
        rolled = [(r.first, r.last) for r in found if r.first != r.last]
        kept = [r for r in found if r.first != r.last or not any(a <= r.first <= b for a, b in rolled)]
        kept.sort(key=lambda r: r.first)
        self._single = {r.first: r for r in kept if r.first == r.last}
        return kept

    def write(self, receipt: Receipt) -> None:
        """A new one, or one of a batch that ran again or was corrected: then it replaces the one that is there."""
        self._log.append(self._scope, [(receipt.key, receipt.as_json())])
        if receipt.first == receipt.last:
            self._single[receipt.first] = receipt
            self._roll_up(_hour(receipt))

    def _roll_up(self, hour: int) -> None:
        """The one that covers them first: dying in between leaves receipts that it makes invalid, and no gap."""
        closed = [r for _, r in sorted(self._single.items()) if _hour(r) < hour]
        if len(closed) < 2:
            return
        whole = rolled_up(closed)
        self._log.append(self._scope, [(whole.key, whole.as_json())])
        self._log.append(self._scope, [(r.key, None) for r in closed])
        for receipt in closed:
            del self._single[receipt.first]


def _hour(receipt: Receipt) -> int:
    return receipt.applied["online"] // _HOUR
