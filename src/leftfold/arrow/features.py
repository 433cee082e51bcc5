"""The features of entities at moments, folded from their events by the code that a unit test of a view uses.

For an entity with few events in a window, a value is one partial of these events. For one with many, it is merged from
the partials of blocks of events, which are kept, and of single events at both ends. A block counts as a whole if all of
its events were known at the moment.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

import pyarrow as pa

from leftfold.arrow.past import AcceptedEvent, Version
from leftfold.arrow.types import type_of
from leftfold.fold import columns
from leftfold.fold.columns import Partial
from leftfold.fold.definition import Definition, Span, Windowed
from leftfold.fold.latest import Latest
from leftfold.fold.tiles import floor

_BLOCK = 128  # events
_ALWAYS = -(1 << 62)  # an event that was known at every moment


class EntityEvents:
    """The events of one entity. `known` has for each the number from which on it is known; None if all always are."""

    def __init__(self, definition: Definition, events: Sequence[AcceptedEvent], known: Sequence[int] | None) -> None:
        self._definition = definition
        self._times = [event.event_us for event in events]
        self._fields = [event.fields for event in events]
        self._known = known
        self._spans: dict[Span, set[int]] = {}  # the numbers of the columns of each span
        for feature in definition.windowed:
            self._spans.setdefault(feature.span, set()).update(feature.columns)
        self._partials: dict[tuple[int, int], Partial] = {}  # by column and block
        self._newest_known = (
            None
            if known is None
            else [max(known[i : i + _BLOCK], default=_ALWAYS) for i in range(0, len(events), _BLOCK)]
        )

    def at(self, moment: int, bound: int) -> dict[str, Any]:
        """Return the visible features at a moment. Only events whose number is below `bound` were known."""
        end = bisect_left(self._times, moment)
        merged: dict[tuple[Span, int], Partial] = {}
        for span, numbers in self._spans.items():
            window, step, ttl = span
            start = 0 if window is None else bisect_left(self._times, floor(moment - window, step))
            if ttl is not None and self._newest(end, bound) < moment - ttl:
                start = end
            pieces = self._pieces(start, end, bound)
            for number in numbers:
                merged[span, number] = self._merged(number, pieces)
        return self._definition.finals(merged)

    def _newest(self, end: int, bound: int) -> int:
        """The time of the newest known event before `end`."""
        places = range(end - 1, -1, -1)
        return next((self._times[i] for i in places if self._known is None or self._known[i] < bound), _ALWAYS)

    def _pieces(self, start: int, end: int, bound: int) -> list[int | list[Mapping[str, Any]]]:
        """Cut a range into the numbers of whole blocks, and single known events in between, in their order."""
        known, fields = self._known, self._fields
        if end - start < 2 * _BLOCK:
            chosen = fields[start:end] if known is None else [fields[i] for i in range(start, end) if known[i] < bound]
            return [list(chosen)]
        pieces: list[int | list[Mapping[str, Any]]] = []
        single: list[Mapping[str, Any]] = []
        place = start
        while place < end:
            block, inside = divmod(place, _BLOCK)
            whole = inside == 0 and place + _BLOCK <= end
            if whole and (self._newest_known is None or self._newest_known[block] < bound):
                if single:
                    pieces.append(single)
                    single = []
                pieces.append(block)
                place += _BLOCK
                continue
            if known is None or known[place] < bound:
                single.append(fields[place])
            place += 1
        return [*pieces, single] if single or not pieces else pieces

    def _merged(self, number: int, pieces: Sequence[int | list[Mapping[str, Any]]]) -> Partial:
        column = self._definition.columns[number]
        partials = [
            self._of_block(number, piece) if isinstance(piece, int) else columns.partial(column, piece)
            for piece in pieces
        ]
        return partials[0] if len(partials) == 1 else columns.merge(column, partials)

    def _of_block(self, number: int, block: int) -> Partial:
        found = self._partials.get((number, block), self)
        if found is self:
            events = self._fields[block * _BLOCK : (block + 1) * _BLOCK]
            found = self._partials[number, block] = columns.partial(self._definition.columns[number], events)
        return found


class EntityVersions:
    """The versions of one row of a table. `known` has for each the number from which on it is known."""

    def __init__(self, definition: Latest, versions: Sequence[Version], known: Sequence[int]) -> None:
        order = sorted(range(len(versions)), key=known.__getitem__)
        self._definition = definition
        self._known = [known[i] for i in order]
        # The newest version is the one with the largest offset, whenever it became known.
        self._newest = list(accumulate([versions[i] for i in order], _newer))

    def at(self, _moment: int, bound: int) -> dict[str, Any]:
        """Return the columns of the newest version whose number is below `bound`."""
        place = bisect_left(self._known, bound)
        return self._definition.row(self._newest[place - 1].row if place else None)


def _newer(one: Version, other: Version) -> Version:
    return other if other.offset >= one.offset else one


def types_of(definition: Definition | Latest) -> dict[str, pa.DataType]:
    """Return the type of each visible feature or column."""
    if isinstance(definition, Latest):
        return {c.name: type_of(c.kind, repeated=c.repeated) for c in definition.columns}
    kinds, every = definition.kinds(), {feature.name: feature for feature in definition.features}
    return {name: type_of(kinds[name], repeated=_is_list(definition, every[name])) for name in definition.visible}


def _is_list(definition: Definition, feature: Any) -> bool:
    return isinstance(feature, Windowed) and definition.columns[feature.columns[0]].aggregate == "last_n"
