"""The kinds of values that a field can have, and the text of values in a key.

A key's text decides the Kafka partition, and the online store finds a row by it. So it must be the same from every
writer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

Kind = Literal["string", "int", "float", "bool", "datetime", "bytes"]

KEY_KINDS: tuple[Kind, ...] = ("string", "int")
INT64 = 2**63  # every engine has ints of 64 bits: a value out of range is unknown, never wrapped


def is_number(value: Any) -> bool:
    """Return whether a value is a number that every engine can hold and that JSON can express."""
    return (type(value) is int and -INT64 <= value < INT64) or (type(value) is float and math.isfinite(value))


def entity_text(parts: Sequence[Any]) -> str:
    """The text of a key. A single part is used unchanged.

    Several parts are each prefixed with their length, so that ("a:b", "c") and ("a", "b:c") differ.
    """
    if len(parts) == 1:
        return str(parts[0])
    texts = [str(part) for part in parts]
    return "".join(f"{len(text.encode())}:{text}" for text in texts)
