"""Moves tiles of rows from fields of their own into the packed field of the row.

What a reader sees stays the same. A process that dies before, during or after this leaves a row that is right.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from leftfold.fold.definition import Definition
from leftfold.fold.durations import SECOND
from leftfold.store import packed
from leftfold.store.client import framed, pack, run_scripts
from leftfold.store.layout import LIFETIME_FIELD, PACKED_BATCH_FIELD, PACKED_FIELD
from leftfold.store.scripts import PACK

# The tiles that a row may have as fields of their own, before they are packed. More of them cost memory (each field
# costs Redis some 60 bytes besides its text). Fewer cost time, because a row is packed more often.
LOOSE_TILES = 16
# These tiles, and the fields for the packed ones, their batch, and the lifetime.
FIELDS_AT_MOST = LOOSE_TILES + 3
# Rows that are packed together: enough for numpy to work on long columns, and few enough for memory.
_ROWS = 256
_NOT_TILES = (PACKED_FIELD, PACKED_BATCH_FIELD, LIFETIME_FIELD)

_Tiles = dict[bytes, bytes]  # by field


class Packer:
    """Packs rows of one definition, once enough of them wait."""

    def __init__(self, definition: Definition, client: Any) -> None:
        self._definition = definition
        self._client = client
        self._waiting: dict[str, None] = {}

    def add(self, keys: Iterable[str]) -> None:
        self._waiting.update(dict.fromkeys(keys))
        if len(self._waiting) >= _ROWS:
            self.finish()

    def finish(self) -> None:
        """Pack what waits."""
        keys = list(self._waiting)
        self._waiting = {}
        for start in range(0, len(keys), _ROWS):
            self._pack(keys[start : start + _ROWS])

    def _pack(self, keys: list[str]) -> None:
        answers = run_scripts(self._client, [[pack("HGETALL", key)] for key in keys])
        rows = [dict(zip(answer[0::2], answer[1::2], strict=True)) for answer in answers]
        old = [(key, row, tiles) for key, row in zip(keys, rows, strict=True) if (tiles := self._old_tiles(row))]
        values = packed.pack(
            self._definition,
            [
                (row.get(PACKED_FIELD.encode()), [(_step(name), value) for name, value in tiles.items()], _newest(row))
                for _, row, tiles in old
            ],
        )
        if not old:
            return
        opening = framed(b"EVALSHA") + framed(self._client.script_load(PACK).encode())
        run_scripts(
            self._client,
            [
                [b"*%d\r\n" % (7 + 2 * len(tiles)), opening, *_arguments(key, row, new, tiles)]
                for (key, row, tiles), new in zip(old, values, strict=True)
            ],
        )

    def _old_tiles(self, row: Mapping[bytes, bytes]) -> _Tiles:
        """Return the tiles of a row that are to be packed: all but the newest of each step, which still change."""
        newest: dict[int, tuple[int, bytes]] = {}
        tiles = {name: value for name, value in row.items() if name.decode() not in _NOT_TILES}
        for name, value in tiles.items():
            index = _index(value)
            step = _step(name)
            newest[step] = max(newest.get(step, (index, name)), (index, name))
        kept = {name for _, name in newest.values()}
        return {name: value for name, value in tiles.items() if name not in kept}


def _newest(row: Mapping[bytes, bytes]) -> int:
    """Return when the newest tile that is a field begins. Every read is of a moment after that."""
    return max(_step(name) * _index(value) for name, value in row.items() if name.decode() not in _NOT_TILES)


def _index(tile: bytes) -> int:
    return int(tile[1 : tile.index(b",")])


def _step(field: bytes) -> int:
    return int(field.partition(b":")[0]) * SECOND


def _arguments(key: str, row: Mapping[bytes, bytes], new: bytes, tiles: _Tiles) -> Iterator[bytes]:
    """The rest of the call of the script that packs one row.

    Its new batch carries a checksum of the packed field, so that two of the same batch are told apart.
    """
    yield framed(b"1")
    yield framed(key.encode())
    yield framed(row.get(PACKED_BATCH_FIELD.encode(), b""))
    yield framed(b"%d:%08x" % (packed.batch_of(new), zlib.crc32(new)))
    yield framed(new)
    for name, value in tiles.items():
        yield framed(name)
        yield framed(value)
