"""F_w(k, t): the value of every feature of a definition, straight from events.

The meaning in its plainest form; used by `Features.compute` in people's unit tests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from leftfold.fold import columns
from leftfold.fold.definition import Definition
from leftfold.fold.tiles import floor


def compute(definition: Definition, events: Sequence[Mapping[str, Any]], at: int) -> dict[str, Any]:
    """`events` are accepted events of one entity, in log order, with times in microseconds."""
    in_order = sorted(events, key=lambda e: int(e[definition.time]))  # stable: ties keep log order
    values: dict[str, Any] = {}
    for feature in definition.features:
        column = definition.columns[feature.column]
        start = floor(at - feature.window, feature.step)
        chosen = [e for e in in_order if start <= e[definition.time] < at]
        values[feature.name] = columns.final(column, columns.partial(column, chosen))
    return values
