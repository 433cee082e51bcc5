"""Tables: the newest row of each key of a compacted topic, declared as a class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

from leftfold.declare import collector
from leftfold.declare.aggregates import Feature, Taken
from leftfold.declare.event import fields_of, reference
from leftfold.declare.features import checked_default, nameless
from leftfold.declare.keys import declared_keys
from leftfold.declare.labels import refuse_labels
from leftfold.declare.names import check_name, check_view_name, snake
from leftfold.declare.reading import Reading, reading
from leftfold.declare.rows import Row
from leftfold.declare.sinks import Online, Sink, checked_sinks
from leftfold.errors import DeclarationError, SourceLine, caller
from leftfold.fold.expressions import FieldRef
from leftfold.fold.latest import Latest
from leftfold.fold.latest import TakenColumn as Column


class Table(Row):
    """Base of a view of newest rows. A tombstone (a record without a value) deletes its key.

    After that, a read gives None, or the default, for each column. `category = ItemUpdate.category` takes a field.
    `lf.latest(ItemUpdate.category)` means the same, and type checkers see a feature.
    """

    __leftfold_definition__: ClassVar[Latest]
    __leftfold_reading__: ClassVar[Reading]
    __leftfold_source__: ClassVar[SourceLine]
    __leftfold_sinks__: ClassVar[tuple[Sink, ...]]

    def __init_subclass__(cls, *, of: Any, by: Any, name: str | None = None, to: Sequence[Sink] = (Online(),)) -> None:
        super().__init_subclass__()
        source = caller()
        cls.__leftfold_source__ = source
        cls.__leftfold_sinks__ = checked_sinks(cls.__name__, to, source)
        cls.__leftfold_reading__ = reading(cls.__name__, of, source, compacted=True)
        cls.__leftfold_definition__ = _define(cls, by, check_view_name(name or snake(cls.__name__), source))
        cls.__leftfold_names__ = cls.__leftfold_definition__.visible
        collector.declare(cls, source.file)


def _define(cls: type[Table], by: Any, name: str) -> Latest:
    read, source = cls.__leftfold_reading__, cls.__leftfold_source__
    if read.stream is not None or len(read.topics) > 1:
        raise DeclarationError(
            "table-of-one-topic",
            f"{cls.__name__} is a table of more than one topic, or of a stream",
            why="the newest record of a key has the largest offset, and offsets of two topics do not compare",
            fix="declare a table of each topic",
            source=source,
        )
    (topic,) = read.topics
    keys = declared_keys(cls.__name__, read.event, by, source)
    if tuple(k.name for k in keys) != tuple(k.name for k in topic.key):
        raise DeclarationError(
            "table-key",
            f"{cls.__name__} is keyed by {', '.join(k.name for k in keys)}, its topic by "
            f"{', '.join(k.name for k in topic.key)}",
            why="a deletion has no value, only the topic's key: a table of another key could not know what it deletes",
            fix=f"key the table by {', '.join(k.name for k in topic.key)}",
            source=source,
        )
    refuse_labels(cls, source)
    taken = {n: v for n, v in vars(cls).items() if isinstance(v, FieldRef | Feature)}
    if not taken:
        raise DeclarationError(
            "no-features",
            f"{cls.__name__} declares no column",
            why="a table without a column holds nothing",
            fix="add one, for example {0} = {1}.{0}".format([*fields_of(read.event)][-1], read.event.__name__),
            source=source,
        )
    columns = []
    for column_name, value in taken.items():
        check_name(cls.__name__, column_name, source)
        feature: Feature[Any] = Feature(Taken(value), source) if isinstance(value, FieldRef) else value
        if not isinstance(feature.asked, Taken):
            raise DeclarationError(
                "aggregate-in-table",
                f"{cls.__name__}.{column_name} is an aggregate",
                why="a table holds the newest row as it is",
                fix="take a field, or declare a lf.Features of a topic with retention",
                source=feature.source,
            )
        field = reference(read.event, feature.asked.field, option=column_name, source=feature.source)
        repeated = fields_of(read.event)[field.name].repeated
        if field.kind == "bytes":
            raise DeclarationError(
                "column-kind",
                f"{cls.__name__}.{column_name} takes {field.name}, which is bytes",
                why="a row in the store is text",
                fix="take a field of another kind",
                source=feature.source,
            )
        setattr(cls, column_name, feature.bound(cls, column_name))
        default = checked_default(feature, field.kind, listed=repeated)
        columns.append(Column(column_name, field.name, field.kind, repeated, default))
    rules = tuple(nameless(rule) for field in fields_of(read.event).values() for rule in field.rules)
    origins = tuple(replace(o, lateness=0) for o in read.origins)  # rows are never late, so lateness is not part of it
    return Latest(view=name, origins=origins, keys=keys, columns=tuple(columns), rules=rules)
