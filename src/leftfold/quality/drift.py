"""Drift: how far the values that a scorer sees now are from those that a training set has, or from an earlier time.

Drift says that values have changed, not that predictions are worse: that is what an evaluation tells. Nothing is
written, so a death leaves nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from leftfold.declare.scorer import Scorer
from leftfold.errors import DeclarationError, RunError
from leftfold.fold.distances import TIMES_NOISE
from leftfold.fold.profiles import VERSION, ColumnDrift, ColumnProfile, drift_of, from_document
from leftfold.spark.quality.predictions import answered
from leftfold.spark.quality.profiles import counted, kinds_of, profiles_of
from leftfold.spark.training.assemble import cached
from leftfold.training.manifest import manifest_of

if TYPE_CHECKING:
    from leftfold.run.deployment import Deployment
    from leftfold.spark.session import DataFrame

_NEEDS = "a drift is counted from"


@dataclass(frozen=True)
class GroupDrift:
    """The columns of one group of predictions, the most moved one first."""

    by: Mapping[str, str]
    columns: tuple[ColumnDrift, ...]

    @property
    def rows(self) -> int:
        return max((column.now for column in self.columns), default=0)

    def as_json(self) -> dict[str, Any]:
        return {"by": dict(self.by), "rows": self.rows, "columns": [column.as_json() for column in self.columns]}


@dataclass(frozen=True)
class Drift:
    """The drift of a scorer's predictions, by group."""

    scorer: str
    against: str  # the directory of a training set, or an earlier stretch of time
    groups: tuple[GroupDrift, ...]
    not_compared: Mapping[str, str]  # by column: why

    @property
    def flagged(self) -> list[tuple[GroupDrift, ColumnDrift]]:
        """The columns with a PSI above 0.1 and above five times its noise."""
        return [(group, column) for group in self.groups for column in group.columns if column.flagged]

    def fails(self, above: float) -> bool:
        """Return whether a PSI is above a limit and above five times its noise, or nothing could be compared."""
        found = [column for group in self.groups for column in group.columns if column.psi is not None]
        return not found or any(
            column.psi is not None and column.psi > max(above, TIMES_NOISE * (column.psi_noise or 0.0))
            for column in found
        )

    def as_json(self) -> dict[str, Any]:
        return {
            "scorer": self.scorer,
            "against": self.against,
            "groups": [group.as_json() for group in self.groups],
            "not_compared": dict(self.not_compared),
        }


def other_side(directory: str | None, start: datetime | None, end: datetime | None) -> str:
    """Return the name of what predictions are compared with. Raise if it is nothing, or two things."""
    if (directory is None) == (start is None and end is None):
        raise DeclarationError(
            "drift-against",
            "a drift was asked for, against a training set and an earlier time"
            if directory
            else "a drift was asked for, against nothing",
            why="live predictions are compared with one other side",
            fix="leftfold drift SCORER --against DIR; or --against-from and --against-to, for an earlier time",
        )
    if directory is not None:
        return directory
    first, last = ("" if at is None else at.isoformat(timespec="seconds") for at in (start, end))
    return f"{first}..{last}"


def profile_of_set(directory: str, deployment: Deployment) -> dict[str, ColumnProfile]:
    """Return the profile in the manifest of a training set."""
    document = manifest_of(directory, deployment).get("profile")
    if document is None or document.get("version") != VERSION:
        raise RunError(
            "profile-missing",
            f"the training set {directory} has no profile that this release knows",
            why="an earlier release wrote it" if document is None else f"its version is {document.get('version')}",
            fix="write the set once more, with the same labels: leftfold training-set LABELS VECTOR --time COLUMN "
            "--out DIR; or leftfold drift SCORER --against-from TIME, for an earlier time",
        )
    return from_document(document)


def profile_of_time(rows: DataFrame, scorer: Scorer[Any, Any]) -> dict[str, ColumnProfile]:
    """Return the profile of the predictions that a scorer made in an earlier stretch of time."""
    live = cached(answered(rows, scorer.name).select(*(f"`{name}`" for name in compared(scorer))), _NEEDS)
    try:
        return profiles_of(live, compared(scorer))
    finally:
        live.unpersist()


def drifted(
    rows: DataFrame, scorer: Scorer[Any, Any], before: Mapping[str, ColumnProfile], against: str, *, by: Sequence[str]
) -> Drift:
    """Compare the predictions of a scorer with a profile, column by column. `rows` are those of a replay."""
    own = set(rows.columns)
    if unknown := [name for name in by if name not in own]:
        raise DeclarationError(
            "evaluation-column",
            f"figures were asked for by {unknown[0]}, which no prediction has",
            why=f"its fields are {', '.join(sorted(own))}",
            fix=f"leave it out, or name in by= some of {', '.join(sorted(own))}",
            source=scorer.source,
        )
    live = answered(rows, scorer.name)
    kinds = kinds_of(live, compared(scorer))
    left_out = {
        name: why for name in compared(scorer) if (why := _why_not(kinds.get(name), before.get(name))) is not None
    }
    cells = {name: before[name].cells for name in kinds if name not in left_out}
    kept = cached(live.select(*(f"`{name}`" for name in dict.fromkeys([*by, *cells]))), _NEEDS)
    try:
        found = counted(kept, cells, by) if cells else {}
    finally:
        kept.unpersist()
    groups = [
        GroupDrift(
            {name: value or "none" for name, value in zip(by, group, strict=True)},
            tuple(sorted((drift_of(n, before[n], now) for n, now in columns.items()), key=_least_moved_last)),
        )
        for group, columns in found.items()
    ]
    return Drift(scorer.name, against, tuple(sorted(groups, key=lambda g: list(g.by.values()))), left_out)


def compared(scorer: Scorer[Any, Any]) -> list[str]:
    """The fields of a prediction that can drift: features, requests and answers."""
    return [*scorer.vector.__leftfold_definition__.order, *scorer.prediction.__leftfold_answers__]


def _why_not(kind: str | None, before: ColumnProfile | None) -> str | None:
    if kind is None:
        return "moments and bytes have no profile"
    if before is None:
        return "what it is compared with has no such column"
    if before.cells.kind != kind:
        return f"it was a {before.cells.kind}, and is a {kind} now"
    return None


def _least_moved_last(column: ColumnDrift) -> tuple[bool, float, str]:
    return not column.flagged, -(column.psi or 0.0), column.name
