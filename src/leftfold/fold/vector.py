"""What a vector is, as data: features of several views side by side, and what the caller gives."""

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
    default: Any = None  # a JSON value; moments have none


@dataclass(frozen=True)
class Input:
    """Given by the caller at a read, a column of the labels in a training set."""

    name: str
    kind: Kind


@dataclass(frozen=True)
class VectorDefinition:
    name: str
    parts: tuple[Part, ...]
    inputs: tuple[Input, ...]
    order: tuple[str, ...]  # of parts and inputs together, as declared

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
