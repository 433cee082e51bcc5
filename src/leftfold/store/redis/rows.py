"""Writes rows into a Redis: many rows in a call of the script, many calls in a round trip."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from leftfold.fold.definition import Definition
from leftfold.store.engine import BuildPlace, Calls, FramedRow
from leftfold.store.frames import framed
from leftfold.store.packer import FIELDS_AT_MOST, PackedRow, Packer
from leftfold.store.redis.client import pack, run_scripts
from leftfold.store.redis.names import names_of, row_key
from leftfold.store.redis.scripts import PACK, WRITE_ROWS

# Tiles per script call: many enough that the round trip hardly counts, few enough (about a millisecond) that readers,
# who wait while a script runs, do not notice.
TILES_PER_CALL = 500
CALLS_PER_ROUND_TRIP = 16
_ANY_NUMBER = 1 << 31  # of fields of a row that is never packed


def write(
    client: Any, at: BuildPlace, rows: Iterable[FramedRow], ttl_s: int, *, packs: Definition | None, repairs: bool
) -> tuple[int, Calls]:
    """Write rows. Returns how many tiles took effect, and the calls that Redis has counted."""
    writer = uuid.uuid4().hex
    opening = framed(b"EVALSHA") + framed(client.script_load(WRITE_ROWS).encode())
    prefix = row_key(at, "")
    counted, named = framed(names_of(at).calls(at.build).encode()), framed(writer.encode())
    numbers = (ttl_s, _ANY_NUMBER if packs is None else FIELDS_AT_MOST)
    options = b"".join(framed(b"%d" % number) for number in numbers) + framed(b"repair" if repairs else b"batch")
    written = count = 0
    packer = None if packs is None else Packer(packs, RedisRows(client, at))
    waiting = _calls_of(rows)
    while round_trip := list(islice(waiting, CALLS_PER_ROUND_TRIP)):
        commands: list[list[bytes | memoryview]] = []
        for some in round_trip:
            count += 1
            tiles = sum(row.tiles for row in some)
            pieces: list[bytes | memoryview] = [
                b"*%d\r\n" % (9 + 2 * len(some) + 2 * tiles),
                opening,
                framed(b"%d" % (1 + len(some))),
                counted,
                *(framed((prefix + row.entity).encode()) for row in some),
                named,
                framed(b"%d" % count),
                options,
            ]
            for row in some:
                pieces += (framed(b"%d" % row.tiles), row.frames)
            commands.append(pieces)
        for some, (tiles, *full) in zip(round_trip, run_scripts(client, commands), strict=True):
            written += tiles
            if packer is not None:
                packer.add(some[number].entity for number in full)
    if packer is not None:
        packer.finish()
    return written, Calls(writer, count)


def _calls_of(rows: Iterable[FramedRow]) -> Iterator[list[FramedRow]]:
    """Yield the rows of each call."""
    some: list[FramedRow] = []
    tiles = 0
    for row in rows:
        some.append(row)
        tiles += row.tiles
        if tiles >= TILES_PER_CALL:
            yield some
            some, tiles = [], 0
    if some:
        yield some


class RedisRows:
    """The rows of a build, for a packer."""

    def __init__(self, client: Any, at: BuildPlace) -> None:
        self._client = client
        self._prefix = row_key(at, "")

    def read(self, entities: Sequence[str]) -> list[dict[bytes, bytes]]:
        answers = run_scripts(self._client, [[pack("HGETALL", self._prefix + entity)] for entity in entities])
        return [dict(zip(answer[0::2], answer[1::2], strict=True)) for answer in answers]

    def replace(self, rows: Sequence[PackedRow]) -> None:
        opening = framed(b"EVALSHA") + framed(self._client.script_load(PACK).encode())
        run_scripts(
            self._client,
            [[b"*%d\r\n" % (7 + 2 * len(row.tiles)), opening, *self._arguments(row)] for row in rows],
        )

    def _arguments(self, row: PackedRow) -> Iterator[bytes]:
        """Yield the rest of the call of the script that packs one row."""
        yield framed(b"1")
        yield framed((self._prefix + row.entity).encode())
        yield framed(row.before)
        yield framed(row.batch)
        yield framed(row.value)
        for name, value in row.tiles.items():
            yield framed(name)
            yield framed(value)
