"""The kinds of value a field can have, and how one is written as text in a key.

A key's text is what Kafka partitions by and what the online store looks up, so it must be the same from every writer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

Kind = Literal["string", "int", "float", "bool", "datetime", "bytes"]

KEY_KINDS: tuple[Kind, ...] = ("string", "int")


def entity_text(parts: Sequence[Any]) -> str:
    """One part stands as it is; several are length-prefixed, so that ("a:b", "c") and ("a", "b:c") differ."""
    texts = [str(part) for part in parts]
    if len(texts) == 1:
        return texts[0]
    return "".join(f"{len(text.encode())}:{text}" for text in texts)
