"""Compaction: of each key the newest record, and no aborted ones. Markers and records without a key are kept.

A tombstone is kept as the newest record of its key. Brokers delete it after delete.retention.ms, which is another pass.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from leftfold.testing.log.replicas import LogEntry


def compacted(entries: Iterable[LogEntry], aborted: set[int], *, tombstones: bool = True) -> list[LogEntry]:
    """Return what a cleaner leaves of a stretch of the log. Offsets do not change."""
    live = [entry for entry in entries if entry.offset not in aborted]
    newest = {entry.key: entry.offset for entry in live if entry.kind == "data"}
    return [entry for entry in live if _stays(entry, newest, tombstones)]


def _stays(entry: LogEntry, newest: dict[bytes | None, int], tombstones: bool) -> bool:
    if entry.kind != "data" or entry.key is None:
        return True
    return newest[entry.key] == entry.offset and (tombstones or entry.value is not None)
