"""Rows for users: an instance of the class that was asked for, or a row with the feature names that the store knows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from leftfold.declare.free import View
from leftfold.declare.rows import R, Read, Row, row_of
from leftfold.declare.vector import Vector
from leftfold.fold.vector import VectorDefinition
from leftfold.store.reader import not_built


class NamedRow(Row):
    """A row that was read by a view's name. Each feature is an attribute."""

    @property
    def values(self) -> dict[str, Any]:
        held: dict[str, Any] = self.__dict__["_values"]
        return dict(held)

    @property
    def _title(self) -> str:
        return str(self.__dict__["_named"])

    def __getattr__(self, name: str) -> Any:
        if "_values" not in self.__dict__ or name.startswith("_"):  # copy and pickle ask before it is set
            raise AttributeError(name)
        if name in self.__dict__["_values"]:
            return self.__dict__["_values"][name]
        raise AttributeError(f"{self._title} has no feature {name!r}; it has {', '.join(self.values)}")


def target_of(view: type[Any] | str | View) -> str | VectorDefinition:
    if isinstance(view, str):
        return view
    if isinstance(view, View):
        return view.name
    if issubclass(view, Vector):
        return view.__leftfold_definition__
    name: str = view.__leftfold_definition__.view
    return name


def rows_of(view: type[R] | str | View, read: Sequence[Read]) -> list[R] | list[NamedRow]:
    if isinstance(view, str | View):
        named = view if isinstance(view, str) else view.name
        return [row_of(NamedRow, one, {"_values": one.values, "_named": named}) for one in read]
    for one in read[:1]:
        if missing := [name for name in view.__leftfold_names__ if name not in one.values]:
            raise not_built(one.provenance[0].view, missing[0])
    return [row_of(view, one, one.values) for one in read]
