"""Writes rows into Postgres: some hundred of them in a transaction, by the rule of `leftfold.store.merge`.

A transaction locks the rows that it finds, in order of their keys, so that two writers never wait for each other. It
merges, packs, and writes what has changed. A row that is new to it is inserted; if another transaction has inserted it
meanwhile, all is begun again.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, LiteralString

import psycopg

from leftfold.errors import StoreError
from leftfold.fold.definition import Definition
from leftfold.store.engine import BuildPlace, Calls, FramedRow
from leftfold.store.frames import unframed
from leftfold.store.layout import PACKED_BATCH_FIELD, PACKED_FIELD
from leftfold.store.merge import Merged, merged
from leftfold.store.packer import FIELDS_AT_MOST, PackedRow, Packer
from leftfold.store.postgres.connection import Again, Pool, lacks_tables
from leftfold.store.postgres.tables import build_id, entity_key
from leftfold.store.row_value import decoded, encoded

# Rows in a transaction: enough that its commit, a write to disk, hardly counts; few enough that others do not wait
# long.
ROWS_PER_TRANSACTION = 500
# A build that was removed takes no rows: the writer is one that was thought dead.
_COUNTED: LiteralString = """\
select c.calls from leftfold_builds b left join leftfold_calls c on c.build = b.id and c.writer = %s
where b.id = %s and not b.retired for key share of b"""
_COUNT: LiteralString = """\
insert into leftfold_calls (build, writer, calls) values (%s, %s, %s)
on conflict (build, writer) do update set calls = greatest(leftfold_calls.calls, excluded.calls)"""
_LOCK: LiteralString = """\
select r.entity, r.value, r.expires is not null and r.expires <= now() from leftfold_rows r
where r.build = %s and r.entity = any(%b::bytea[]) order by r.entity for update"""
_NEW: LiteralString = "unnest(%b::bytea[], %b::bytea[], %b::bigint[]) as n (entity, value, seconds)"
_INSERT: LiteralString = f"""\
insert into leftfold_rows (build, entity, value, expires)
select %s, n.entity, n.value, now() + make_interval(secs => n.seconds) from {_NEW}
on conflict (build, entity) do nothing"""
_UPDATE: LiteralString = f"""\
update leftfold_rows r set value = n.value, expires = now() + make_interval(secs => n.seconds) from {_NEW}
where r.build = %s and r.entity = n.entity"""


def write(
    pool: Pool, at: BuildPlace, rows: Iterable[FramedRow], ttl_s: int, *, packs: Definition | None, repairs: bool
) -> tuple[int, list[Calls]]:
    """Write rows. Returns how many tiles took effect, and the calls that Postgres has counted: its transactions."""
    writer = uuid.uuid4().hex
    written = count = 0
    for some in _parts(rows):
        count += 1
        call = Call(at, Calls(writer, count), some, ttl_s, packs=packs, repairs=repairs)
        try:
            written += pool.transact(call)
        except StoreError as error:
            if not lacks_tables(error.__cause__):
                raise
            break  # the store was emptied: too few calls are counted
    return written, [Calls(writer, count)]


def _parts(rows: Iterable[FramedRow]) -> Iterator[list[FramedRow]]:
    some: list[FramedRow] = []
    for row in rows:
        some.append(row)
        if len(some) == ROWS_PER_TRANSACTION:
            yield some
            some = []
    if some:
        yield some


class Call:
    """One transaction. It may be done again: then it changes nothing more, and its rows are those of the first time."""

    def __init__(
        self,
        at: BuildPlace,
        calls: Calls,
        rows: Sequence[FramedRow],
        ttl_s: int,
        *,
        packs: Definition | None,
        repairs: bool,
    ) -> None:
        self._build, self._calls, self._ttl_s, self._packs, self._repairs = build_id(at), calls, ttl_s, packs, repairs
        self._tiles: dict[bytes, list[bytes]] = {}
        for row in rows:
            self._tiles.setdefault(entity_key(row.entity), []).extend(unframed(row.frames))

    def __call__(self, cursor: psycopg.Cursor[Any]) -> int:
        build, calls = self._build, self._calls
        counted = cursor.execute(_COUNTED, (calls.writer, build)).fetchone()
        # If a call does not find the one before it counted, the store went back in time. It writes nothing, and neither
        # do the calls after it, so that too few are counted when the mark is to move.
        if counted is None or (counted[0] or 0) < calls.count - 1:
            return 0
        keys = sorted(self._tiles)
        found = {key: (value, is_gone) for key, value, is_gone in cursor.execute(_LOCK, (build, keys))}
        rows = {key: {} if is_gone else decoded(value) for key, (value, is_gone) in found.items()}
        after = {key: self._merged(rows.get(key, {}), tiles) for key, tiles in self._tiles.items()}
        changed = {key: after[key] for key in keys if after[key].is_changed}
        if self._packs is not None:
            _packed(self._packs, changed)
        updates, inserts = _arrays(changed, found.keys()), _arrays(changed, changed.keys() - found.keys())
        if inserts[0] and cursor.execute(_INSERT, (build, *inserts)).rowcount < len(inserts[0]):
            raise Again
        if updates[0]:
            cursor.execute(_UPDATE, (*updates, build))
        cursor.execute(_COUNT, (build, calls.writer, calls.count))
        return sum(one.written for one in after.values())

    def _merged(self, held: dict[bytes, bytes], tiles: Sequence[bytes]) -> Merged:
        return merged(held, tiles, self._ttl_s, repairs=self._repairs)


def _arrays(changed: dict[bytes, Merged], keys: Iterable[bytes]) -> tuple[list[bytes], list[bytes], list[int | None]]:
    """Return keys, values and seconds of the changed rows that have one of these keys, in order."""
    mine = sorted(changed.keys() & set(keys))
    return mine, [encoded(changed[key].row) for key in mine], [changed[key].ttl_s or None for key in mine]


def _packed(definition: Definition, changed: dict[bytes, Merged]) -> None:
    """Pack the rows with many tiles as fields, in place."""
    names = {key.hex(): key for key, one in changed.items() if len(one.row) > FIELDS_AT_MOST}
    packer = Packer(definition, _InTransaction({name: changed[key].row for name, key in names.items()}))
    packer.add(names)
    packer.finish()


class _InTransaction:
    """Rows for a packer. Nobody else can change them meanwhile."""

    def __init__(self, rows: dict[str, dict[bytes, bytes]]) -> None:
        self._rows = rows

    def read(self, entities: Sequence[str]) -> list[dict[bytes, bytes]]:
        return [self._rows[entity] for entity in entities]

    def replace(self, rows: Sequence[PackedRow]) -> None:
        for packed in rows:
            row = self._rows[packed.entity]
            row[PACKED_FIELD.encode()], row[PACKED_BATCH_FIELD.encode()] = packed.value, packed.batch
            for name in packed.tiles:
                del row[name]
