"""Cuts: no record that can still be accepted lies in a tile before them, whatever the times are."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leftfold.fold.definition import Definition
from leftfold.fold.tiles import floor
from leftfold.rebuild.cut import cuts, freeze, oldest, still_there, uncut
from leftfold.run import watermark
from tests.unit.rebuild.declared import activity, lifetime, source

MINUTE = 60_000_000
NOW = 1_800_000_000_000_000
NO_SESSION: Any = None  # nothing is archived


@given(
    reached=st.integers(0, 2**52),
    past=st.integers(0, 2**40),
    back=st.integers(0, watermark.CLOCK_SLACK),
    late=st.integers(0, activity().lateness),
)
def test_what_is_still_accepted_lies_in_no_closed_tile(reached: int, past: int, back: int, late: int) -> None:
    definition = activity()
    logged = reached + past - back  # of a record past the ends, by a clock that may be behind
    event = logged - late
    for step, cut in cuts(definition, reached - watermark.CLOCK_SLACK - definition.lateness).items():
        assert floor(event, step) >= cut


@given(newest=st.integers(0, 2**52), ago=st.integers(0, 2**45))
def test_what_a_read_reaches_is_not_too_old(newest: int, ago: int) -> None:
    definition = activity()
    for feature in definition.windowed:
        assert feature.window is not None
        start = floor(newest - feature.window, feature.step)
        assert start >= oldest(definition, newest)[feature.step]


def test_what_can_be_cut() -> None:
    assert uncut(activity()) is None
    assert uncut(lifetime()) == "it has a feature without a window"
    by_producer = tuple(replace(o, log_time="producer") for o in activity().origins)
    assert 'has log_time="producer"' in (uncut(replace(activity(), origins=by_producer)) or "")


class Log:
    """Two partitions: the log times of their records, by offset, and where an open transaction begins."""

    def __init__(self, *times: list[int], stable: tuple[int, ...] | None = None, first: int = 0) -> None:
        self._times, self._stable, self._first = times, stable, first

    def end_offsets(self, topic: str, partitions: int) -> dict[int, int]:
        return {p: len(times) for p, times in enumerate(self._times)}

    def stable_offsets(self, topic: str, partitions: int) -> dict[int, int]:
        return self.end_offsets(topic, partitions) if self._stable is None else dict(enumerate(self._stable))

    def start_offsets(self, topic: str, partitions: int) -> dict[int, int]:
        return dict.fromkeys(range(partitions), self._first)

    def newest_times(self, topic: str, partitions: int) -> dict[int, int]:
        return {p: max(times) for p, times in enumerate(self._times) if times}

    def offsets_at(self, topic: str, partitions: int, moment: int) -> dict[int, int | None]:
        return {p: next((i for i, t in enumerate(ts) if t >= moment), None) for p, ts in enumerate(self._times)}


def frozen(log: Any, definition: Definition | None = None, since: int | None = None) -> Any:
    with mock.patch("leftfold.clock.now_us", return_value=NOW):
        return freeze(NO_SESSION, log, source(), definition or activity(), since)


def test_an_idle_partition_holds_nothing_back() -> None:
    minutes = [NOW - n * MINUTE for n in range(300, 0, -1)]
    made = frozen(Log(minutes, [NOW - 300 * MINUTE]))
    closed = NOW - watermark.CLOCK_SLACK - activity().lateness
    assert made.cuts == {step: floor(closed, step) for step in activity().steps}
    early = min(made.cuts.values()) - activity().future - watermark.CLOCK_SLACK
    assert made.starts["clicks"][0] == next(i for i, t in enumerate(minutes) if t >= early)
    assert made.starts["clicks"][1] == 0, "one offset at least is read again"
    assert made.ends["clicks"] == {0: 300, 1: 1}


def test_an_open_transaction_does() -> None:
    times = [NOW - n * MINUTE for n in range(300, 0, -1)]
    made = frozen(Log(times, times, stable=(300, 100)))
    assert made.ends["clicks"] == {0: 300, 1: 100}
    closed = times[100] - watermark.CLOCK_SLACK - activity().lateness
    assert made.cuts == {step: floor(closed, step) for step in activity().steps}


@pytest.mark.parametrize("log", [Log([], []), Log([NOW - MINUTE], [NOW - MINUTE], first=1)], ids=["empty", "expired"])
def test_nothing_to_read(log: Log) -> None:
    assert frozen(log) is None


def test_since_a_moment() -> None:
    times = [NOW - n * MINUTE for n in range(300, 0, -1)]
    made = frozen(Log(times, []), since=times[200])
    assert made.firsts["clicks"] == {0: 200, 1: 0}
    assert all(made.starts["clicks"][p] >= first for p, first in made.firsts["clicks"].items())


def test_what_retention_takes() -> None:
    times = [NOW - n * MINUTE for n in range(300, 0, -1)]
    made = frozen(Log(times, times))
    whole, cut = (cast(Any, Log(times, times, first=first)) for first in (0, 1))  # all of an admin that is used
    assert still_there(NO_SESSION, whole, source(), made)
    assert not still_there(NO_SESSION, cut, source(), made)
    made_again: Any = Log(times[:200], times[:200])
    assert not still_there(NO_SESSION, made_again, source(), made)
