"""Rows of a vector, as a scorer's function takes them: typed rows, a matrix, or a data frame."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, overload

from leftfold.declare.rows import Read, row_of
from leftfold.declare.vector import Vector
from leftfold.errors import DeclarationError

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

V = TypeVar("V", bound=Vector)
NUMBERS = ("int", "float", "bool")


class Rows(Sequence[V], Generic[V]):
    """The rows that a model is to score. `rows[0].clicks_1h` is typed; `matrix` and `frame` hold all of them."""

    def __init__(self, vector: type[V], read: Sequence[Read]) -> None:
        self.vector = vector
        self.read = read

    @classmethod
    def of(cls, vector: type[V], values: Iterable[Mapping[str, Any]]) -> Self:
        """Make rows of plain values, for a unit test of a scorer. Values that are not given are missing."""
        names, now = vector.__leftfold_names__, datetime.now(UTC)
        return cls(vector, [Read({name: row.get(name) for name in names}, now, ()) for row in values])

    def __len__(self) -> int:
        return len(self.read)

    @overload
    def __getitem__(self, index: int) -> V: ...
    @overload
    def __getitem__(self, index: slice) -> Rows[V]: ...
    def __getitem__(self, index: int | slice) -> V | Rows[V]:
        if isinstance(index, slice):
            return Rows(self.vector, self.read[index])
        one = self.read[index]
        return row_of(self.vector, one, one.values)

    def __iter__(self) -> Iterator[V]:
        return (row_of(self.vector, one, one.values) for one in self.read)

    def column(self, name: str) -> list[Any]:
        """The values of one part or request."""
        return [one.values[name] for one in self.read]

    def matrix(self, dtype: str = "float64", *, columns: Sequence[str] | None = None) -> np.ndarray[Any, Any]:
        """All numbers of the rows, in declared order, as a NumPy array. A missing number is NaN, a truth value 0 or 1.

        `columns` names the parts to take. Without it, every part must be a number.
        """
        import numpy as np

        names = self._numbers(columns)
        if names == self.vector.__leftfold_names__:
            held: list[Any] = [[*one.values.values()] for one in self.read]
        else:
            held = [[one.values[name] for name in names] for one in self.read]
        return np.array(held, dtype=dtype).reshape(len(held), len(names))

    def _numbers(self, columns: Sequence[str] | None) -> tuple[str, ...]:
        """Return the names of the columns of a matrix. Raises if one is no number."""
        names = self.vector.__leftfold_names__ if columns is None else tuple(columns)
        kinds = self.vector.__leftfold_kinds__
        for name in names:
            if name not in kinds or kinds[name].repeated or kinds[name].kind not in NUMBERS:
                raise DeclarationError(
                    "matrix-of-numbers",
                    f"{self.vector.__name__} has no number {name}",
                    why="a matrix holds numbers; texts, times and lists have to be turned into numbers first",
                    fix="name the columns that are numbers: rows.matrix(columns=(...)), or take rows.frame()",
                )
        return names

    def frame(self) -> pd.DataFrame:
        """The rows as a pandas data frame, with the parts and requests as columns in declared order."""
        import pandas as pd

        return pd.DataFrame({name: self._for_frame(name) for name in self.vector.__leftfold_names__})

    def _for_frame(self, name: str) -> Any:
        values, kind = self.column(name), self.vector.__leftfold_kinds__[name]
        if kind.kind in NUMBERS and not kind.repeated and None in values:
            return [float("nan") if value is None else float(value) for value in values]
        return values

    def __repr__(self) -> str:
        return f"<{len(self)} rows of {self.vector.__name__}>"
