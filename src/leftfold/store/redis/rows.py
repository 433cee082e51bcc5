"""Writes rows into a Redis: many rows in a call of the script, many calls in a round trip."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from functools import cache

from leftfold.fold.definition import Definition
from leftfold.store.buckets import bucket_of
from leftfold.store.engine import BuildPlace, Calls, FramedRow
from leftfold.store.frames import framed
from leftfold.store.packer import FIELDS_AT_MOST, PackedRow, Packer
from leftfold.store.redis.link import Command, Link, command, opening_of
from leftfold.store.redis.names import names_of, row_key
from leftfold.store.redis.scripts import PACK, WRITE_ROWS

# Tiles per script call: many enough that the round trip hardly counts, few enough (about a millisecond) that readers,
# who wait while a script runs, do not notice.
TILES_PER_CALL = 500
CALLS_PER_ROUND_TRIP = 16
_ANY_NUMBER = 1 << 31  # of fields of a row that is never packed

_Call = tuple[int, list[FramedRow]]  # a bucket, and some of its rows


def write(
    link: Link, at: BuildPlace, rows: Iterable[FramedRow], ttl_s: int, *, packs: Definition | None, repairs: bool
) -> tuple[int, list[Calls]]:
    """Write rows. Returns how many tiles took effect, and the calls of each bucket that Redis has counted."""
    writer = uuid.uuid4().hex
    opening, named = opening_of(link.load(WRITE_ROWS)), framed(writer.encode())
    numbers = (ttl_s, _ANY_NUMBER if packs is None else FIELDS_AT_MOST)
    options = b"".join(framed(b"%d" % number) for number in numbers) + framed(b"repair" if repairs else b"batch")
    counts: dict[int, int] = {}  # calls, by bucket
    packer = None if packs is None else Packer(packs, RedisRows(link, at))
    written = 0

    def packed(bucket: int, some: list[FramedRow]) -> Command:
        tag = link.tag(bucket)
        calls, prefix = names_of(at, tag).calls(at.build), row_key(at, "", tag)
        counts[bucket] = counts.get(bucket, 0) + 1
        pieces: list[bytes | memoryview] = [
            b"*%d\r\n" % (9 + 2 * len(some) + 2 * sum(row.tiles for row in some)),
            opening,
            framed(b"%d" % (1 + len(some))),
            framed(calls.encode()),
            *(framed((prefix + row.entity).encode()) for row in some),
            named,
            framed(b"%d" % counts[bucket]),
            options,
        ]
        for row in some:
            pieces += (framed(b"%d" % row.tiles), row.frames)
        return Command(calls, pieces)

    for round_trip in _round_trips(rows, link.buckets):
        answers = link.run([packed(*call) for call in round_trip])
        for (_, some), (tiles, *full) in zip(round_trip, answers, strict=True):
            written += tiles
            if packer is not None:
                packer.add(some[number].entity for number in full)
    if packer is not None:
        packer.finish()
    return written, [Calls(writer, count, bucket) for bucket, count in counts.items()]


def _round_trips(rows: Iterable[FramedRow], buckets: int) -> Iterator[list[_Call]]:
    """Yield the calls of each round trip. Rows of a bucket stay in their order."""
    whole: list[_Call] = []
    begun: dict[int, list[FramedRow]] = {}
    sizes: dict[int, int] = {}
    tiles = 0
    for row in rows:
        bucket = bucket_of(row.entity, buckets)
        begun.setdefault(bucket, []).append(row)
        sizes[bucket] = sizes.get(bucket, 0) + row.tiles
        tiles += row.tiles
        if sizes[bucket] >= TILES_PER_CALL:
            whole.append((bucket, begun.pop(bucket)))
            del sizes[bucket]
        if tiles >= TILES_PER_CALL * CALLS_PER_ROUND_TRIP:
            yield [*whole, *begun.items()]
            whole, begun, sizes, tiles = [], {}, {}, 0
    if whole or begun:
        yield [*whole, *begun.items()]


class RedisRows:
    """The rows of a build, for a packer."""

    def __init__(self, link: Link, at: BuildPlace) -> None:
        self._link = link
        self._prefix = cache(lambda bucket: row_key(at, "", link.tag(bucket)))

    def read(self, entities: Sequence[str]) -> list[dict[bytes, bytes]]:
        answers = self._link.run([command("HGETALL", self._key(entity)) for entity in entities])
        return [dict(zip(answer[0::2], answer[1::2], strict=True)) for answer in answers]

    def replace(self, rows: Sequence[PackedRow]) -> None:
        opening = opening_of(self._link.load(PACK))
        self._link.run(
            [
                Command(key, [b"*%d\r\n" % (7 + 2 * len(row.tiles)), opening, *_arguments(key, row)])
                for row in rows
                for key in [self._key(row.entity)]
            ]
        )

    def _key(self, entity: str) -> str:
        return self._prefix(bucket_of(entity, self._link.buckets)) + entity


def _arguments(key: str, row: PackedRow) -> Iterator[bytes]:
    """Yield the rest of the call of the script that packs one row."""
    yield framed(b"1")
    yield framed(key.encode())
    yield framed(row.before)
    yield framed(row.batch)
    yield framed(row.value)
    for name, value in row.tiles.items():
        yield framed(name)
        yield framed(value)
