"""Ranges against sets of single offsets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leftfold.offsets import Range, Ranges

Offset = tuple[str, int, int]


def _range(place: tuple[str, int], start: int, length: int) -> Range:
    return Range(*place, start, start + length)


places = st.tuples(st.sampled_from(["clicks", "items"]), st.integers(0, 1))
some = st.lists(st.builds(_range, places, st.integers(0, 20), st.integers(0, 6)), max_size=6).map(Ranges.of)


def offsets(ranges: Ranges) -> set[Offset]:
    return {(r.topic, r.partition, o) for r in ranges for o in range(r.start, r.end)}


@given(some, some)
def test_operations_are_those_of_sets(a: Ranges, b: Ranges) -> None:
    assert offsets(a | b) == offsets(a) | offsets(b)
    assert offsets(a & b) == offsets(a) & offsets(b)
    assert offsets(a - b) == offsets(a) - offsets(b)
    assert len(a) == len(offsets(a))
    assert (a == b) == (offsets(a) == offsets(b))


@given(some, st.integers(1, 8))
def test_tiles_cover_it_once(a: Ranges, most: int) -> None:
    tiles = a.tiled(most)
    assert Ranges.of(tiles) == a
    assert sum(map(len, tiles)) == len(a)
    assert all(0 < len(t) <= most for t in tiles)


@given(some)
def test_json(a: Ranges) -> None:
    assert Ranges.from_json(a.as_json()) == a


def test_between_and_words() -> None:
    found = Ranges.between({"clicks": {0: 5}}, {"clicks": {0: 1_300, 1: 2, 2: 0}})
    assert list(map(str, found)) == ["clicks/0 5–1,299", "clicks/1 0–1"]
    assert not Ranges.between({"clicks": {0: 5}}, {"clicks": {0: 5}}).ranges


def test_a_tile_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        Ranges().tiled(0)
