"""Decodes the records of a topic and their keys, with the writer schemas that they ask for."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from leftfold.declare.topic import Topic
from leftfold.kafka.decode import Read, Schemas, avro_reader, json_reader


class WriterSchemas:
    """Schemas by id: those that are known, and those that `ask` finds. It remembers which ids nobody gave out."""

    def __init__(self, known: Mapping[int, str], ask: Callable[[int], str | None] | None) -> None:
        self.known = dict(known)
        self.rejected: set[int] = set()
        self._ask = ask

    def __call__(self, schema_id: int) -> str | None:
        if schema_id not in self.known and schema_id not in self.rejected:
            schema = None if self._ask is None else self._ask(schema_id)
            if schema is None:
                self.rejected.add(schema_id)
            else:
                self.known[schema_id] = schema
        return self.known.get(schema_id)


def decoder(topic: Topic[Any], fields: Collection[str], schemas: Schemas) -> Read:
    """Return the function that decodes these fields of a record's value, as liberally as Spark does."""
    if topic.format == "json":
        return json_reader(topic.event, fields, text_of_all=True)
    return avro_reader(topic.event, fields, schemas, bad_text="surrogateescape")


def text_of_key(key: bytes | None) -> str | None:
    """Return the text of a record's key; None if it has none, or one that is not UTF-8."""
    try:
        return None if key is None else key.decode()
    except UnicodeDecodeError:
        return None
