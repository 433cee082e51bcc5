from __future__ import annotations

import random

import pytest

from leftfold.fold.sketches import LARGEST_SKETCH, SKETCH_SIZE, SMALLEST_SKETCH, estimate, sketch, union
from tests.unit.fold import oracle


@pytest.mark.parametrize("size", [SMALLEST_SKETCH, SKETCH_SIZE, LARGEST_SKETCH])
@pytest.mark.parametrize("number", [0, 1, 7, 8, 60, 300, 5_000])
def test_an_estimate_depends_on_the_values_alone(size: int, number: int) -> None:
    """Not on how they were cut into tiles, in which order they came, or how often."""
    chance = random.Random(number)
    values: list[str | int] = [f"item {i}" if i % 2 else i for i in range(number)]
    expected = oracle.estimate(values, size)
    for cuts in (1, 2, 40):
        again = values + chance.choices(values, k=number) if values else values
        chance.shuffle(again)
        tiles = [sketch(again[i::cuts], size) for i in range(cuts)]
        assert estimate(union(tiles, size), size) == expected


def test_merging_is_associative_in_what_it_estimates() -> None:
    tiles = [sketch([f"{i}-{j}" for j in range(i * 40)], 9) for i in range(1, 7)]
    for cut in range(1, 6):
        halves = [union(tiles[:cut], 9), union(tiles[cut:], 9)]
        assert estimate(union(halves, 9), 9) == estimate(union(tiles, 9), 9)


def test_few_values_are_counted_exactly() -> None:
    assert [estimate(sketch(range(n), 9), 9) for n in range(8)] == list(range(8))


def test_an_empty_text_is_no_value() -> None:
    assert estimate(sketch(["", ""], 9), 9) == 0
    assert estimate(sketch(["", "a"], 9), 9) == 1


def test_a_sketch_is_text_without_line_breaks() -> None:
    text = sketch(range(10_000), 12)
    assert text.isascii()
    assert not set(text) & set('\n\r"\\')
