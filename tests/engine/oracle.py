"""An independent recomputation of the `AccountActivity` tiles in plain Python, from the log itself.

It shares no code with what it checks: it has its own consumer, decoding, arithmetic and tiles.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

import psycopg
import redis

from leftfold.fold.definition import Definition
from leftfold.store.layout import definition_in
from leftfold.store.packed import unpack
from tests.engine.log import read_topic
from tests.engine.stores import cluster_client

LATENESS_MS = 600_000
FUTURE_MS = 60_000
STEPS_S = (300, 3_600)
# Slots of the rings, by hand: (window + finest step + tolerance) / step, rounded up, plus two.
RINGS = {300: -(-(3_600 + 300 + 60) // 300) + 2, 3_600: -(-(7 * 86_400 + 300 + 60) // 3_600) + 2}


@dataclass
class Log:
    """Everything read back from a topic, and the tiles that follow from it."""

    ids: Counter[int] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    tiles: dict[tuple[str, int, int], list[Any]] = field(default_factory=dict)
    _newest: dict[tuple[str, int, int, str], tuple[int, int, int]] = field(default_factory=dict)

    def add(self, record: dict[str, Any], log_ms: int, partition: int, offset: int) -> None:
        self.ids[record["id"]] += 1
        event_us = round(record["at"].timestamp() * 1_000_000)
        if log_ms * 1_000 - event_us > LATENESS_MS * 1_000:
            self.outcomes["late"] += 1
            return
        if event_us - log_ms * 1_000 > FUTURE_MS * 1_000:
            self.outcomes["future"] += 1
            return
        self.outcomes["accepted"] += 1
        for step in STEPS_S:
            tile = (record["account"], step, event_us // (step * 1_000_000))
            values = self.tiles.setdefault(tile, [0, 0, None, None, None, None])
            values[0] += 1
            values[1] += record["amount"] > 100 and record["points"] >= 5
            cents = Decimal(repr(record["amount"])).quantize(Decimal("0.000001"), ROUND_HALF_UP)
            values[2] = (values[2] or 0) + int(cents.scaleb(6))
            values[3] = (values[3] or 0) + record["points"]
            self._last(tile, 4, record["note"], (event_us, partition, offset))
            self._last(tile, 5, record["amount"], (event_us, partition, offset))

    def _last(self, tile: tuple[str, int, int], column: int, value: Any, position: tuple[int, int, int]) -> None:
        known = self._newest.get((*tile, str(column)))
        if value is not None and (known is None or position > known):
            self._newest[(*tile, str(column))] = position
            self.tiles[tile][column] = value

    def slots(self) -> dict[tuple[str, str], tuple[int, list[Any]]]:
        """Return what a store of rings holds in the end: (entity, field) -> (tile index, partials)."""
        held: dict[tuple[str, str], tuple[int, list[Any]]] = {}
        for (account, step, index), values in self.tiles.items():
            slot = (account, f"{step}:{index % RINGS[step]}")
            if slot not in held or held[slot][0] < index:
                held[slot] = (index, values)
        return held


def read_log(bootstrap: str, topic: str, schemas: dict[int, str]) -> Log:
    """Read the whole topic once, up to the end offsets that it has now."""
    log = Log()
    for logged in read_topic(bootstrap, topic, schemas):
        assert logged.by_broker
        if logged.record is None:
            log.outcomes["rejected"] += 1
        else:
            log.add({"note": None, **logged.record}, logged.log_us // 1_000, logged.partition, logged.offset)
    return log


def read_store(url: str, prefix: str) -> dict[tuple[str, str], tuple[int, list[Any]]]:
    """Return what a build's rows hold: (entity, field) -> (index, partials). A packed tile gets the field of its slot.

    It is taken out of the packed value by the reader's own code, which has an oracle of its own.
    """
    held: dict[tuple[str, str], tuple[int, list[Any]]] = {}
    read = {"postgresql": _rows_in_postgres, "redis+cluster": _rows_in_cluster}.get(url.partition(":")[0])
    manifest, rows = (read or _rows_in_redis)(url, prefix)
    definition = None if manifest is None else definition_in(json.loads(manifest))
    for entity, row in rows:
        packed = row.pop(b"packed", None)
        row.pop(b"packed_batch", None)
        for name, value in row.items():
            index, _batch, *partials = json.loads(value)
            held[entity, name.decode()] = (index, partials)
        if packed is not None:
            assert isinstance(definition, Definition)
            for step, tiles in unpack(definition, packed).items():
                for index, _batch, *partials in tiles:
                    slot = (entity, f"{step // 1_000_000}:{index % definition.rings[step]}")
                    if slot not in held or held[slot][0] < index:
                        held[slot] = (index, partials)
    return held


Rows = Iterator[tuple[str, dict[bytes, bytes]]]


def _rows_in_redis(url: str, prefix: str) -> tuple[Any, Rows]:
    client = redis.Redis.from_url(url)
    keys = list(client.scan_iter(match=f"{prefix}*", count=10_000))

    def rows() -> Rows:
        for start in range(0, len(keys), 1_000):
            pipeline = client.pipeline(transaction=False)
            chunk = keys[start : start + 1_000]
            for key in chunk:
                pipeline.hgetall(key)
            for key, row in zip(chunk, pipeline.execute(), strict=True):
                yield key.decode().removeprefix(prefix), row

    return client.get(prefix.rstrip(":").replace(":row:", ":build:", 1)), rows()


def _rows_in_cluster(url: str, prefix: str) -> tuple[Any, Rows]:
    client = cluster_client(url)
    rest = prefix.removeprefix("lf:")
    namespace, _, view, build, _ = rest.split(":")
    keys = [key.decode() for key in client.scan_iter(match=f"lf:{{*}}:{rest}*", count=10_000)]
    rows = ((key.partition(f"}}:{rest}")[2], client.hgetall(key)) for key in keys)
    return client.get(f"lf:{{control:{namespace}}}:{namespace}:build:{view}:{build}"), rows


def _rows_in_postgres(url: str, prefix: str) -> tuple[Any, Rows]:
    _, namespace, _, view, build, _ = prefix.split(":")
    with psycopg.connect(url) as connection:
        if "search_path" not in url:
            connection.execute("set search_path = leftfold")
        which = "namespace = %s and view = %s and build = %s"
        found = connection.execute(
            f"select id, manifest from leftfold_builds where {which}".encode(), (namespace, view, build)
        ).fetchone()
        id, manifest = found or (None, None)
        rows = connection.execute("select entity, value from leftfold_rows where build = %s", (id,)).fetchall()
    return manifest, ((entity.decode(), _fields(value)) for entity, value in rows)


def _fields(value: bytes) -> dict[bytes, bytes]:
    """Take a row's value apart, as the protocol says."""
    assert value[0] == 1
    count = int.from_bytes(value[1:5], "little")
    names, values, fields = [], [], {}
    for number in range(count):
        start = 5 + 6 * number
        names.append(int.from_bytes(value[start : start + 2], "little"))
        values.append(int.from_bytes(value[start + 2 : start + 6], "little"))
    at = 5 + 6 * count
    for name, size in zip(names, values, strict=True):
        fields[value[at : at + name]] = value[at + name : at + name + size]
        at += name + size
    assert at == len(value)
    return fields


def differences(expected: dict[Any, Any], found: dict[Any, Any]) -> list[str]:
    slots = expected.keys() | found.keys()
    return [f"{s}: log {expected.get(s)}, store {found.get(s)}" for s in slots if expected.get(s) != found.get(s)]


def check_tiles(log: Log, url: str, prefix: str) -> int:
    """Check a store's rows against the log. Return the number of tiles compared."""
    expected = log.slots()
    wrong = differences(expected, read_store(url, prefix))
    assert not wrong, f"online: {len(wrong)} of {len(expected)} tiles differ: {wrong[:3]}"
    return len(expected)


def check_ledger(log: Log, ledger: Iterable[tuple[str, int]]) -> None:
    """Check the outcomes that a view counted (outcome, number of records) against the log."""
    counted = dict.fromkeys(log.outcomes, 0)
    for outcome, records in ledger:
        counted[outcome] += records
    assert counted == dict(log.outcomes)
