"""The definition of a vector, as data: features of several views, and values that the caller gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from leftfold.fold.values import Kind


@dataclass(frozen=True)
class Part:
    name: str
    view: str
    feature: str
    default: Any = None  # a JSON value; a datetime has no default


@dataclass(frozen=True)
class Input:
    """A value that the caller gives at a read. In a training set it is a column of the labels."""

    name: str
    kind: Kind


@dataclass(frozen=True)
class VectorDefinition:
    name: str
    parts: tuple[Part, ...]
    inputs: tuple[Input, ...]
    order: tuple[str, ...]  # the names of all parts and inputs, in declared order

    @cached_property
    def views(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(part.view for part in self.parts))

    def as_json(self) -> dict[str, Any]:
        return {
            "vector": self.name,
            "parts": [[p.name, p.view, p.feature, p.default] for p in self.parts],
            "inputs": [[i.name, i.kind] for i in self.inputs],
            "order": list(self.order),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> VectorDefinition:
        return cls(
            data["vector"],
            tuple(Part(*p) for p in data["parts"]),
            tuple(Input(*i) for i in data["inputs"]),
            tuple(data["order"]),
        )
