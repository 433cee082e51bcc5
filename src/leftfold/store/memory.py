"""Measures a Redis: its memory in use, what rows cost in addition to their texts, and its time for scripts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import redis

from leftfold.store.client import connect, reaching
from leftfold.store.writer import framed_row, write_rows

# Redis packs short hashes and not long ones. These numbers of fields are on both sides of every limit in use (128 and
# 512).
_PACKED, _LOOSE = (48, 64, 80, 96, 112, 128), (640, 800, 1_000, 1_400)
# A tile of 5 minutes, as a view with a few counts and sums would write it.
_VALUE = "[5966{0:03},12{0:03},{0},17,123456]"
_EACH = 20  # rows of each size
_TTL_S = 600


@dataclass(frozen=True)
class Memory:
    entity: float  # bytes of a row in addition to its name and tiles
    tile: float  # bytes of a tile in addition to its text, in a packed row
    loose_tile: float  # the same in a row that is not packed
    packed_tiles: int | None  # the server's limits of packing; None if it does not report them
    packed_value: int | None


@dataclass(frozen=True)
class MemoryInUse:
    used: int  # bytes
    limit: int  # 0: as much as the machine has
    policy: str  # eviction policy: what Redis does at the limit


def memory_in_use(url: str) -> MemoryInUse | None:
    """Return the server's memory in use and its limit; None if the server does not report them.

    A server may hide its settings, but INFO mostly shows these.
    """
    with connect(url) as client, reaching(client):
        try:
            info: dict[str, Any] = client.info("memory")
        except redis.ResponseError:  # this user may not run the command
            return None
    if not {"used_memory", "maxmemory", "maxmemory_policy"} <= info.keys():
        return None
    return MemoryInUse(int(info["used_memory"]), int(info["maxmemory"]), str(info["maxmemory_policy"]))


def measured(url: str, namespace: str) -> Memory:
    """Write a few hundred rows and measure their cost in memory. The caller must remove the namespace afterwards."""
    with connect(url) as client, reaching(client):
        one = _beside(client, url, namespace, 1)
        tile = sum((_beside(client, url, namespace, n) - one) / (n - 1) for n in _PACKED) / len(_PACKED)
        entity = one - tile
        loose = sum((_beside(client, url, namespace, n) - entity) / n for n in _LOOSE) / len(_LOOSE)
        limits = (_limit(client, f"hash-max-listpack-{what}") for what in ("entries", "value"))
        return Memory(entity, tile, loose, *limits)


def _beside(client: Any, url: str, namespace: str, tiles: int) -> float:
    """Return the bytes of a row with this many tiles, minus its name and its texts."""
    fields = [f"300:{slot}" for slot in range(tiles)]
    values = [_VALUE.format(slot) for slot in range(tiles)]
    names = [f"lf:{namespace}:row:memory:{tiles}-{number:06}" for number in range(_EACH)]
    rows = [framed_row(name, fields, values) for name in names]
    write_rows(url, rows, _TTL_S, calls=f"lf:{namespace}:calls:memory")
    texts = sum(len(text) for text in (*fields, *values))
    used = [int(client.execute_command("MEMORY", "USAGE", name, "SAMPLES", 0)) for name in names]
    return sum(used) / len(used) - len(names[0]) - texts


def _limit(client: Any, setting: str) -> int | None:
    try:
        settings: dict[str, str] = client.config_get(setting)
    except redis.ResponseError:  # a managed Redis hides its settings
        return None
    return next((int(value) for value in settings.values()), None)


def script_seconds(url: str) -> float:
    """Return how many seconds this server has run scripts since it was started.

    It runs one script at a time, and every write of rows is a script.
    """
    with connect(url) as client, reaching(client):
        stats = client.info("commandstats").get("cmdstat_evalsha", {})
        return float(stats.get("usec", 0)) / 1e6


def remove_namespace(url: str, namespace: str) -> None:
    assert namespace, "without a namespace this would be everything"
    with connect(url) as client, reaching(client):
        for chunk in _chunks(client.scan_iter(match=f"lf:{namespace}:*", count=10_000)):
            client.unlink(*chunk)


def _chunks(keys: Iterator[bytes]) -> Iterator[list[bytes]]:
    chunk: list[bytes] = []
    for key in keys:
        chunk.append(key)
        if len(chunk) == 1_000:
            yield chunk
            chunk = []
    if chunk:
        yield chunk
