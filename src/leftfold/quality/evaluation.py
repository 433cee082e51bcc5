"""Evaluation: how well a scorer's predictions told what happened, from the counts of closed rows.

Rows that are open are counted, and left out: a late positive would pass for a negative. Fallbacks are left out, too,
because they are not the model's answers. Nothing is written, so a death leaves nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from leftfold.declare.event import fields_of
from leftfold.declare.outcome import OutcomeDefinition
from leftfold.declare.scorer import Scorer
from leftfold.errors import DeclarationError
from leftfold.fold.durations import SECOND
from leftfold.fold.expressions import from_micros
from leftfold.fold.scores import Figures, ScoreCounts, figures
from leftfold.spark.quality.evaluation import counts_of

if TYPE_CHECKING:
    from leftfold.spark.session import DataFrame

HOUR = "hour"
_HOUR_US = 3_600 * SECOND


@dataclass(frozen=True)
class Judged:
    """One group of predictions: their counts, and the figures that these give."""

    by: Mapping[str, str | datetime]
    scores: ScoreCounts  # closed predictions with the model's answer
    open: int = 0  # predictions without a label: their window has not passed, or the log no longer has their events
    fallback: int = 0
    without_score: int = 0
    without_label: int = 0  # closed, and the label is null

    @cached_property
    def figures(self) -> Figures:
        return figures(self.scores)

    def __add__(self, other: Judged) -> Judged:
        """Add the counts of another group. The result has the name of this one."""
        return Judged(
            self.by,
            self.scores + other.scores,
            self.open + other.open,
            self.fallback + other.fallback,
            self.without_score + other.without_score,
            self.without_label + other.without_label,
        )

    def as_json(self) -> dict[str, Any]:
        return {
            "by": {
                name: value.isoformat() if isinstance(value, datetime) else value for name, value in self.by.items()
            },
            "open": self.open,
            "fallback": self.fallback,
            "without_score": self.without_score,
            "without_label": self.without_label,
            **self.figures.as_json(),
        }


@dataclass(frozen=True)
class Evaluation:
    """The quality of a scorer's predictions, by group."""

    scorer: str
    outcome: str
    score: str  # the field that was judged
    label: str
    by: tuple[str, ...]
    groups: tuple[Judged, ...]

    def over_hours(self) -> Evaluation:
        """Return the evaluation of all hours together, from the counts of each."""
        merged: dict[tuple[Any, ...], Judged] = {}
        for group in self.groups:
            by = {name: value for name, value in group.by.items() if name != HOUR}
            named, key = replace(group, by=by), tuple(by.values())
            merged[key] = merged[key] + named if key in merged else named
        return replace(self, by=tuple(name for name in self.by if name != HOUR), groups=tuple(merged.values()))

    def as_json(self) -> dict[str, Any]:
        return {
            "scorer": self.scorer,
            "outcome": self.outcome,
            "score": self.score,
            "label": self.label,
            "by": list(self.by),
            "groups": [group.as_json() for group in self.groups],
        }


def check_outcome(scorer: Scorer[Any, Any], outcome: OutcomeDefinition) -> None:
    """Refuse an outcome of other predictions than those of the scorer."""
    if outcome.predictions.name != scorer.to.name:
        raise DeclarationError(
            "evaluation-outcome",
            f"{outcome.name} cannot judge {scorer.name}",
            why=f"it is the outcome of {outcome.predictions.name}, and {scorer.name} writes to {scorer.to.name}",
            fix=f"declare a lf.Outcome with of={scorer.to.name}, or name the scorer of {outcome.predictions.name}",
            source=scorer.source,
        )


def evaluated(
    rows: DataFrame,
    scorer: Scorer[Any, Any],
    outcome: OutcomeDefinition,
    *,
    by: Sequence[str],
    label: str,
    score: str,
) -> Evaluation:
    """Judge the predictions of a scorer. `rows` are those of an outcome, open ones too."""
    counts = counts_of(rows.where(rows["scorer"] == scorer.name), score=score, label=label, by=by)
    groups = [
        Judged(
            {name: _told(name, value) for name, value in zip(by, group.by, strict=True)},
            group.scores,
            group.open,
            group.fallback,
            group.without_score,
            group.without_label,
        )
        for group in counts
    ]
    ordered = sorted(groups, key=lambda group: [str(value) for value in group.by.values()])
    return Evaluation(scorer.name, outcome.name, score, label, tuple(by), tuple(ordered))


def chosen_score(scorer: Scorer[Any, Any], score: str | None) -> str:
    """Return the field that is judged: the one that was named, or the only number that the prediction declares."""
    answers = scorer.prediction.__leftfold_answers__
    fields = fields_of(scorer.prediction)
    numbers = [name for name in answers if fields[name].kind in ("int", "float") and not fields[name].repeated]
    if score in answers or (score is None and len(numbers) == 1):
        return score or numbers[0]
    raise DeclarationError(
        "evaluation-column",
        f"{scorer.name} answers no {score}" if score else f"{scorer.name} answers {len(numbers)} numbers",
        why=f"{scorer.prediction.__name__} declares {', '.join(answers)}",
        fix="name the field that is to be judged: score=",
        source=scorer.source,
    )


def chosen_label(outcome: OutcomeDefinition, label: str | None) -> str:
    """Return the label: the one that was named, or the only one that is true or false."""
    names = [each.name for each in outcome.labels]
    binary = [each.name for each in outcome.labels if each.kind == "bool"]
    if label in names or (label is None and len(binary) == 1):
        return label or binary[0]
    raise DeclarationError(
        "evaluation-column",
        f"{outcome.name} has no label {label}"
        if label
        else f"{outcome.name} has {len(binary)} labels that are true or false",
        why=f"its labels are {', '.join(names)}",
        fix="name the label that scores are to be judged by: label=",
    )


def _told(name: str, value: str) -> str | datetime:
    return from_micros(int(value) * _HOUR_US) if name == HOUR else value
