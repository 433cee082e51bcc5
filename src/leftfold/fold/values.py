"""The kinds of value a field can have, and how one is written as text in a key.

A key's text is what Kafka partitions by and what the online store looks up, so it must be the same from every writer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

Kind = Literal["string", "int", "float", "bool", "datetime", "bytes"]

KEY_KINDS: tuple[Kind, ...] = ("string", "int")
INT64 = 2**63  # an int is a 64-bit one in every engine: what leaves that range is unknown, never wrapped


def is_number(value: Any) -> bool:
    """A number that every engine can hold and that JSON can say."""
    return (type(value) is int and -INT64 <= value < INT64) or (type(value) is float and math.isfinite(value))


def entity_text(parts: Sequence[Any]) -> str:
    """One part stands as it is; several are length-prefixed, so that ("a:b", "c") and ("a", "b:c") differ."""
    if len(parts) == 1:
        return str(parts[0])
    texts = [str(part) for part in parts]
    return "".join(f"{len(text.encode())}:{text}" for text in texts)
