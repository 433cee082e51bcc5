"""The receipts of one build in their topic: which ones are kept, for how long, and where a start begins to read.

The size of the topic does not grow with the age of a build. It holds:
- the sum: one receipt for all batches up to the last closed hour. The sum is never dropped;
- one receipt for each batch since then;
- the details: for each closed hour a receipt that says when each of its batches was applied. A start does not need the
  details. They stay until the lake has them, or for 30 days if there is no lake.

A receipt that covers others is written first, and their tombstones follow. A process that dies in between leaves
superfluous receipts, but never a gap. The time at which the online store had a batch decides to which hour the batch
belongs. An hour ends where the next receipt belongs to another hour, so every writer draws the same lines. A writer
that was overtaken only writes receipts that are there already, or that a later receipt covers.

The bookmark says from which offset of the topic a start has to read. It is only a hint: if the receipts from there on
do not reach from the build's first batch to the last committed one, the start reads everything.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise, takewhile
from typing import Any, Protocol

from leftfold.fold.durations import SECOND
from leftfold.kafka.document_log import Kept
from leftfold.kafka.receipt_log import ReceiptLog
from leftfold.run.receipts import Receipt, in_parts, key_of, summed, tiling

_HOUR = 3_600 * SECOND
_DAY = 24 * _HOUR
# How long details stay without a lake. At one batch per second they take 45 MB for a view of 6 partitions, and 180 MB
# for a view of 48.
DETAILS_KEPT = 30 * _DAY


class Bookmark(Protocol):
    """A small text that outlives the process. It may be lost, outdated or damaged."""

    def read(self) -> str | None: ...

    def write(self, text: str) -> None: ...


@dataclass(frozen=True)
class Detail:
    """A receipt that the sum covers. It is kept because it knows when each of its batches was applied."""

    first: int
    last: int
    online: int  # when the online store had the last batch, µs
    offset: int  # in the topic; the receipt may lie after this offset, never before it

    @property
    def key(self) -> str:
        return key_of(self.first, self.last)


@dataclass(frozen=True)
class _Tile:
    receipt: Receipt
    offset: int


class ReceiptStore:
    def __init__(
        self, log: ReceiptLog, scope: str, *, bookmark: Bookmark | None = None, kept: int | None = DETAILS_KEPT
    ) -> None:
        """Take `kept`, how long details stay in µs. With None they stay until `remove` is called."""
        self.scope = scope
        self._log = log
        self._bookmark = bookmark
        self._kept = kept
        self._tiles: dict[int, _Tile] = {}  # by first batch: the sum and the receipts that follow it
        self._covered: list[str] = []  # superfluous keys, left by a dead or overtaken writer
        self._hour: int | None = None  # the hour of the newest receipt that was written
        self._lock = threading.Lock()  # guards the details: a lake removes them while batches run
        self._details: dict[str, Detail] = {}

    # Reading ---------------------------------------------------------------------------------------------------

    def read(self, committed: int = -1) -> list[Receipt]:
        """Read the receipts that cover the log without gap or overlap, in the order of batches.

        Read from the bookmark on if that reaches from batch 0 to batch `committed` without a gap, else read everything.
        """
        marked = self._marked()
        if marked is not None:
            offset, details = marked
            tiles = self._take(self._log.read(self.scope, since=offset), details)
            if tiles and tiles[0].first == 0 and tiles[-1].last >= committed and not _gaps(tiles):
                return tiles
        return self._take(self._log.read(self.scope), ())

    def every(self) -> list[Receipt]:
        """Read all receipts in the topic, including the details, in no particular order."""
        return [Receipt.from_json(entry.document) for entry in self._log.read(self.scope).values()]

    def _take(self, entries: Mapping[str, Kept], details: Iterable[Detail]) -> list[Receipt]:
        held = [_Tile(Receipt.from_json(entry.document), entry.offset) for entry in entries.values()]
        tiles = tiling(tile.receipt for tile in held)
        first = {receipt.key for receipt in tiles}
        known = {receipt.key for receipt in tiling(tile.receipt for tile in held if tile.receipt.known)}
        covered = [tile for tile in held if tile.receipt.key not in first]
        self._tiles = {tile.receipt.first: tile for tile in held if tile.receipt.key in first}
        self._covered = [tile.receipt.key for tile in covered if tile.receipt.key not in known]
        self._hour = None
        with self._lock:
            self._details = {detail.key: detail for detail in details}
            self._details |= {tile.receipt.key: _detail(tile) for tile in covered if tile.receipt.key in known}
        return tiles

    def _marked(self) -> tuple[int, list[Detail]] | None:
        text = None if self._bookmark is None else self._bookmark.read()
        try:
            said = json.loads(text or "")
            return int(said["offset"]), [Detail(*(int(part) for part in detail)) for detail in said["details"]]
        except (ValueError, TypeError, KeyError):  # there is no bookmark, or the process died while writing it
            return None

    # Writing ---------------------------------------------------------------------------------------------------

    def write(self, receipt: Receipt) -> None:
        """Write a receipt. If its batch ran again or was corrected, it replaces the receipt that is there."""
        (offset,) = self._log.append(self.scope, [(receipt.key, receipt.as_json())])
        self._tiles[receipt.first] = _Tile(receipt, offset)
        newest = receipt.first == receipt.last == max(self._tiles)  # else it is a correction, which closes no hour
        if newest and _hour(receipt) != self._hour:
            self._roll_up(receipt)
            self._hour = _hour(receipt)

    def _roll_up(self, newest: Receipt) -> None:
        """Close all hours before that of the newest receipt: make one detail of each hour, and add all to the sum."""
        tiles = [tile for _, tile in sorted(self._tiles.items())]
        opened = list(takewhile(lambda tile: _of_hour(tile.receipt, _hour(newest)), reversed(tiles)))
        closed = tiles[: len(tiles) - len(opened)]
        if len(closed) < 2:
            return
        offsets = {tile.receipt.key: tile.offset for tile in closed}
        hours = [hour for _, run in groupby(closed, lambda tile: _run(tile.receipt)) for hour in _rolled(run)]
        covering = summed(hours) if len(hours) > 1 else hours[0]
        added = [receipt for receipt in (*hours, covering) if receipt.key not in offsets]
        written = self._log.append(self.scope, [(receipt.key, receipt.as_json()) for receipt in added])
        offsets |= dict(zip((receipt.key for receipt in added), written, strict=True))
        retained = {hour.key for hour in hours if hour.known} | {covering.key}
        with self._lock:
            self._details |= {
                hour.key: _detail(_Tile(hour, offsets[hour.key]))
                for hour in hours
                if hour.known and hour is not covering
            }
            expired = [d.key for d in self._details.values() if self._expired(d, newest)]
        covered = [*self._covered, *(tile.receipt.key for tile in closed)]
        self.remove([*(key for key in covered if key not in retained), *expired])
        self._covered = []
        sum_ = _Tile(covering, offsets[covering.key])
        self._tiles = {tile.receipt.first: tile for tile in (sum_, *opened)}
        self._mark()

    def _expired(self, detail: Detail, newest: Receipt) -> bool:
        return self._kept is not None and detail.online < newest.applied["online"] - self._kept

    def _mark(self) -> None:
        """Write the bookmark. This comes last: by then, each receipt before it is a detail or has its tombstone."""
        if self._bookmark is None:
            return
        offset = min(tile.offset for tile in self._tiles.values())
        with self._lock:
            details = [[d.first, d.last, d.online, d.offset] for d in self._details.values()]
        self._bookmark.write(json.dumps({"offset": offset, "details": details}, separators=(",", ":")))

    # Details ---------------------------------------------------------------------------------------------------

    def oldest_day(self) -> list[Detail]:
        """The details of the oldest day, if that day is closed; else none. The newest day is still open."""
        with self._lock:
            details = sorted(self._details.values(), key=lambda detail: detail.first)
        days = [list(day) for _, day in groupby(details, lambda detail: detail.online // _DAY)]
        return days[0] if len(days) > 1 else []

    def documents(self, details: Sequence[Detail]) -> dict[str, dict[str, Any]]:
        """The documents of these details, by key. Details that the topic no longer holds are left out."""
        since = min(detail.offset for detail in details)
        entries = self._log.read(self.scope, since=since, only={detail.key for detail in details})
        return {key: entry.document for key, entry in entries.items()}

    def remove(self, keys: Iterable[str]) -> None:
        """Remove receipts: details that are stored elsewhere or have expired, and receipts that another one covers."""
        gone = list(keys)
        self._log.append(self.scope, [(key, None) for key in gone])
        with self._lock:
            for key in gone:
                self._details.pop(key, None)


def _gaps(tiles: Sequence[Receipt]) -> bool:
    return any(before.last + 1 != after.first for before, after in pairwise(tiles))


def _detail(tile: _Tile) -> Detail:
    return Detail(tile.receipt.first, tile.receipt.last, tile.receipt.applied["online"], tile.offset)


def _hour(receipt: Receipt) -> int:
    return receipt.applied["online"] // _HOUR


def _of_hour(receipt: Receipt, hour: int) -> bool:
    return receipt.first == receipt.last and _hour(receipt) == hour


def _run(receipt: Receipt) -> tuple[bool, int]:
    """The group of a receipt. Receipts of a single batch are grouped by hour; any other receipt stands alone."""
    return (True, _hour(receipt)) if receipt.first == receipt.last else (False, receipt.first)


def _rolled(run: Iterable[_Tile]) -> Iterable[Receipt]:
    return in_parts([tile.receipt for tile in run])
