"""Free views: a user's function of DataFrames. The view keeps the newest row of each key."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from leftfold.declare import collector
from leftfold.declare.aggregates import Feature, Taken
from leftfold.declare.names import check_name, check_view_name
from leftfold.declare.reading import Reading, reading
from leftfold.declare.rows import html_table
from leftfold.declare.sinks import Online, Sink, checked_sinks
from leftfold.errors import DeclarationError, SourceLine, caller
from leftfold.fold.durations import Duration, micros, text
from leftfold.fold.values import Kind

T = TypeVar("T", str, bool, int, float, datetime)
_KINDS: dict[type, Kind] = {str: "string", bool: "bool", int: "int", float: "float", datetime: "datetime"}


@dataclass(frozen=True, eq=False)
class View:
    """A free view, as made by `@lf.view`. Tests can call it with a plain DataFrame."""

    name: str
    reading: Reading
    by: tuple[str, ...]
    latest: str | None
    ttl: int | None
    keep_forever: bool
    sinks: tuple[Sink, ...]
    function: Callable[[Any], Any]
    source: SourceLine

    def __call__(self, records: Any) -> Any:
        return self.function(records)

    @property
    def __name__(self) -> str:
        return self.name

    def _repr_html_(self) -> str:
        rows = {
            "of": ", ".join(t.name for t in self.reading.topics),
            "by": ", ".join(self.by),
            "newest by": self.latest or "the batch",
            "kept": "for ever" if self.ttl is None else f"{text(self.ttl)} after its last write",
        }
        return html_table((), rows.items(), caption=f"view {self.name}, a function")

    def column(self, name: str, kind: type[T]) -> Feature[T | None]:
        """A column of the view's rows, for a Vector. `kind` is for the type checker; the store keeps its own kind."""
        source = caller()
        check_name(self.name, name, source)
        if kind not in _KINDS:
            raise DeclarationError(
                "column-kind",
                f"{self.name}.column({name!r}, {getattr(kind, '__name__', repr(kind))}) has a type that a row cannot "
                "hold",
                why="the online store keeps a value of a row as text",
                fix="use str, bool, int, float or datetime",
                source=source,
            )
        return Feature[T | None](Taken((name, _KINDS[kind])), source).bound(self, name)


def view(
    of: Any,
    *,
    by: str | tuple[str, ...],
    latest: str | None = None,
    to: Sequence[Sink] = (Online(),),
    ttl: Duration | None = None,
    keep_forever: bool = False,
    name: str | None = None,
) -> Callable[[Callable[[Any], Any]], View]:
    """Declare a function of DataFrames as a view.

    The function may filter, project, join a static table and aggregate once. In every batch its rows must be unique by
    `by`; otherwise `latest` names a column, and the row with its largest value counts. With `ttl`, a row is removed
    when it was not written for that long.
    """
    source = caller()

    def decorate(function: Callable[[Any], Any]) -> View:
        read = reading(function.__name__, of, source)
        if read.stream is not None:
            raise DeclarationError(
                "view-of-stream",
                f"{function.__name__} is a view of the stream {read.stream.name}",
                why="a free view is a function itself",
                fix=f"read the topic and call {read.stream.name}(…) inside the function",
                source=source,
            )
        sinks = checked_sinks(function.__name__, to, source)
        keys = by if isinstance(by, tuple) else (by,)
        if not keys or "at" in keys or latest in keys:
            raise DeclarationError(
                "by-kind",
                f"{function.__name__} is keyed by {', '.join(keys) or 'nothing'}",
                why="a row is looked up by its key; at= is the moment of a read, and latest= is no part of the key",
                fix="name one or several other columns of what the function returns",
                source=source,
            )
        forgotten = None if ttl is None else micros(ttl, option="ttl", source=source)
        named = check_view_name(name or function.__name__, source)
        declared = View(named, read, keys, latest, forgotten, keep_forever, sinks, function, source)
        collector.declare(declared, source.file)
        return declared

    return decorate
