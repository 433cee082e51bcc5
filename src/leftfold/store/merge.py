"""The rule by which a row takes up tiles that a writer sends: the fence of the store, as a pure function.

A tile is replaced only by a later tile of its slot, or by the same tile from a batch that is not older. Tiles that were
packed are not looked at. Their newest batch stands beside them, so a row of an older batch is a late writer's, and is
refused. Only a repair may be older: it writes all tiles that a read reaches, so what was packed is dropped.

`leftfold.store.redis.scripts` has the same rule in Lua. One test asks both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from leftfold.store.layout import PACKED_BATCH_FIELD, PACKED_FIELD

DELETED_S = 86_400  # by then no older write can still arrive
_PACKED, _PACKED_BATCH = PACKED_FIELD.encode(), PACKED_BATCH_FIELD.encode()


@dataclass(frozen=True)
class Merged:
    """A row after a write."""

    row: dict[bytes, bytes]
    written: int  # tiles that took effect
    is_changed: bool  # else it need not be written, and keeps its expiry
    ttl_s: int  # seconds until it expires if nobody writes it; 0: never


def merged(held: Mapping[bytes, bytes], tiles: Sequence[bytes], ttl_s: int, *, repairs: bool) -> Merged:
    """Return what a row is after a write. `tiles` are field, value, field, value, …"""
    row, taken = dict(held), set[bytes]()
    if tiles and _PACKED_BATCH in row and _position(tiles[1])[1] < int(row[_PACKED_BATCH].partition(b":")[0]):
        if not repairs:
            return Merged(row, 0, False, ttl_s)
        del row[_PACKED], row[_PACKED_BATCH]
    for name, value in zip(tiles[0::2], tiles[1::2], strict=True):
        old = row.get(name)
        if old is None or old == value or _position(old) <= _position(value):
            row[name] = value
            taken.add(name)
    is_deleted = len(tiles) == 2 and tiles[1].count(b",") == 1
    return Merged(row, len(taken), row != held, DELETED_S if is_deleted else ttl_s)


def _position(value: bytes) -> tuple[int, int]:
    """Return the index and the batch with which a value begins."""
    index, batch, *_ = value[1:].split(b",", 2)
    return int(index), int(batch.rstrip(b"]"))
