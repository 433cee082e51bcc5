"""Checks of a user's function by its plan, before anything starts.

Spark would also refuse some of these functions, later and in other words. The others would run and give wrong results.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame

from leftfold.declare.free import View
from leftfold.declare.stream import RECORD, Stream
from leftfold.errors import DeclarationError
from leftfold.fold.values import Kind

# The alias of the DataFrame that a function is given. It separates the function's part of the plan from ours.
GIVEN = "leftfold_given"

# Nodes of a plan, and the names that users know them by.
_REFUSED = {
    "Sort": "a sort",
    "GlobalLimit": "a limit",
    "LocalLimit": "a limit",
    "Tail": "a limit",
    "Offset": "an offset",
    "Window": "a window function",
    "Deduplicate": "distinct or dropDuplicates",
    "DeduplicateWithinWatermark": "dropDuplicatesWithinWatermark",
    "Distinct": "distinct",
    "EventTimeWatermark": "a watermark of its own",
    "FlatMapGroupsWithState": "state of its own",
    "FlatMapGroupsInPandasWithState": "state of its own",
    "TransformWithState": "state of its own",
    "TransformWithStateInPySpark": "state of its own",
    "Except": "except",
    "Intersect": "intersect",
}
_TYPES: dict[Kind, str] = {
    "string": "string",
    "int": "bigint",
    "float": "double",
    "bool": "boolean",
    "datetime": "timestamp",
    "bytes": "binary",
}
_CLOCKS = frozenset({"current_timestamp", "now", "current_date", "localtimestamp", "current_time"})
_WHY_REPEATABLE = "a batch that runs again after a crash must give the same rows"
_FIX_REPEATABLE = "take times from the events, and make ids from their fields"


def check_view(view: View, output: DataFrame) -> None:
    """Raise an error that names the first operation in a view's plan that a view may not use."""

    def refuse(what: str, why: str, fix: str) -> DeclarationError:
        return DeclarationError("view-refused", f"{view.name} {what}", why=why, fix=fix, source=view.source)

    nodes = list(_own_nodes(_analysed(output)))
    for node in nodes:
        name = str(node.nodeName())
        if name in _REFUSED:
            raise refuse(
                f"uses {_REFUSED[name]}",
                "its rows are updated as records arrive: there is no end to sort, limit or compare against, "
                "and the watermark is the topic's",
                "leave it out; a reader can sort and limit what it reads",
            )
        if _joins_streams(node):
            raise refuse(
                "joins two streams",
                "it would keep records of both until their matches come, and nothing says when to forget them",
                "join a static DataFrame, or declare two views and gather them in a lf.Vector",
            )
        if (function := _unrepeatable(node)) is not None:
            raise refuse(f"uses {function}()", _WHY_REPEATABLE, _FIX_REPEATABLE)
    aggregates = [node for node in nodes if str(node.nodeName()) == "Aggregate"]
    if len(aggregates) > 1:
        raise refuse(
            "aggregates an aggregate",
            "an update of the inner one would have to take back what it gave to the outer one",
            "keep the inner one as a view of its own",
        )
    for node in aggregates:
        if _grouped_by(node, "spark.sessionWindow"):
            raise refuse(
                "uses session windows",
                "they merge as records arrive, which an update of rows cannot express",
                "use F.window, or windowed features",
            )
        if not view.keep_forever and not _grouped_by(node, "spark.watermarkDelayMs"):
            raise refuse(
                "groups by nothing that ends",
                "its state would keep every group for ever; the event's time is marked for eviction, and so is "
                "F.window of it",
                "group by F.window of the event's time too, or say keep_forever=True",
            )


def check_stream(stream: Stream, output: DataFrame, needed: dict[str, Kind]) -> None:
    """Check that a stream keeps no state between records, and that each of its rows has its record's position."""
    for node in _own_nodes(_analysed(output)):
        name = str(node.nodeName())
        operation = _REFUSED.get(name) or ("an aggregation" if name == "Aggregate" else None)
        if _joins_streams(node):
            operation = "a join of two streams"
        if operation:
            raise DeclarationError(
                "stream-has-state",
                f"the stream {stream.name} has {operation}",
                why="a stream makes rows of records one by one, and keeps nothing between them",
                fix="leave it out; what is kept between records is kept by the view that reads the stream",
                source=stream.source,
            )
        if (clock := _unrepeatable(node)) is not None:
            raise DeclarationError(
                "stream-not-repeatable",
                f"the stream {stream.name} uses {clock}()",
                why=_WHY_REPEATABLE,
                fix=_FIX_REPEATABLE,
                source=stream.source,
            )
    types = dict(output.dtypes)
    for name in (RECORD, *needed):
        if name not in types:
            raise DeclarationError(
                "stream-columns",
                f"the stream {stream.name} gives no column {name!r}",
                why="each row keeps the position and time of its record there"
                if name == RECORD
                else f"a view of {stream.event.__name__} reads it",
                fix=f"select {name!r} too",
                source=stream.source,
            )
    for name, kind in needed.items():
        if types[name] != _TYPES[kind]:
            raise DeclarationError(
                "stream-columns",
                f"the stream {stream.name} gives {name} as {types[name]}",
                why=f"{stream.event.__name__}.{name} is {kind}, which is {_TYPES[kind]} in Spark",
                fix=f"cast it: .withColumn({name!r}, F.col({name!r}).cast({_TYPES[kind]!r}))",
                source=stream.source,
            )


def plan_text(frame: DataFrame) -> str:
    """The text of the plan, in a form that is the same in every JVM."""
    conf = frame.sparkSession.conf
    before = str(conf.get("spark.sql.debug.maxToStringFields"))
    conf.set("spark.sql.debug.maxToStringFields", "100000")  # otherwise the text is cut, and differences are lost
    try:
        return str(_analysed(frame).canonicalized().toString())
    finally:
        conf.set("spark.sql.debug.maxToStringFields", before)


def _analysed(frame: DataFrame) -> Any:
    return frame._jdf.queryExecution().analyzed()


def _own_nodes(node: Any) -> Iterator[Any]:
    """The nodes that the function added on the path of the stream. What it joins to the stream may be anything."""
    if str(node.nodeName()) == "SubqueryAlias" and str(node.alias()) == GIVEN:
        return
    if node.isStreaming():
        yield node
        for child in _sequence(node.children()):
            yield from _own_nodes(child)


def _expressions(node: Any) -> Iterator[Any]:
    waiting = _sequence(node.expressions())
    while waiting:
        expression = waiting.pop()
        yield expression
        waiting += _sequence(expression.children())


def _unrepeatable(node: Any) -> str | None:
    """The name of a function in the node that may give another result each time it runs; None if there is none."""
    for expression in _expressions(node):
        function = str(expression.prettyName())
        inner = all(child.deterministic() for child in _sequence(expression.children()))
        if function in _CLOCKS or (inner and not expression.deterministic()):
            return function
    return None


def _joins_streams(node: Any) -> bool:
    return str(node.nodeName()) == "Join" and all(side.isStreaming() for side in _sequence(node.children()))


def _grouped_by(aggregate: Any, mark: str) -> bool:
    """True if a grouping key has `mark` in its metadata, where Spark marks a time or a window."""
    keys = _sequence(aggregate.groupingExpressions())
    named = [k for k in keys if str(k.getClass().getSimpleName()) in ("AttributeReference", "Alias")]
    return any(key.metadata().contains(mark) for key in named)


def _sequence(values: Any) -> list[Any]:
    return [values.apply(i) for i in range(values.size())]
