"""Receipts: what a build has done with every offset, batch by batch, closed hours rolled up into one.

Written after all stores of a batch, before Spark commits it. A batch that runs again writes its receipt again, under
the same key. Ranges of consecutive receipts meet without gap or overlap. A rolled-up one still says when each of its
batches was applied and where it ended, in a compact form: a training set of what was served needs that.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Any

from leftfold.kafka.receipt_log import ReceiptLog
from leftfold.store.layout import DIGESTS, OUTCOMES, LedgerRow

VERSION = 1
_HOUR = 3_600_000_000
# Text of the batches in one rolled-up receipt: with its ledger it stays below the megabyte that brokers take.
_LARGEST_SERIES = 400_000

Ranges = dict[str, dict[int, tuple[int, int]]]  # by topic as declared, and partition: from, up to and without


@dataclass(frozen=True)
class Applied:
    """When the online store had a batch (µs), and where that ends, by topic as declared and partition."""

    batch: int
    online: int
    ends: dict[str, dict[int, int]]


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
    series: str | None = None  # of a rolled-up one: its batches, encoded; older releases did not keep them

    @property
    def key(self) -> str:
        return f"{self.first:012d}" if self.first == self.last else f"{self.first:012d}-{self.last:012d}"

    @property
    def ends(self) -> dict[str, dict[int, int]]:
        return {topic: {p: end for p, (_, end) in parts.items()} for topic, parts in self.ranges.items()}

    def batches(self) -> list[Applied] | None:
        """Each of them, in order; None if they are not known one by one."""
        if self.first == self.last:
            return [Applied(self.last, self.applied["online"], self.ends)]
        return None if self.series is None else _decoded(self.series, self.first)

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
            **({} if self.series is None else {"batches": self.series}),
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
            series=document.get("batches"),
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
        series=_encoded(receipts),
    )


def in_parts(receipts: Sequence[Receipt]) -> Iterator[Receipt]:
    """Rolled up into one, or into several where one would hold more than a broker takes."""
    whole = rolled_up(receipts) if len(receipts) > 1 else receipts[0]
    if whole.series is None or len(whole.series) <= _LARGEST_SERIES:
        yield whole
        return
    middle = len(receipts) // 2
    yield from in_parts(receipts[:middle])
    yield from in_parts(receipts[middle:])


def _encoded(receipts: Sequence[Receipt]) -> str | None:
    """Differences from batch to batch, by column, as JSON, compressed: a few bytes for each batch and partition."""
    known = [receipt.batches() for receipt in receipts]
    batches = [batch for some in known if some is not None for batch in some]
    if None in known or not batches:
        return None
    places = sorted({(t, p) for batch in batches for t, parts in batch.ends.items() for p in parts})
    columns = [[batch.online for batch in batches]]
    for topic, partition in places:
        # One that was added on the way ends at 0 before.
        columns.append([batch.ends.get(topic, {}).get(partition, 0) for batch in batches])
    steps = [[column[0], *(b - a for a, b in pairwise(column))] for column in columns]
    document = json.dumps([[list(place) for place in places], steps], separators=(",", ":"))
    return base64.b64encode(zlib.compress(document.encode(), 9)).decode()


def _decoded(series: str, first: int) -> list[Applied]:
    places, steps = json.loads(zlib.decompress(base64.b64decode(series)))
    online, *ends = (list(accumulate(column)) for column in steps)
    found = []
    for number, moment in enumerate(online):
        reached: dict[str, dict[int, int]] = {}
        for (topic, partition), column in zip(places, ends, strict=True):
            reached.setdefault(topic, {})[partition] = column[number]
        found.append(Applied(first + number, moment, reached))
    return found


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
        wholes = [whole for whole in in_parts(closed) if whole.first != whole.last]
        covered = [r for r in closed if any(whole.first <= r.first <= whole.last for whole in wholes)]
        self._log.append(self._scope, [(whole.key, whole.as_json()) for whole in wholes])
        self._log.append(self._scope, [(r.key, None) for r in covered])
        for receipt in covered:
            del self._single[receipt.first]


def _hour(receipt: Receipt) -> int:
    return receipt.applied["online"] // _HOUR
