"""The slots of a Redis Cluster, and the hash tags that put what belongs together into one of them.

All rows of a bucket, its mark and its counted calls have one tag, so a script may use them together. All else of a
namespace has another one. The namespace and the view are outside of the tag of a bucket: rows of several views with the
same key are then on one server, so a vector is read from one.

A tag is a natural number, chosen so that bucket b lies in the b-th part of the slots. Servers have ranges of slots, so
each gets its share of the buckets, whatever their number.
"""

from __future__ import annotations

from binascii import crc_hqx
from functools import cache

# Enough that 80 servers get 3 or 4 each, and few enough that moving all marks takes some milliseconds. A constant:
# another number would place every row elsewhere.
BUCKETS = 256
SLOTS = 16_384


def slot_of(key: str) -> int:
    """Return the slot of a key, by Redis' rule: that of the part in the first braces, if there is one."""
    begin = key.find("{") + 1
    end = key.find("}", begin)
    return crc_hqx((key[begin:end] if begin and end > begin else key).encode(), 0) % SLOTS


@cache
def tags() -> tuple[str, ...]:
    """Return the tag of each bucket b: the smallest number whose slot, divided by SLOTS / BUCKETS, is b."""
    found: dict[int, str] = {}
    number = 0
    while len(found) < BUCKETS:
        found.setdefault(slot_of(f"{number}") * BUCKETS // SLOTS, f"{number}")
        number += 1
    return tuple(found[bucket] for bucket in range(BUCKETS))


def control_tag(namespace: str) -> str:
    """Return the tag of what is not in a bucket."""
    return f"control:{namespace}"
