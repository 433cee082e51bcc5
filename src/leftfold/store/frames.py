"""Frames texts: each with its length before it, so that many of them travel as one piece of memory.

The frame is that of an argument in Redis' protocol. So rows that Spark has framed go to a Redis as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from leftfold.store.engine import FramedRow


def framed(text: bytes) -> bytes:
    """Return a text with its length before it."""
    return b"$%d\r\n%b\r\n" % (len(text), text)


def framed_sql(column: str) -> str:
    """Return the same of a text column, as an expression of Spark's SQL."""
    return f"'$', octet_length({column}), char(13), char(10), {column}, char(13), char(10)"


def unframed(frames: bytes | memoryview) -> list[bytes]:
    """Return the texts of frames that follow each other."""
    data = bytes(frames)
    found, at = [], 0
    while at < len(data):
        end = data.index(b"\r\n", at)
        start, size = end + 2, int(data[at + 1 : end])
        found.append(data[start : start + size])
        at = start + size + 2
    return found


def framed_row(entity: str, fields: Sequence[str], values: Sequence[str]) -> FramedRow:
    texts = chain.from_iterable(zip(fields, values, strict=True))
    return FramedRow(entity, len(fields), b"".join(framed(text.encode()) for text in texts))
