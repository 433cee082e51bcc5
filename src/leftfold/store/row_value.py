"""A row as one value, for stores that know only keys and values (docs/reference/protocol.md says the same).

byte 1        the version, 1
bytes 2 to 5  the number of fields
then          of each field the length of its name (2 bytes) and of its value (4 bytes)
then          of each field its name and its value

Numbers are unsigned and in little endian. Fields are in no particular order.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from itertools import chain

from leftfold.errors import StoreError

VERSION = 1
_HEAD = struct.Struct("<BI")


def encoded(row: Mapping[bytes, bytes]) -> bytes:
    """Return the value of a row."""
    lengths = chain.from_iterable((len(name), len(value)) for name, value in row.items())
    heads = struct.pack("<" + "HI" * len(row), *lengths)
    return b"".join((_HEAD.pack(VERSION, len(row)), heads, *chain.from_iterable(row.items())))


def fields_in(value: bytes) -> list[bytes]:
    """Return the fields of a row: name, value, name, value, …"""
    version, count = _HEAD.unpack_from(value)
    if version != VERSION:
        raise StoreError(
            "packed-row-unreadable",
            "a row cannot be read",
            why=f"its value has version {version}, this release reads {VERSION}",
            fix="use the release of Leftfold that runs the view",
        )
    form = struct.Struct("<" + "HI" * count)
    at, found = _HEAD.size + form.size, []
    for length in form.unpack_from(value, _HEAD.size):
        found.append(value[at : at + length])
        at += length
    return found


def decoded(value: bytes) -> dict[bytes, bytes]:
    """Return the row that a value holds."""
    fields = fields_in(value)
    return dict(zip(fields[0::2], fields[1::2], strict=True))
