"""Synthetic records in bulk, as the bytes of those that `declare.synthetic` makes, without a dict for each.

Strings and ints are some of 10,000 each, so their bytes are made once and looked up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from leftfold.declare.event import EventField, fields_of
from leftfold.declare.framing import frame
from leftfold.declare.synthetic import drawn
from leftfold.declare.topic import Topic
from leftfold.kafka.encode import Encode, field_encoder


def avro_synthetic(
    topic: Topic[Any], count: int, *, seed: int, schema_id: int, key: Encode
) -> Iterator[tuple[bytes, bytes]]:
    """Make the keys and values of `count` records. `key` makes the bytes of a record's key from its fields."""
    fields, header = fields_of(topic.event), frame(schema_id)
    names = list(fields)
    places = {k.name: names.index(k.name) for k in topic.key}
    values_of: dict[str, dict[bytes, Any]] = {name: {} for name in places}  # of the key's fields, by their bytes

    def form(field: EventField) -> Callable[[Any], bytes]:
        encode = field_encoder(topic.event, field, header if field.name == names[0] else b"")
        values = values_of.get(field.name)
        if values is None:
            return encode

        def remembered(value: Any) -> bytes:
            made = encode(value)
            values[made] = value
            return made

        return remembered

    records, join = drawn(topic, count, form, seed=seed), b"".join
    (first, place), *others = places.items()
    if not others and fields[first].kind == "string":
        # Avro writes the text of the key after its length, which is one byte: a letter and a number are short. To cut
        # it out takes less time than a dict of all keys, which does not fit into the processor's caches.
        begin = 1 + (len(header) if place == 0 else 0)
        for parts in records:
            yield parts[place][begin:], join(parts)
        return
    for parts in records:
        yield key({name: values_of[name][parts[at]] for name, at in places.items()}), join(parts)
