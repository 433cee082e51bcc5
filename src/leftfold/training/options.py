"""Options of a training set, and the vector that it is made for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from leftfold.declare.catalog import Catalog, DeclaredView
from leftfold.declare.free import View
from leftfold.declare.vector import Vector
from leftfold.errors import DeclarationError, name_known
from leftfold.fold.known import MODES, AsOf
from leftfold.fold.vector import Part, VectorDefinition


@dataclass(frozen=True)
class TrainingOptions:
    """Options of a training set: how labels are read, and what counts as known at their moments."""

    time: str
    keys: Mapping[str, str] = field(default_factory=dict)  # by key of a view: the label column, if named otherwise
    as_of: AsOf = "log"
    batch: Mapping[str, str] = field(default_factory=dict)  # by view: the label column with the batch that was read
    builds: Mapping[str, str] = field(default_factory=dict)  # by view: the build that was served, if not the current
    logged: bool = False  # take features that were logged with a prediction, where the definition is equal

    def as_json(self) -> dict[str, Any]:
        return {
            "time": self.time,
            "keys": dict(self.keys),
            "as_of": self.as_of,
            "batch": dict(self.batch),
            "builds": dict(self.builds),
            "logged": self.logged,
        }


def vector_of(vector: Any, catalog: Catalog) -> VectorDefinition:
    """Return the definition of a vector, which is given as a class or by name.

    A view can be given instead, also by class or name: it counts as a vector of all its features under their names.
    A free view (a function) is refused, because only a vector says which columns it has.
    """
    if isinstance(vector, str) and vector in catalog.vectors:
        return catalog.vectors[vector].__leftfold_definition__
    if isinstance(vector, type) and issubclass(vector, Vector):
        return vector.__leftfold_definition__
    if isinstance(vector, str):
        declared = catalog.view(vector)
    elif isinstance(vector, View) or hasattr(vector, "__leftfold_definition__"):
        declared = DeclaredView.of(vector)
    else:
        raise DeclarationError(
            "not-a-vector",
            f"a training set was asked for {vector!r}",
            why="its features are those of a lf.Vector, a lf.Features or a lf.Table",
            fix="pass a lf.Vector, lf.Features or lf.Table, or its name",
        )
    if isinstance(declared.definition, View):
        raise DeclarationError(
            "not-a-vector",
            f"a training set was asked for the function {declared.name}",
            why="which columns it has, only a vector says",
            fix=f"declare a lf.Vector with {declared.name}.column(...) and pass that",
            source=declared.source,
        )
    names = declared.definition.visible
    return VectorDefinition(declared.name, tuple(Part(n, declared.name, n) for n in names), (), names)


def check_options(options: TrainingOptions, views: Mapping[str, DeclaredView]) -> None:
    if options.as_of not in MODES:
        raise DeclarationError(
            "bad-as-of",
            f"a training set was asked for as of {options.as_of!r}",
            why='"event" takes all that happened before a label, "log" what was logged by then, "served" what readers '
            "of the store could get",
            fix='choose one of as_of="event", "log" or "served"',
        )
    if options.logged and options.as_of != "served":
        raise DeclarationError(
            "logged-not-served",
            f'a training set as of "{options.as_of}" was asked for logged features',
            why="a prediction logs what its reader got, and another rule of time gives other values",
            fix='take as_of="served", or leave logged= out',
        )
    for option, named in (("batch", options.batch), ("build", options.builds)):
        if unknown := [name for name in named if name not in views]:
            raise DeclarationError(
                "unknown-view",
                f"{option}= names {unknown[0]!r}, and the training set has no such view",
                why=f"its features are of {', '.join(views)}",
                fix=name_known(unknown[0], list(views), "or leave it out"),
            )
