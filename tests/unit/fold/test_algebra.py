"""Every way to a value, straight from events and by way of the store's tiles, against an oracle of its own.

The definitions, the events and the moments are generated; both tests count what they met, so that none of the
aggregates goes untested unseen.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from leftfold.errors import StoreError
from leftfold.fold import columns
from leftfold.fold.compute import compute
from leftfold.fold.definition import Definition
from leftfold.fold.values import entity_text
from leftfold.store.layout import LIFETIME_FIELD, field
from leftfold.store.reader import Reader
from tests.unit.fold import oracle
from tests.unit.fold.generated import AGGREGATES, Case, D, M, S, cases, declare, newest
from tests.unit.store.held import HeldStore

# Together well over 2,000 cases, in less than a minute of one core.
# Cases. `make meaning` has three times as many of the store, which take minutes.
COMPUTED, STORED = 800, 1_250 if os.environ.get("LEFTFOLD_MEANING") else 400
# A case is a view, its events and moments: larger than hypothesis expects of one, and worth it.
LARGE = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]
MET = (*AGGREGATES, "lifetime", "ttl", "where", "default", "composite key", *"+-*/")


def same(found: Any, expected: Any) -> bool:
    """To the type and the last bit: 0.0 is not -0.0, and not 0."""
    return repr(found) == repr(expected)


def test_compute_is_the_meaning() -> None:
    seen: Counter[str] = Counter()

    @settings(max_examples=COMPUTED, suppress_health_check=LARGE)
    @given(cases())
    def check(case: Case) -> None:
        definition = declare(case.asked, case.keys)
        case.count(seen)
        for entity in case.entities | {("nobody",) * len(case.keys)}:
            mine = case.of(entity)
            assert same(compute(definition, mine, case.at), oracle.values(case.asked, mine, case.at))

    check()
    assert {name for name in MET if seen[name] < COMPUTED // 20} == set(), seen


# The store's way ----------------------------------------------------------------------------------------------------


def rows_held(definition: Definition, case: Case) -> dict[str, dict[str, bytes]]:
    """entity -> field -> JSON, as the live view writes them: a tile of a later index takes the slot of an earlier."""
    held: dict[str, dict[str, bytes]] = {}
    for entity in case.entities:
        in_order = sorted(case.of(entity), key=lambda e: int(e["at"]))
        row = held.setdefault(entity_text(entity), {})
        for step in definition.steps:
            tiles: dict[int, list[dict[str, Any]]] = {}
            for event in in_order:
                tiles.setdefault(event["at"] // step, []).append(event)
            for index in sorted(tiles):
                name = field(step, index, definition.rings[step])
                row[name] = _tile(definition, index, tiles[index])
        if definition.lifetime:
            row[LIFETIME_FIELD] = _tile(definition, newest(in_order), in_order)
    return held


def _tile(definition: Definition, head: int, events: Sequence[dict[str, Any]]) -> bytes:
    partials = [columns.partial(c, events) for c in definition.columns]
    return json.dumps([head, 3, *partials], allow_nan=False).encode()


def alive(case: Case, events: Sequence[dict[str, Any]], at: int) -> bool:
    """Whether anything happened in any window, whatever its conditions."""
    return any(oracle.chosen(asked, events, at) for asked in case.windowed)


def tiles_needed(case: Case, steps: Sequence[int], at: int) -> Iterator[tuple[int, int]]:
    """(step, index) of the tiles between the start of each window and `at`, none of which reaches past it."""
    for asked in case.windowed:
        assert asked.window is not None
        start = (at - asked.window) // asked.step * asked.step
        while start < at:
            step = max(s for s in steps if start % s == 0 and start + s <= at)
            yield step, start // step
            start += step


def overwritten(case: Case, definition: Definition, row: dict[str, bytes], at: int) -> bool:
    for step, index in tiles_needed(case, definition.steps, at):
        value = row.get(field(step, index, definition.rings[step]))
        if value is not None and json.loads(value)[0] > index:
            return True
    return False


def refused(reader: Reader, view: str, key: dict[str, Any], at: int) -> None:
    with pytest.raises(StoreError) as caught:
        reader.read(view, [key], at)
    assert caught.value.code == "moment-not-kept"


def test_the_store_gives_the_same() -> None:
    """Through the whole reader: at moments after the newest event in one tick and the next, and at edges before it."""
    seen: Counter[str] = Counter()

    @settings(max_examples=STORED, suppress_health_check=LARGE)
    @given(cases(), st.lists(st.sampled_from([0, 1, S - 1, S, 10 * M, 3 * D]), min_size=1, max_size=3), st.data())
    def check(case: Case, later: list[int], data: st.DataObject) -> None:
        definition = declare(case.asked, case.keys)
        case.count(seen)
        held, last = rows_held(definition, case), newest(case.events)
        store = HeldStore()
        store.publish(definition, held, newest=last)
        reader = store.reader()
        entities = [*sorted(case.entities, key=repr), tuple({"user": "nobody", "shop": 7}[k] for k in case.keys)]
        asked = [dict(zip(case.keys, entity, strict=True)) for entity in entities]
        for more in (0, *later):
            at = max(case.at, last + 1) + more
            for entity, read in zip(entities, reader.read(definition.view, asked, at), strict=True):
                mine = case.of(entity)
                assert same(read.values, oracle.values(case.asked, mine, at))
                assert read.found == alive(case, mine, at)
                seen["now"] += 1
        if not case.events:
            return
        about = data.draw(st.sampled_from([e["at"] for e in case.events]))
        if definition.lifetime:
            refused(reader, definition.view, asked[0], about)
            return
        finest = definition.steps[0]
        edge = min(about // finest + data.draw(st.sampled_from([0, 1, 1, 2, 60])), last // finest) * finest
        if edge + 1 <= last:
            refused(reader, definition.view, asked[0], edge + 1)
        for entity, key in zip(entities, asked, strict=True):
            mine = case.of(entity)
            if overwritten(case, definition, held.get(entity_text(entity), {}), edge):
                refused(reader, definition.view, key, edge)
                seen["refused"] += 1
            else:
                (read,) = reader.read(definition.view, [key], edge)
                assert same(read.values, oracle.values(case.asked, mine, edge))
                assert read.found == alive(case, mine, edge)
                seen["past"] += bool(mine)

    check()
    assert {name for name in MET if seen[name] < STORED // 20} == set(), seen
    assert min(seen["now"], seen["past"], seen["refused"]) >= STORED // 20, seen
