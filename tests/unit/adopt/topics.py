"""Topics as they might be found, and their adopted declarations loaded."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

from fastavro import parse_schema, schemaless_writer

import leftfold as lf
from leftfold.adopt.adopting import Adopted, adopt
from leftfold.adopt.look import Looked
from leftfold.declare.framing import frame
from leftfold.errors import DeclarationError
from leftfold.kafka.log_reader import Logged
from tests import clusters

LOG_US = 1_790_000_000_000_000
CONFIGS = {"cleanup.policy": "delete", "retention.ms": "604800000", "message.timestamp.type": "LogAppendTime"}


def record(value: bytes | None, *, key: bytes | None = None, offset: int = 0, log_us: int = LOG_US) -> Logged:
    return Logged("orders", 0, offset, log_us, True, key, value)


def avro_value(schema: Any, schema_id: int, fields: Mapping[str, Any]) -> bytes:
    buffer = io.BytesIO()
    buffer.write(frame(schema_id))
    schemaless_writer(buffer, parse_schema(schema), dict(fields))
    return buffer.getvalue()


def avro_record(*fields: Any, name: str = "Order", **more: Any) -> dict[str, Any]:
    """Of pairs of a name and a type, or of whole fields."""
    made = [f if isinstance(f, dict) else {"name": f[0], "type": f[1]} for f in fields]
    return {"type": "record", "name": name, "fields": made, **more}


def looked(
    *versions: Any,
    records: Sequence[Logged] = (),
    others: Mapping[int, Any] | None = None,
    key_schema: Any = None,
    name: str = "orders",
    partitions: int = 6,
    replicas: int = 3,
    **configs: str,
) -> Looked:
    """`versions` are schemas of the topic's subject, the first with id 1. `configs` have _ for a dot."""
    settings = {**CONFIGS, **{k.replace("_", "."): v for k, v in configs.items()}}
    return Looked(
        clusters.seen_topic(name, partitions, replicas, settings, records=600),
        {number: json.dumps(schema) for number, schema in enumerate(versions, start=1)},
        {number: json.dumps(schema) for number, schema in (others or {}).items()},
        None if key_schema is None else json.dumps(key_schema),
        tuple(records),
    )


def objects(*values: Any, keys: Sequence[bytes | None] = ()) -> list[Logged]:
    """Records of JSON."""
    given = [*keys, *([None] * (len(values) - len(keys)))]
    return [record(json.dumps(v).encode(), key=k, offset=n) for n, (v, k) in enumerate(zip(values, given, strict=True))]


def adopted(*versions: Any, **options: Any) -> Adopted:
    return adopt(looked(*versions, **options))


def loaded(text: str) -> dict[str, Any]:
    """What the text defines, up to where it refuses to go on."""
    names: dict[str, Any] = {"__name__": "adopted"}
    try:
        exec(compile(text, "adopted.py", "exec", dont_inherit=True), names)
    except DeclarationError as error:
        names["refused"] = error
    return names


def event_of(made: Adopted) -> type[lf.Event]:
    event = loaded(made.text)[made.event]
    assert isinstance(event, type)
    assert issubclass(event, lf.Event)
    return event


def topic_of(made: Adopted) -> lf.Topic[Any]:
    names = loaded(made.text)
    assert "refused" not in names, str(names["refused"])
    (topic,) = (value for value in names.values() if isinstance(value, lf.Topic))
    return topic
