"""The profile of a column: how its values are distributed over cells. Live values are counted over the same cells.

A number falls between two quantiles, a text is one of the 50 most frequent or another, a list has a length. The
profile of a training set is in its manifest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from leftfold.fold.distances import flagged, ks, ks_noise, psi, psi_noise

VERSION = 1
CELLS = 20  # of numbers: between two edges lie about 5 % of the rows
FREQUENT = 50  # texts that have a cell of their own
LONGEST = 200  # characters of a text that are compared
MISSING = -1  # the cell of a missing value

ColumnKind: TypeAlias = Literal["number", "length", "text"]


@dataclass(frozen=True)
class Cells:
    """The cells of one column.

    Cell i of numbers and lengths holds those above edge i-1, up to and with edge i. The last one holds the rest. Cell i
    of texts holds text i, and the last one all others.
    """

    kind: ColumnKind
    edges: tuple[float, ...] = ()
    least: float | None = None  # numbers beyond least and greatest are new
    greatest: float | None = None
    texts: tuple[str, ...] = ()

    @property
    def number(self) -> int:
        return len(self.texts if self.kind == "text" else self.edges) + 1


@dataclass(frozen=True)
class ColumnProfile:
    """The rows of a column by cell."""

    cells: Cells
    counts: tuple[int, ...]
    missing: int
    new: int = 0  # values that `cells` was not made from: beyond its least and greatest, or another text

    @classmethod
    def of(cls, cells: Cells, counted: Mapping[int, int], new: int) -> ColumnProfile:
        """Make a profile from the number of rows by cell."""
        counts = tuple(counted.get(cell, 0) for cell in range(cells.number))
        return cls(cells, counts, counted.get(MISSING, 0), new)

    @property
    def values(self) -> int:
        return sum(self.counts)

    @property
    def rows(self) -> int:
        return self.values + self.missing

    def as_json(self) -> dict[str, Any]:
        common = {"kind": self.cells.kind, "rows": self.rows, "missing": self.missing}
        if self.cells.kind == "text":
            return {**common, "values": list(self.cells.texts), "counts": list(self.counts)}
        edges = {"edges": list(self.cells.edges), "least": self.cells.least, "greatest": self.cells.greatest}
        return {**common, **edges, "counts": list(self.counts)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ColumnProfile:
        kind, counts, missing = data["kind"], tuple(data["counts"]), data["missing"]
        if kind == "text":
            return cls(Cells(kind, texts=tuple(data["values"])), counts, missing, new=counts[-1])
        return cls(Cells(kind, tuple(data["edges"]), data["least"], data["greatest"]), counts, missing)


@dataclass(frozen=True)
class ColumnDrift:
    """The distance of a column's values now from those before, each figure with its noise."""

    name: str
    kind: ColumnKind
    before: int  # rows
    now: int
    psi: float | None  # over the cells, with one more for missing values; None if either side has no rows
    psi_noise: float | None
    ks: float | None  # over values that are not missing; texts have no order, so they have none
    ks_noise: float | None
    missing_before: float | None  # shares of all rows
    missing: float | None
    new_before: float | None  # the share of values that are beyond the first side's range, or not frequent there
    new: float | None

    @property
    def flagged(self) -> bool:
        return flagged(self.psi, self.psi_noise)

    def as_json(self) -> dict[str, Any]:
        return {**{name: getattr(self, name) for name in self.__dataclass_fields__}, "flagged": self.flagged}


def drift_of(name: str, before: ColumnProfile, now: ColumnProfile) -> ColumnDrift:
    """Compare two profiles over the same cells."""
    all_before, all_now = (*before.counts, before.missing), (*now.counts, now.missing)
    ordered = before.cells.kind != "text"
    return ColumnDrift(
        name,
        before.cells.kind,
        before.rows,
        now.rows,
        psi(all_before, all_now),
        psi_noise(all_before, all_now),
        ks(before.counts, now.counts) if ordered else None,
        ks_noise(before.values, now.values) if ordered else None,
        _share(before.missing, before.rows),
        _share(now.missing, now.rows),
        _share(before.new, before.values),
        _share(now.new, now.values),
    )


def edges_of(quantiles: Sequence[float]) -> tuple[float, ...]:
    """Return the distinct quantiles. A value that many rows have is several of them."""
    return tuple(sorted(set(quantiles)))


def as_document(profiles: Mapping[str, ColumnProfile]) -> dict[str, Any]:
    return {"version": VERSION, "columns": {name: profile.as_json() for name, profile in profiles.items()}}


def from_document(document: Mapping[str, Any]) -> dict[str, ColumnProfile]:
    return {name: ColumnProfile.from_json(data) for name, data in document["columns"].items()}


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None
