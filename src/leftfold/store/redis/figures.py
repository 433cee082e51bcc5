"""Measures what rows cost a Redis in addition to their texts."""

from __future__ import annotations

import redis

from leftfold.store.buckets import bucket_of
from leftfold.store.engine import BuildPlace, Footprint
from leftfold.store.frames import framed_row
from leftfold.store.redis import rows as writing
from leftfold.store.redis.client import pack
from leftfold.store.redis.link import Command, Link
from leftfold.store.redis.names import row_key

# Redis packs short hashes and not long ones. These numbers of fields are on both sides of every limit in use (128 and
# 512).
_PACKED, _LOOSE = (48, 64, 80, 96, 112, 128), (640, 800, 1_000, 1_400)
# A tile of 5 minutes, as a view with a few counts and sums would write it.
_VALUE = "[5966{0:03},12{0:03},{0},17,123456]"
_EACH = 20  # rows of each size
_TTL_S = 600


def measured(link: Link, namespace: str) -> Footprint:
    one = _beside(link, namespace, 1)
    tile = sum((_beside(link, namespace, n) - one) / (n - 1) for n in _PACKED) / len(_PACKED)
    entity = one - tile
    loose = sum((_beside(link, namespace, n) - entity) / n for n in _LOOSE) / len(_LOOSE)
    limits = (_limit(link, f"hash-max-listpack-{what}") for what in ("entries", "value"))
    return Footprint(entity, tile, loose, *limits)


def _beside(link: Link, namespace: str, tiles: int) -> float:
    """Return the bytes of a row with this many tiles, minus its name and its texts."""
    fields = [f"300:{slot}" for slot in range(tiles)]
    values = [_VALUE.format(slot) for slot in range(tiles)]
    at = BuildPlace(namespace, "memory", f"{tiles}")
    entities = [f"{number:06}" for number in range(_EACH)]
    rows = [framed_row(entity, fields, values) for entity in entities]
    writing.write(link, at, rows, _TTL_S, packs=None, repairs=False)
    names = [row_key(at, entity, link.tag(bucket_of(entity, link.buckets))) for entity in entities]
    texts = sum(len(text) for text in (*fields, *values))
    used = link.run([Command(name, (pack("MEMORY", "USAGE", name, "SAMPLES", "0"),)) for name in names])
    return float(sum(used) - sum(map(len, names))) / len(names) - texts


def _limit(link: Link, setting: str) -> int | None:
    try:
        settings: dict[str, str] = link.servers()[0].config_get(setting)
    except redis.ResponseError:  # a managed Redis hides its settings
        return None
    return next((int(value) for value in settings.values()), None)
