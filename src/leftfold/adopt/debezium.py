"""Debezium's envelope: recognised, and looked through to the row as it is after a change.

An event is flat, so no declaration reads the envelope itself. What is declared is the form that Debezium's own
transformation writes: the row alone, and no value at all for a row that was deleted.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from leftfold.adopt import avro
from leftfold.adopt.fields import Shape

_ENVELOPE = {"before", "after", "source", "op"}


def row_in_schema(schema: str) -> Shape | None:
    """The row of an envelope's Avro schema; None if it is no envelope of rows."""
    record = avro.parsed(schema)
    if not {f["name"] for f in record["fields"]} >= _ENVELOPE:
        return None
    named = avro.names_in(record)
    after = next(f["type"] for f in record["fields"] if f["name"] == "after")
    for branch in after if isinstance(after, list) else [after]:
        row = named.get(branch, branch) if isinstance(branch, str) else branch
        if isinstance(row, dict) and row["type"] == "record":
            return avro.record_shape(row, named)
    return None


def with_payload(record: dict[str, Any]) -> bool:
    """Kafka Connect's JSON converter puts the schema into every record unless it is told not to."""
    return set(record) == {"schema", "payload"} and isinstance(record["schema"], dict | None)


def is_envelope(records: Sequence[dict[str, Any]]) -> bool:
    return bool(records) and all(set(record) >= _ENVELOPE for record in records)


def key_names(key: bytes | None) -> tuple[str, ...]:
    """The fields in a key that is an object of JSON, as Kafka Connect writes keys."""
    try:
        found = json.loads((key or b"").decode())
    except (ValueError, RecursionError):
        return ()
    if isinstance(found, dict) and with_payload(found):
        found = found["payload"]
    return tuple(found) if isinstance(found, dict) else ()


def key_columns(key_schema: str | None, keys: Sequence[bytes | None]) -> tuple[str, ...]:
    """The columns of the primary key, which is what Debezium keys its records by; none if it cannot be told."""
    if key_schema is not None:
        try:
            return tuple(f["name"] for f in avro.parsed(key_schema)["fields"])
        except avro.NotARecordError:
            return ()
    return next((names for key in keys if (names := key_names(key))), ())


def advice(topic: str, columns: Sequence[str], *, json_values: bool) -> tuple[str, ...]:
    """How a connector writes rows that a lf.Table reads, line by line."""
    column = columns[0] if len(columns) == 1 else "COLUMN"
    lines = [
        f"{topic} holds Debezium's envelope (before, after, source, op), and views read flat records.",
        "Let the connector write the row alone, into a topic with cleanup.policy=compact, and adopt that topic:",
        "  transforms=unwrap,key",
        "  transforms.unwrap.type=io.debezium.transforms.ExtractNewRecordState",
        "  transforms.unwrap.delete.tombstone.handling.mode=tombstone   (older releases: drop.tombstones=false)",
        "  transforms.key.type=org.apache.kafka.connect.transforms.ExtractField$Key",
        f"  transforms.key.field={column}",
        "  key.converter=org.apache.kafka.connect.storage.StringConverter",
        *(["  value.converter.schemas.enable=false"] if json_values else []),
        "A deleted row is then a record without a value, its key the text of one column: so a lf.Table knows the row.",
    ]
    if len(columns) > 1:
        names = ", ".join(columns)
        lines.append(
            f"Here the primary key has {len(columns)} columns ({names}), and Connect writes no such text of them:"
        )
        lines.append("a table would hold its rows, but never see one deleted.")
    return tuple(lines)
