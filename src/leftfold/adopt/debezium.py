"""Recognises Debezium's envelope, and finds the row in it as it is after a change.

An event is flat, so no declaration reads the envelope itself. The declaration describes the form that Debezium's own
transformation writes: the row alone, and a tombstone (a record without a value) for a deleted row.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from leftfold.adopt import avro
from leftfold.adopt.fields import FieldShape

_ENVELOPE = {"before", "after", "source", "op"}


def row_in_schema(schema: str) -> FieldShape | None:
    """The shape of the row in an envelope's Avro schema; None if the schema is not an envelope of rows."""
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
    """True if the record consists of a schema and a payload.

    Kafka Connect's JSON converter puts the schema into every record unless it is configured not to.
    """
    return set(record) == {"schema", "payload"} and isinstance(record["schema"], dict | None)


def is_envelope(records: Sequence[dict[str, Any]]) -> bool:
    return bool(records) and all(set(record) >= _ENVELOPE for record in records)


def key_names(key: bytes | None) -> tuple[str, ...]:
    """The names of the fields in a key that is a JSON object, as Kafka Connect writes keys. Empty for other keys."""
    try:
        parsed = json.loads((key or b"").decode())
    except (ValueError, RecursionError):
        return ()
    if isinstance(parsed, dict) and with_payload(parsed):
        parsed = parsed["payload"]
    return tuple(parsed) if isinstance(parsed, dict) else ()


def key_columns(key_schema: str | None, keys: Sequence[bytes | None]) -> tuple[str, ...]:
    """The columns of the primary key, by which Debezium keys its records. Empty if they are not known."""
    if key_schema is not None:
        try:
            return tuple(f["name"] for f in avro.parsed(key_schema)["fields"])
        except avro.NotARecordError:
            return ()
    return next((names for key in keys if (names := key_names(key))), ())


def advice(topic: str, columns: Sequence[str], *, json_values: bool) -> tuple[str, ...]:
    """The lines of a comment that says how to configure a connector, so that it writes rows that a lf.Table reads."""
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
