"""Of a Redis at hand: the memory in use, what rows cost beside their texts, and the server's time for a tile."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import redis

from leftfold.store.client import connect, reaching
from leftfold.store.writer import write_rows

# Redis packs short hashes and not long ones: numbers of fields on either side of any limit in use (128 and 512).
_PACKED, _LOOSE = (48, 64, 80, 96, 112, 128), (640, 800, 1_000, 1_400)
# A tile of 5 minutes, as a view with a few counts and sums would write it.
_VALUE = "[5966{0:03},12{0:03},{0},17,123456]"
_EACH = 20  # rows of each size
_TTL_S = 600


@dataclass(frozen=True)
class Memory:
    entity: float  # of a row beside its name and tiles
    tile: float  # beside its text, in a packed row
    loose_tile: float  # ... and in one that is not
    packed_tiles: int | None  # the server's limits of packing; None if it does not tell
    packed_value: int | None


@dataclass(frozen=True)
class MemoryInUse:
    used: int  # bytes
    limit: int  # 0: as much as its machine has
    policy: str  # what it does at the limit


def memory_in_use(url: str) -> MemoryInUse | None:
    """None if the server does not tell. Its settings may be hidden; what INFO says of them mostly is not."""
    with connect(url) as client, reaching(client):
        try:
            told: dict[str, Any] = client.info("memory")
        except redis.ResponseError:  # a command that this user may not run
            return None
    if not {"used_memory", "maxmemory", "maxmemory_policy"} <= told.keys():
        return None
    return MemoryInUse(int(told["used_memory"]), int(told["maxmemory"]), str(told["maxmemory_policy"]))


def measured(url: str, namespace: str) -> Memory:
    """Writes a few hundred rows under a namespace that is the caller's to remove."""
    with connect(url) as client, reaching(client):
        one = _beside(client, url, namespace, 1)
        tile = sum((_beside(client, url, namespace, n) - one) / (n - 1) for n in _PACKED) / len(_PACKED)
        entity = one - tile
        loose = sum((_beside(client, url, namespace, n) - entity) / n for n in _LOOSE) / len(_LOOSE)
        limits = (_limit(client, f"hash-max-listpack-{what}") for what in ("entries", "value"))
        return Memory(entity, tile, loose, *limits)


def _beside(client: Any, url: str, namespace: str, tiles: int) -> float:
    """Bytes of a row of so many tiles, less its name and its texts."""
    fields = [f"300:{slot}" for slot in range(tiles)]
    values = [_VALUE.format(slot) for slot in range(tiles)]
    names = [f"lf:{namespace}:row:memory:{tiles}-{number:06}" for number in range(_EACH)]
    write_rows(url, [(name, fields, values) for name in names], _TTL_S)
    texts = sum(len(text) for text in (*fields, *values))
    used = [int(client.execute_command("MEMORY", "USAGE", name, "SAMPLES", 0)) for name in names]
    return sum(used) / len(used) - len(names[0]) - texts


def _limit(client: Any, setting: str) -> int | None:
    try:
        found: dict[str, str] = client.config_get(setting)
    except redis.ResponseError:  # a managed Redis hides its settings
        return None
    return next((int(value) for value in found.values()), None)


def script_seconds(url: str) -> float:
    """How long this server has run scripts since it was started. It runs one at a time, and every write is one."""
    with connect(url) as client, reaching(client):
        found = client.info("commandstats").get("cmdstat_evalsha", {})
        return float(found.get("usec", 0)) / 1e6


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
