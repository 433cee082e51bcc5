"""The five bytes before every Avro body: a zero byte and the schema id, as every registry client writes them."""

from __future__ import annotations

import struct

HEADER_BYTES = 5


def frame(schema_id: int) -> bytes:
    return struct.pack(">bI", 0, schema_id)
