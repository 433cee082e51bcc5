"""F_w(k, t): the value of every feature of a definition, computed directly from events.

This is the simplest statement of what a view means. `Features.compute` uses it, for users' unit tests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from leftfold.fold import columns
from leftfold.fold.definition import Definition, Span, Windowed
from leftfold.fold.tiles import floor


def compute(definition: Definition, events: Sequence[Mapping[str, Any]], at: int) -> dict[str, Any]:
    """Compute the visible features at the moment `at`.

    `events` are the accepted events of one entity, in log order, with times in microseconds.
    """
    chosen = _by_span(definition, events, at)
    merged = {
        (feature.span, column): columns.partial(definition.columns[column], chosen[feature.span])
        for feature in definition.windowed
        for column in feature.columns
    }
    return definition.finals(merged)


def happened(definition: Definition, events: Sequence[Mapping[str, Any]], at: int) -> bool:
    """Return whether any of the events is in any window."""
    return any(_by_span(definition, events, at).values())


def _by_span(
    definition: Definition, events: Sequence[Mapping[str, Any]], at: int
) -> dict[Span, Sequence[Mapping[str, Any]]]:
    time = definition.time
    before = sorted((e for e in events if e[time] < at), key=lambda e: int(e[time]))  # stable: ties keep log order
    return {feature.span: _chosen(feature, before, time, at) for feature in definition.windowed}


def _chosen(feature: Windowed, before: Sequence[Mapping[str, Any]], time: str, at: int) -> Sequence[Mapping[str, Any]]:
    if feature.window is not None:
        start = floor(at - feature.window, feature.step)
        return [e for e in before if e[time] >= start]
    gone = feature.ttl is not None and bool(before) and before[-1][time] < at - feature.ttl
    return [] if gone else before
