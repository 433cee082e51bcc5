"""The labels that a user declares in an outcome: aggregates of the events within reach of a prediction.

A label has no window of its own: the outcome says how far a prediction reaches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

from leftfold.errors import DeclarationError, SourceLine, caller
from leftfold.fold import expressions

T = TypeVar("T")

LabelAggregate = Literal["happened", "delay", "count", "sum", "mean", "min", "max", "last"]


@dataclass(frozen=True)
class AskedLabel:
    """A label as the user wrote it, before the class says which event it reads."""

    aggregate: LabelAggregate
    field: Any
    where: expressions.Expression | None
    scale: int


class Label(Generic[T]):
    """One label of an outcome. It is bound to the outcome when the outcome's class is created."""

    name: str
    owner: type

    def __init__(self, asked: AskedLabel, source: SourceLine) -> None:
        self.asked = asked
        self.source = source

    def __set_name__(self, owner: type, name: str) -> None:
        self.owner, self.name = owner, name

    def __repr__(self) -> str:
        return f"<label {getattr(self, 'name', '?')}>"


def asked_label(aggregate: LabelAggregate, field: Any, where: Any, scale: int = 0) -> Label[Any]:
    return Label(AskedLabel(aggregate, field, expressions.condition(where), scale), caller())


def happened(*, where: bool | None = None) -> Label[bool]:
    """True if an event is credited to the prediction."""
    return asked_label("happened", None, where)


def delay(*, where: bool | None = None) -> Label[float | None]:
    """The seconds from the prediction to the first event that is credited to it; None if there was none."""
    return asked_label("delay", None, where)


def refuse_labels(cls: type, source: SourceLine) -> None:
    """Raise if a view declares a label: an aggregate without a window."""
    for name, value in vars(cls).items():
        if isinstance(value, Label):
            aggregate = value.asked.aggregate
            raise DeclarationError(
                "label-in-view",
                f"{cls.__name__}.{name} is a label: lf.{aggregate} without a window",
                why="a feature aggregates the events of a window before a read; a label those after a prediction",
                fix="give it a window, or declare it in a lf.Outcome",
                source=source,
            )
