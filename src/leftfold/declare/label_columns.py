"""The columns of the labels of a training set: which a set needs, of which kinds, and what is wrong with them.

Spark and Arrow each say what kinds their columns have; the rules are the same for both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from leftfold.errors import DeclarationError
from leftfold.fold.definition import Key
from leftfold.fold.values import Kind
from leftfold.fold.vector import Input

FORMATS = {".parquet": "parquet", ".csv": "csv", ".jsonl": "json", ".json": "json"}
# A moment without a zone is a kind of its own, which no set takes. "other" fits nothing.
LabelKind = Literal["string", "int", "float", "bool", "moment", "naive moment", "other"]
_FITTING: dict[Kind, tuple[LabelKind, ...]] = {
    "string": ("string",),
    "int": ("int",),
    "bool": ("bool",),
    "float": ("int", "float"),
}


@dataclass(frozen=True)
class LabelColumns:
    """The columns of labels, in their order."""

    kinds: Mapping[str, tuple[LabelKind, str]]  # by name: the kind, and the name of the type as SQL has it
    keys: Mapping[str, str] = field(default_factory=dict)  # key of a view -> its column, if named differently

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.kinds)

    def refuse_taken(self, made: Sequence[str]) -> None:
        """Raise if a column has the name of one that the set adds."""
        for name in made:
            if name in self.kinds:
                raise DeclarationError(
                    "label-column-taken",
                    f"the labels have a column {name}, and so has the vector",
                    why="a training set has the columns of the labels and the features side by side, each name once",
                    fix=f"rename {name} in the labels, for example to label_{name}, or drop it from them: the training "
                    "set computes it",
                )

    def moment(self, name: str) -> str:
        """Return the column with the moment of each label."""
        why = "time= names the column with the moment of each label"
        needed = "the moment of a label is a timestamp, or its text in ISO 8601"
        self._check(name, why, ("moment", "naive moment", "string"), needed)
        if self.kinds[name][0] == "naive moment":
            raise naive(name)
        return name

    def key(self, view: str, key: Key) -> str:
        """Return the column that holds a part of the key of a view."""
        name = self.keys.get(key.name, key.name)
        needed = f"{view} is keyed by {key.name}, which is {key.kind}"
        return self._check(name, f"{view} is keyed by {key.name}", _FITTING[key.kind], needed)

    def batch(self, name: str) -> str:
        """Return the column with the batch that a reader got."""
        why = "batch= names the column with the batch that a reader got"
        return self._check(name, why, ("int",), "a batch is a whole number")

    def given(self, needed: Input) -> str:
        """Return the column that holds an input of the vector."""
        why = f"the vector asks for {needed.name} as {needed.kind}"
        return self._check(needed.name, why, _FITTING[needed.kind], why)

    def _check(self, name: str, why: str, fitting: tuple[LabelKind, ...], needed: str) -> str:
        if name not in self.kinds:
            raise DeclarationError(
                "label-column-missing",
                f"the labels have no column {name}",
                why=f"{why}; they have {', '.join(self.names)}",
                fix=f"add {name} to the labels, or name the column that holds it (time=, keys=)",
            )
        kind, shown = self.kinds[name]
        if kind not in fitting:
            raise DeclarationError(
                "label-column-kind",
                f"the column {name} of the labels is {shown}",
                why=needed,
                fix=f"cast {name} in the labels first",
            )
        return name


def format_of(path: Path) -> str:
    """Return the format of a file of labels: "parquet", "csv" or "json". A directory holds Parquet files."""
    suffix = path.suffix.lower()
    if suffix and suffix not in FORMATS:
        raise DeclarationError(
            "labels-format",
            f"labels in {path.name} have a format that Leftfold does not read",
            why=f"{suffix} is not one of {', '.join(FORMATS)}, nor is it a directory of parquet files",
            fix=f"give a file that ends with {', '.join(FORMATS)}, a directory of Parquet files, or a DataFrame of "
            "Spark or pandas",
        )
    return FORMATS.get(suffix, "parquet")


def unreadable(path: Any, said: str) -> DeclarationError:
    return DeclarationError(
        "labels-unreadable",
        f"labels cannot be read from {path}",
        why=said[:300],
        fix="correct the path or the files; parquet of pandas needs coerce_timestamps='us'",
    )


def not_labels(raw: Any) -> DeclarationError:
    return DeclarationError(
        "labels-kind",
        f"labels were given as {type(raw).__name__}",
        why="a training set takes a DataFrame of Spark or pandas, an Arrow table, or the path of files with labels",
        fix="pass a DataFrame of Spark or pandas, an Arrow table, or a path",
    )


def naive(name: str) -> DeclarationError:
    return DeclarationError(
        "naive-datetime",
        f"the column {name} of the labels has times without a time zone",
        why="without a zone it is a different time on every machine",
        fix=f"give it one, for example labels[{name!r}].dt.tz_localize('UTC')",
    )
