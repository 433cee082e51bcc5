from __future__ import annotations

from functools import cache
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leftfold.errors import DeclarationError
from leftfold.fold.tiles import STEPS, Tile, check_step, cover, floor, ladder, ring_slots, step_of

S = 1_000_000
M, H, D = 60 * S, 3_600 * S, 86_400 * S


@pytest.mark.parametrize(
    ("window", "step"),
    [
        (12 * S, S),
        (119 * S, S),
        (120 * S, 10 * S),
        (10 * M, 10 * S),
        (12 * M, M),
        (H, 5 * M),
        (12 * H - 1, 5 * M),
        (12 * H, H),
        (24 * H, H),
        (7 * D, H),
        (12 * D, D),
        (365 * D, D),
    ],
)
def test_step_is_the_largest_that_fits_twelve_times(window: int, step: int) -> None:
    assert step_of(window) == step


@given(st.integers(12 * S, 1_000 * D))
def test_no_other_step_fits_better(window: int) -> None:
    step = step_of(window)
    assert step * 12 <= window
    assert not [s for s in (S, 10 * S, M, 5 * M, H, D) if step < s and s * 12 <= window]


@pytest.mark.parametrize("window", [1, S, 12 * S - 1])
def test_a_window_shorter_than_twelve_seconds_has_no_step(window: int) -> None:
    with pytest.raises(DeclarationError) as caught:
        step_of(window)
    assert caught.value.code == "window-too-short"


def test_a_chosen_step() -> None:
    assert check_step(5 * S, S) == S
    assert check_step(D, D) == D
    for window, step in ((H, 7 * S), (H, 2 * M), (5 * S, 10 * S), (H, D)):
        with pytest.raises(DeclarationError) as caught:
            check_step(window, step)
        assert caught.value.code == "bad-step"


def test_steps_are_nested() -> None:
    assert [coarse % fine for fine, coarse in pairwise(STEPS)] == [0] * (len(STEPS) - 1)


@pytest.mark.parametrize(("time", "expected"), [(0, 0), (9, 0), (10, 10), (-1, -10), (-10, -10), (-11, -20)])
def test_floor_goes_down_also_before_the_epoch(time: int, expected: int) -> None:
    assert floor(time, 10) == expected


def test_index_before_the_epoch() -> None:
    assert [Tile(10, start).index for start in (-20, -10, 0, 10)] == [-2, -1, 0, 1]


# Covers -------------------------------------------------------------------------------------------------------------

_STEP_SETS = st.sets(st.sampled_from(STEPS), min_size=1).map(sorted)
# Small nested steps make brute force affordable; `cover` knows nothing of seconds.
_SMALL_SETS = st.sampled_from([(1,), (1, 2), (1, 3), (1, 2, 6), (2, 4, 12), (1, 5, 10), (3, 12)])


@given(_STEP_SETS, st.integers(-(10**6), 10**6), st.integers(0, 3 * D), st.sampled_from([0, 1, -1]))
def test_a_cover_is_disjoint_complete_and_aligned(steps: list[int], first: int, span: int, edge: int) -> None:
    start = first * steps[0]
    until = start + (span if steps[0] >= 5 * M else span % (2 * H)) + edge
    tiles = list(cover(start, until, steps))
    if until <= start:
        assert tiles == []
        return
    assert all(t.step in steps and t.start % t.step == 0 for t in tiles)
    assert tiles[0].start == start
    ends = [t.start + t.step for t in tiles]
    assert [t.start for t in tiles[1:]] == ends[:-1]  # each begins where the one before ends
    assert ends[-2:-1] == [] or ends[-2] < until  # only the last may reach past the end
    assert ends[-1] >= until


@given(_SMALL_SETS, st.integers(-24, 24), st.integers(1, 30))
def test_a_cover_is_the_smallest_there_is(steps: tuple[int, ...], first: int, span: int) -> None:
    start = first * steps[0]
    until = start + span

    @cache
    def fewest(at: int) -> int:
        """By trying every tile that may stand at `at`."""
        return 0 if at >= until else 1 + min(fewest(at + step) for step in steps if at % step == 0)

    assert len(list(cover(start, until, steps))) == fewest(start)


@given(_SMALL_SETS, st.integers(-24, 24), st.integers(0, 30))
def test_an_exact_cover_is_the_smallest_that_never_reaches_past(steps: tuple[int, ...], first: int, span: int) -> None:
    start = first * steps[0]
    until = start + span * steps[0]

    @cache
    def fewest(at: int) -> int:
        """By trying every tile that may stand at `at` and ends in time."""
        ends = [at + step for step in steps if at % step == 0 and at + step <= until]
        return 0 if at >= until else 1 + min(map(fewest, ends))

    tiles = list(cover(start, until, steps, exact=True))
    assert len(tiles) == fewest(start)
    assert [t.start for t in tiles] == [start, *(t.start + t.step for t in tiles)][: len(tiles)]
    assert all(t.start % t.step == 0 and t.start + t.step <= until for t in tiles)
    assert sum(t.step for t in tiles) == until - start


# Rings --------------------------------------------------------------------------------------------------------------


@st.composite
def _windows(draw: st.DrawFn) -> list[tuple[int, int]]:
    """Windows with their steps, some chosen by hand, as a view would have them."""
    windows = []
    for _ in range(draw(st.integers(1, 4))):
        window = draw(st.sampled_from([12 * S, 90 * S, 10 * M, H, 7 * H + 1, 24 * H, 7 * D, 30 * D, 40 * D + 5]))
        fitting = [s for s in STEPS if s <= window and window // s <= 1_000]
        windows.append((window, draw(st.sampled_from(fitting))))
    return windows


@given(_windows(), st.integers(-(10**15), 2 * 10**15), st.sampled_from([0, S, M, H]))
def test_tiles_of_one_moment_never_share_a_slot(windows: list[tuple[int, int]], at: int, future: int) -> None:
    """Every tile a read at `at` can want, and every tile that can be written by then, has a slot of its own."""
    steps = sorted({step for _, step in windows})
    for step in steps:
        longest = max(w for w, s in windows if s <= step)
        ring = ring_slots(step, longest_window=longest, finest_step=steps[0], future=future)
        indices = {(at + future) // step}  # the newest tile that an accepted event can have made
        for window, own in windows:
            if own <= step:
                reach = cover(floor(at - window, own), at, [s for s in steps if s >= own])
                indices |= {t.index for t in reach if t.step == step}
        live = range(min(indices), max(indices) + 1)
        assert len({i % ring for i in live}) == len(live)


def test_a_ring_is_not_much_larger_than_its_window() -> None:
    assert ring_slots(H, longest_window=24 * H, finest_step=5 * M, future=M) <= 24 + 4


@given(st.sampled_from(STEPS), st.integers(S, 400 * D), st.integers(0, 30 * D))
def test_a_ladder_is_nested_and_reaches_every_start(finest: int, longest: int, lateness: int) -> None:
    steps = ladder(finest, longest, lateness)
    assert finest % steps[0] == 0
    assert all(b % a == 0 and b > a for a, b in pairwise(steps))
    assert steps[-1] <= max(longest, steps[0])
    # No finer than what is read of single events anyway, unless the view's own step is.
    assert steps[0] == S or steps[0] <= max(lateness // 2, S)


def test_ladders() -> None:
    assert ladder(5 * M, D, 30 * M) == (5 * M, 15 * M, H, 4 * H, D)
    assert ladder(H, 7 * D, 10 * M) == (5 * M, 15 * M, H, 4 * H, D)
    assert ladder(S, M, H) == (S, 10 * S, M)
