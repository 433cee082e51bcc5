"""Outcomes: what happened after a prediction, as labels. The class compiles to an `OutcomeDefinition`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal

from leftfold.declare import collector
from leftfold.declare.event import fields_of, reference
from leftfold.declare.features import check_aggregated, checked_where, nameless
from leftfold.declare.labels import Label, LabelAggregate
from leftfold.declare.names import check_view_name, snake
from leftfold.declare.prediction import Predictions
from leftfold.declare.rows import html_table
from leftfold.declare.topic import Topic
from leftfold.errors import DeclarationError, SourceLine, caller
from leftfold.fold import expressions
from leftfold.fold.columns import Column
from leftfold.fold.definition import fingerprint
from leftfold.fold.durations import Duration, micros, text
from leftfold.fold.values import Kind

Credit = Literal["last", "each", "first"]

# The column of an outcome's rows that tells whether their labels are final.
CLOSED = "closed"
_CREDITS = ("last", "each", "first")
_JOINED: tuple[Kind, ...] = ("string", "int")


@dataclass(frozen=True)
class DefinedLabel:
    """A label, the kind of its value, and the columns of partials that it is made from."""

    name: str
    aggregate: LabelAggregate
    kind: Kind
    columns: tuple[Column, ...]

    def as_json(self) -> dict[str, Any]:
        columns = [column.as_json() for column in self.columns]
        return {"name": self.name, "aggregate": self.aggregate, "kind": self.kind, "columns": columns}


@dataclass(frozen=True, eq=False)
class OutcomeDefinition:
    """An outcome as data. `on` pairs fields of the prediction with fields of the event."""

    name: str
    predictions: Predictions[Any]
    topic: Topic[Any]  # of the events that are credited
    within: int
    credit: Credit
    on: tuple[tuple[str, str], ...]
    labels: tuple[DefinedLabel, ...]

    @cached_property
    def fields(self) -> frozenset[str]:
        """The names of all fields of the event that the outcome reads."""
        assert self.topic.time is not None, "a topic without a time is refused"
        columns = [column.fields() for label in self.labels for column in label.columns]
        return frozenset({self.topic.time.name, *(field for _, field in self.on)}.union(*columns))

    @cached_property
    def fingerprint(self) -> str:
        """The fingerprint of everything that decides on the labels of a closed row."""
        rules = [expressions.to_json(nameless(rule)) for rule in self.topic.rules]
        return fingerprint(
            [
                self.predictions.name,
                self.predictions.lateness,
                self.topic.name,
                self.topic.lateness,
                rules,
                self.within,
                self.credit,
                [list(pair) for pair in self.on],
                [label.as_json() for label in self.labels],
            ]
        )

    def _repr_html_(self) -> str:
        rows = {
            "predictions": self.predictions.name,
            "events": self.topic.name,
            "within": text(self.within),
            "credit": self.credit,
            "on": ", ".join(f"{mine} = {theirs}" for mine, theirs in self.on),
            "labels": ", ".join(label.name for label in self.labels),
        }
        return html_table((), rows.items(), caption=f"outcome {self.name}")


class Outcome:
    """Base of an outcome: `class RankerOutcome(lf.Outcome, of=ranker_scores, by=purchases, within="24h", on=...)`.

    The outcome of a prediction at moment t are the accepted events e of the topic `by` with t <= e.time < t + `within`
    whose fields equal those of the prediction, as `on` pairs them. `on` may be the one field of the event that holds
    the id of the answer.

    An event may be in reach of several predictions. `credit` decides which of them get it: "each" of them, the "last"
    one before the event, or the "first". Only predictions of the same scorer, role and version compete, so every model
    is judged as if it were the only one.
    """

    __leftfold_outcome__: ClassVar[OutcomeDefinition]
    __leftfold_source__: ClassVar[SourceLine]

    def __init_subclass__(
        cls,
        *,
        of: Predictions[Any],
        by: Topic[Any],
        within: Duration,
        on: Any,
        credit: Credit = "last",
        name: str | None = None,
    ) -> None:
        super().__init_subclass__()
        source = caller()
        cls.__leftfold_source__ = source
        _check_topics(cls.__name__, of, by, source)
        if credit not in _CREDITS:
            raise DeclarationError(
                "outcome-credit",
                f"{cls.__name__} has credit={credit!r}",
                why="an event in reach of several predictions is credited to each of them, to the last or to the first",
                fix='choose one of credit="each", "last" or "first"',
                source=source,
            )
        cls.__leftfold_outcome__ = OutcomeDefinition(
            name=check_view_name(name or snake(cls.__name__), source),
            predictions=of,
            topic=by,
            within=micros(within, option="within", source=source),
            credit=credit,
            on=_pairs(cls.__name__, of, by, on, source),
            labels=_labels(cls, of, by, source),
        )
        collector.declare(cls, source.file)


def _check_topics(name: str, of: Any, by: Any, source: SourceLine) -> None:
    if not isinstance(of, Predictions):
        raise DeclarationError(
            "outcome-of",
            f"{name} is an outcome of {f'topic {of.name}' if isinstance(of, Topic) else repr(of)}",
            why="what happens after predictions is found by their topic",
            fix="pass of= the lf.Predictions that a scorer writes to",
            source=source,
        )
    if not isinstance(by, Topic):
        raise DeclarationError(
            "not-a-topic",
            f"{name} was given by={by!r}",
            why="an outcome is made of the events of a topic",
            fix="pass a lf.Topic",
            source=source,
        )
    if by.compacted or by.time is None:
        raise DeclarationError(
            "outcome-time",
            f"{name} is made of {by.name}, which is compacted",
            why="compaction deletes older records of a key, so an outcome would change when it is made again",
            fix="give by= a topic with retention, whose events have a time",
            source=source,
        )
    if by.log_time != "broker":
        raise DeclarationError(
            "outcome-time",
            f"{name} is made of {by.name}, which has log_time={by.log_time!r}",
            why="a label is final once the log has passed its window, which only log times of brokers can tell: a "
            "record with any other log time may be appended whenever somebody likes",
            fix='give by= a topic with log_time="broker", for example the one that was copied',
            source=source,
        )


def _pairs(name: str, of: Predictions[Any], by: Topic[Any], on: Any, source: SourceLine) -> tuple[tuple[str, str], ...]:
    """Return the pairs of a prediction's and an event's field. An event that names an answer names its request.

    The prediction that was answered has the request's id as its own; its shadows have an id of their own.
    """
    given = dict(on) if isinstance(on, Mapping) else {"prediction_id": on}
    mine = fields_of(of.event)
    pairs: list[tuple[str, str]] = []
    for asked, field in given.items():
        if asked not in mine:
            raise DeclarationError(
                "outcome-on",
                f"{name} is on={{{asked!r}: ...}}, and {of.event.__name__} has no field {asked}",
                why="on= maps fields of the prediction to fields of the event",
                fix=f"name a field of {of.event.__name__}: {', '.join(n for n in mine if _joins(mine[n]))}",
                source=source,
            )
        theirs = fields_of(by.event)[reference(by.event, field, option="on", source=source).name]
        if not (_joins(mine[asked]) and _joins(theirs) and mine[asked].kind == theirs.kind):
            raise DeclarationError(
                "outcome-on",
                f"{name} compares {asked}, which is {_kind(mine[asked])}, with {by.event.__name__}.{theirs.name}, "
                f"which is {_kind(theirs)}",
                why="a prediction and its events are found by fields that are both a string, or both an int",
                fix="name two fields of one kind",
                source=source,
            )
        pairs.append(("request_id" if asked == "prediction_id" else asked, theirs.name))
    if not pairs:
        raise DeclarationError(
            "outcome-on",
            f"{name} is on={{}}",
            why="without a field that both have, every event would be credited to every prediction",
            fix=f"write on={{FIELD: {by.event.__name__}.FIELD}}",
            source=source,
        )
    return tuple(pairs)


def _joins(field: Any) -> bool:
    return field.kind in _JOINED and not field.repeated


def _kind(field: Any) -> str:
    return f"a list of {field.kind}" if field.repeated else str(field.kind)


def _labels(cls: type[Outcome], of: Predictions[Any], by: Topic[Any], source: SourceLine) -> tuple[DefinedLabel, ...]:
    declared = {name: value for name, value in vars(cls).items() if isinstance(value, Label)}
    others = [n for n, v in vars(cls).items() if not n.startswith("_") and n not in declared and not callable(v)]
    if others or not declared:
        raise DeclarationError(
            "outcome-labels",
            f"{cls.__name__}.{others[0]} is no label" if others else f"{cls.__name__} declares no label",
            why="an outcome holds labels: lf.happened, lf.delay, lf.count, sum, mean, min, max, last with no window",
            fix="add one, for example bought = lf.happened()"
            if not others
            else f"write a label, for example {others[0]} = lf.happened()",
            source=source,
        )
    taken = {*fields_of(of.event), CLOSED}
    for name, label in declared.items():
        if name in taken or name.startswith("_"):
            raise DeclarationError(
                "outcome-labels",
                f"{cls.__name__}.{name} cannot be the name of a label",
                why=f"the rows of an outcome have the fields of {of.event.__name__}, the labels, and {CLOSED}",
                fix="choose another name",
                source=label.source,
            )
    return tuple(_label(name, label, by) for name, label in declared.items())


def _label(name: str, label: Label[Any], by: Topic[Any]) -> DefinedLabel:
    asked, source = label.asked, label.source
    where = checked_where(by.event, asked.where, source)
    aggregate = asked.aggregate
    if aggregate == "happened" or aggregate == "count":  # noqa: PLR1714 # mypy narrows a type by ==, not by `in`
        kind: Kind = "bool" if aggregate == "happened" else "int"
        return DefinedLabel(name, aggregate, kind, (Column("count", None, "int", where),))
    if aggregate == "delay":
        assert by.time is not None, "a topic without a time is refused"
        return DefinedLabel(name, "delay", "float", (Column("min", by.time.name, "datetime", where),))
    field = reference(by.event, asked.field, option=aggregate, source=source)
    check_aggregated(by.event, aggregate, field, source)
    scale = asked.scale if field.kind == "float" else 0
    if aggregate == "mean":
        total = Column("sum", field.name, field.kind, where, scale)
        return DefinedLabel(name, "mean", "float", (total, Column("count", field.name, "int", where)))
    return DefinedLabel(name, aggregate, field.kind, (Column(aggregate, field.name, field.kind, where, scale),))
