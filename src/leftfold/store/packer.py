"""Moves tiles of rows from fields of their own into the packed field of the row.

What a reader sees stays the same. A process that dies before, during or after this leaves a row that is right.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from leftfold.fold.definition import Definition
from leftfold.fold.durations import SECOND
from leftfold.store import packed
from leftfold.store.layout import LIFETIME_FIELD, PACKED_BATCH_FIELD, PACKED_FIELD

# The tiles that a row may have as fields of their own, before they are packed. More of them cost memory (each field
# costs Redis some 60 bytes besides its text). Fewer cost time, because a row is packed more often.
LOOSE_TILES = 16
# These tiles, and the fields for the packed ones, their batch, and the lifetime.
FIELDS_AT_MOST = LOOSE_TILES + 3
# PackableRows that are packed together: enough for numpy to work on long columns, and few enough for memory.
_ROWS = 256
_NOT_TILES = (PACKED_FIELD, PACKED_BATCH_FIELD, LIFETIME_FIELD)

_Tiles = dict[bytes, bytes]  # by field


@dataclass(frozen=True)
class PackedRow:
    """A row whose tiles were packed, as it was read and as it is to be."""

    entity: str
    before: bytes  # its packed batch when it was read, empty if it had none
    # The new one carries a checksum of the packed field, so that two of the same batch are told apart.
    batch: bytes
    value: bytes  # the new packed field
    tiles: Mapping[bytes, bytes]  # those that are in it now, and no fields of their own any more


class PackableRows(Protocol):
    """The rows of a build, where they are stored."""

    def read(self, entities: Sequence[str]) -> list[dict[bytes, bytes]]: ...

    def replace(self, rows: Sequence[PackedRow]) -> None:
        """Store packed rows. A row of which these tiles or the packed field are another thing by now stays as it is."""


class Packer:
    """Packs rows of one definition, once enough of them wait."""

    def __init__(self, definition: Definition, rows: PackableRows) -> None:
        self._definition = definition
        self._rows = rows
        self._waiting: dict[str, None] = {}

    def add(self, entities: Iterable[str]) -> None:
        self._waiting.update(dict.fromkeys(entities))
        if len(self._waiting) >= _ROWS:
            self.finish()

    def finish(self) -> None:
        """Pack what waits."""
        entities = list(self._waiting)
        self._waiting = {}
        for start in range(0, len(entities), _ROWS):
            self._pack(entities[start : start + _ROWS])

    def _pack(self, entities: list[str]) -> None:
        rows = self._rows.read(entities)
        old = [(who, row, tiles) for who, row in zip(entities, rows, strict=True) if (tiles := self._old_tiles(row))]
        values = packed.pack(
            self._definition,
            [
                (row.get(PACKED_FIELD.encode()), [(_step(name), value) for name, value in tiles.items()])
                for _, row, tiles in old
            ],
        )
        if not old:
            return
        self._rows.replace(
            [
                PackedRow(who, row.get(PACKED_BATCH_FIELD.encode(), b""), _packed_batch(new), new, tiles)
                for (who, row, tiles), new in zip(old, values, strict=True)
            ]
        )

    def _old_tiles(self, row: Mapping[bytes, bytes]) -> _Tiles:
        """Return the tiles of a row that are to be packed: all but the newest of each step, which still change."""
        newest: dict[int, tuple[int, bytes]] = {}
        tiles = {name: value for name, value in row.items() if name.decode() not in _NOT_TILES}
        for name, value in tiles.items():
            index = int(value[1 : value.index(b",")])
            step = _step(name)
            newest[step] = max(newest.get(step, (index, name)), (index, name))
        kept = {name for _, name in newest.values()}
        return {name: value for name, value in tiles.items() if name not in kept}


def _step(field: bytes) -> int:
    return int(field.partition(b":")[0]) * SECOND


def _packed_batch(value: bytes) -> bytes:
    return b"%d:%08x" % (packed.batch_of(value), zlib.crc32(value))
