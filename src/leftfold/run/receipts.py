"""Receipts: they record what a build has done with every offset. A receipt covers one batch, or several in a row.

A receipt is written after all stores of its batch, and before Spark commits the batch. A batch that runs again writes
its receipt again, under the same key. The ranges of consecutive receipts meet without gap or overlap. A receipt that is
rolled up from an hour still says, in a compact form, when each of its batches was applied and where it ended: a
training set of the values that were served needs that. `receipt_store` decides how receipts are kept, and for how long.
"""

from __future__ import annotations

import base64
import json
import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Any

from leftfold.declare.acceptance import OUTCOMES
from leftfold.store.layout import DIGESTS, LedgerRow

VERSION = 1
# The longest text of the batches in one rolled-up receipt. Together with its ledger, the receipt stays below the
# megabyte that brokers accept.
_LARGEST_SERIES = 400_000

Ranges = dict[str, dict[int, tuple[int, int]]]  # by declared topic and partition: first offset, and end (exclusive)


@dataclass(frozen=True)
class Applied:
    """One applied batch: when the online store had it (µs), and where it ends, by declared topic and partition."""

    batch: int
    online: int
    ends: dict[str, dict[int, int]]


@dataclass(frozen=True)
class Receipt:
    """The receipt of one batch, or of several in a row."""

    first: int
    last: int
    topics: dict[str, str]  # ids of the topics that were read: a recreated topic keeps its name, but not its id
    ranges: Ranges
    records: dict[str, int]  # by outcome, in these batches
    rows: int
    digest: int
    ledger: tuple[LedgerRow, ...]  # cumulative, after `last`
    applied: dict[str, int]  # when each store had `last`, µs
    stores: dict[str, str]  # ids of the topics that were written
    redriven: int  # re-driven records before this offset have taken effect
    beyond: int = 0  # re-driven records without effect: the rest of their tiles is no longer in the log or archive
    series: str | None = None  # a rolled-up receipt's batches, encoded; older releases did not keep them

    @property
    def key(self) -> str:
        return key_of(self.first, self.last)

    @property
    def known(self) -> bool:
        """True if the receipt says when each of its batches was applied."""
        return self.first == self.last or self.series is not None

    @property
    def ends(self) -> dict[str, dict[int, int]]:
        return {topic: {p: end for p, (_, end) in parts.items()} for topic, parts in self.ranges.items()}

    def batches(self) -> list[Applied] | None:
        """The batches of the receipt, in order; None if they are not known one by one."""
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
            "beyond": self.beyond,
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
            beyond=document.get("beyond", 0),  # an older release did not count them
            series=document.get("batches"),
        )


def key_of(first: int, last: int) -> str:
    return f"{first:012d}" if first == last else f"{first:012d}-{last:012d}"


def counted(ledger: Iterable[LedgerRow], before: Iterable[LedgerRow]) -> dict[str, int]:
    """The number of records by outcome, between two states of the ledger."""
    counts = dict.fromkeys(OUTCOMES, 0)
    for rows, sign in ((ledger, 1), (before, -1)):
        for row in rows:
            counts[row.outcome] += sign * row.records
    return counts


def rolled_up(receipts: Sequence[Receipt]) -> Receipt:
    """Combine consecutive receipts into one that still knows each of its batches."""
    return replace(summed(receipts), series=_encoded(receipts))


def summed(receipts: Sequence[Receipt]) -> Receipt:
    """Combine consecutive receipts into one: join ranges, add counts and digests, take the rest from the last receipt.

    The result does not know its batches one by one, so it does not grow with them.
    """
    first, last = receipts[0], receipts[-1]
    starts: dict[tuple[str, int], int] = {}
    for receipt in receipts:  # a partition may have been added in between
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
        series=None,
    )


def in_parts(receipts: Sequence[Receipt]) -> Iterator[Receipt]:
    """Roll up receipts into one, or into several if one would be larger than a broker accepts."""
    whole = rolled_up(receipts) if len(receipts) > 1 else receipts[0]
    if len(receipts) == 1 or whole.series is None or len(whole.series) <= _LARGEST_SERIES:
        yield whole
        return
    middle = len(receipts) // 2
    yield from in_parts(receipts[:middle])
    yield from in_parts(receipts[middle:])


def tiling(receipts: Iterable[Receipt]) -> list[Receipt]:
    """Choose receipts that follow each other without gap or overlap, and leave out those that others cover.

    The longest receipts are preferred. If batches are missing, the result continues after the gap; the caller judges
    the gap. Receipts may overlap, because two writers drew the line between two hours differently. They do no harm:
    some chain reaches the last batch without them.
    """
    left = sorted(receipts, key=lambda r: (r.first, -r.last))
    tiles: list[Receipt] = []
    while left:
        begin = left[0].first
        before: dict[int, Receipt] = {}  # by batch: the longest receipt that ends just before it
        for receipt in left:
            if receipt.first == begin or receipt.first in before:
                before.setdefault(receipt.last + 1, receipt)
        at = end = max(before)
        chain = []
        while at != begin:
            chain.append(before[at])
            at = before[at].first
        tiles += reversed(chain)
        left = [receipt for receipt in left if receipt.first >= end]
    return tiles


def known_history(receipts: Iterable[Receipt]) -> list[Receipt]:
    """Choose the receipts that say when each batch was applied, in the order of batches.

    Batches that these do not cover are filled in from the other receipts. Such batches are not known one by one.
    """
    receipts = list(receipts)
    tiles = tiling(receipts)
    known = tiling(r for r in receipts if r.known)
    starts = [r.first for r in known]
    # Receipts in whose span no known one begins: an earlier release wrote them, or the details of their hours are gone.
    others = [t for t in tiles if not t.known and bisect_left(starts, t.first) == bisect_right(starts, t.last)]
    history = sorted([*known, *others], key=lambda r: r.first)
    if tiles and history[-1].last < tiles[-1].last:
        history.append(replace(tiles[-1], first=history[-1].last + 1))
    return history


def _encoded(receipts: Sequence[Receipt]) -> str | None:
    """Encode the batches: differences from batch to batch, by column, as compressed JSON. None if one is not known.

    It takes a few bytes for each batch and partition.
    """
    known = [receipt.batches() for receipt in receipts]
    batches = [batch for some in known if some is not None for batch in some]
    if None in known or not batches:
        return None
    places = sorted({(t, p) for batch in batches for t, parts in batch.ends.items() for p in parts})
    columns = [[batch.online for batch in batches]]
    for topic, partition in places:
        # A partition that was added later ends at 0 in the batches before that.
        columns.append([batch.ends.get(topic, {}).get(partition, 0) for batch in batches])
    steps = [[column[0], *(b - a for a, b in pairwise(column))] for column in columns]
    document = json.dumps([[list(place) for place in places], steps], separators=(",", ":"))
    return base64.b64encode(zlib.compress(document.encode(), 9)).decode()


def _decoded(series: str, first: int) -> list[Applied]:
    places, steps = json.loads(zlib.decompress(base64.b64decode(series)))
    online, *ends = (list(accumulate(column)) for column in steps)
    batches = []
    for number, moment in enumerate(online):
        reached: dict[str, dict[int, int]] = {}
        for (topic, partition), column in zip(places, ends, strict=True):
            reached.setdefault(topic, {})[partition] = column[number]
        batches.append(Applied(first + number, moment, reached))
    return batches
