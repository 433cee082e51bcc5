"""The rows of views as the store holds them, for comparisons with what other sides have written."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import leftfold
from leftfold.fold import columns
from leftfold.fold.definition import Definition
from leftfold.fold.durations import SECOND
from leftfold.store.layout import field
from leftfold.store.packed import unpack

BY_FIELDS = "tiles:"


def definition_of(app: leftfold.App, view: str) -> Definition:
    definition = app.catalog.view(view).definition
    assert isinstance(definition, Definition)
    return definition


def tiles_in(definition: Definition, row: Mapping[bytes, bytes]) -> Iterator[tuple[int, list[Any]]]:
    """Yield the tiles of a row of windowed features: the step in seconds, and the index, batch and partials.

    Of those that are packed and older than a day, only sums and counts are whole.
    """
    slots: dict[tuple[int, int], list[Any]] = {}
    for name, value in row.items():
        if b":" in name:
            step, slot = map(int, name.split(b":"))
            slots[step, slot] = json.loads(value)
    for step_us, tiles in unpack(definition, row[b"packed"]).items() if b"packed" in row else ():
        for tile in tiles:
            place = (step_us // SECOND, tile[0] % definition.rings[step_us])
            if place not in slots or slots[place][0] < tile[0]:
                slots[place] = list(tile)
    yield from ((step, tile) for (step, _), tile in slots.items())


def store_by_fields(app: leftfold.App, store: Any, view: str, rows: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
    """Store rows, made from their events, under `BY_FIELDS`, each tile as a field with a JSON value, for bare calls."""
    definition = definition_of(app, view)
    for key, events in rows.items():
        tiles: dict[tuple[int, int], list[Mapping[str, Any]]] = {}
        for event in sorted(events, key=lambda event: int(event[definition.time])):
            for step in definition.steps:
                tiles.setdefault((step, event[definition.time] // step), []).append(event)
        fields = {}
        for (step, index), of_tile in tiles.items():  # in order of time, so that a slot has its newest tile
            partials = [columns.partial(column, of_tile) for column in definition.columns]
            name = field(step, index, definition.rings[step])
            fields[name] = json.dumps([index, 0, *partials], separators=(",", ":"))
        store.hset(BY_FIELDS + key, mapping=fields)
