"""Where archive and log meet, from nothing but offsets."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest import mock

from hypothesis import given
from hypothesis import strategies as st

from leftfold.offsets import Range, Ranges
from leftfold.spark.history import records as history
from leftfold.spark.history.archive import Held
from leftfold.spark.history.records import _reach, seam, starts_since

Span = tuple[int, int, int]


def ranges(*spans: Span) -> Ranges:
    return Ranges.of(Range("t", p, start, end) for p, start, end in spans)


def test_the_archive_as_far_as_it_goes_then_the_log() -> None:
    parts = seam(ranges((0, 0, 100), (1, 0, 50)), ranges((0, 0, 60), (1, 0, 50)), {"t": {0: 40, 1: 45}})
    assert parts.archive == ranges((0, 0, 60), (1, 0, 50))
    assert parts.log == ranges((0, 60, 100))
    assert parts.gap == Ranges()


def test_what_neither_has_is_the_gap() -> None:
    parts = seam(ranges((0, 0, 100)), ranges((0, 10, 60)), {"t": {0: 70}})
    assert parts.gap == ranges((0, 0, 10), (0, 60, 70))
    assert parts.log == ranges((0, 70, 100))


def test_an_imported_past_lies_below_zero() -> None:
    parts = seam(ranges((0, -5, 100)), ranges((0, -20, 60)), {"t": {0: 0}})
    assert parts.archive == ranges((0, -5, 60))
    assert parts.log == ranges((0, 60, 100))


spans = st.lists(st.tuples(st.integers(0, 2), st.integers(-10, 40), st.integers(-10, 40)), max_size=6)


@given(spans, spans, st.dictionaries(st.integers(0, 2), st.integers(0, 40), min_size=3))
def test_every_offset_comes_from_one_place(
    wanted: list[tuple[int, int, int]], held: list[tuple[int, int, int]], firsts: dict[int, int]
) -> None:
    asked, archived = ranges(*wanted), ranges(*held)
    parts = seam(asked, archived, {"t": firsts})
    assert len(parts.archive) + len(parts.log) + len(parts.gap) == len(asked)
    assert parts.archive | parts.log | parts.gap == asked
    assert all(r.start >= firsts[r.partition] for r in parts.log)
    assert all(r.end <= firsts[r.partition] for r in parts.gap)
    assert not (parts.gap & archived).ranges


def test_reach_ends_at_a_gap() -> None:
    assert _reach(ranges((0, 0, 60), (1, 0, 40)), {0: 50, 1: 45}) == {0: 0, 1: 45}
    assert _reach(ranges((0, -8, 20), (0, 30, 60)), {0: 50}) == {0: 30}
    assert _reach(Ranges(), {0: 7}) == {0: 7}


def starts(
    archived: Ranges | None,
    since: int | None,
    *,
    begins: int | None = None,
    first: int,
    at: int | None,
    logged: int = 0,
) -> tuple[int, bool]:
    """Of one partition that ends at 900: where to read from, and whether it lacks something."""
    none: Any = None
    source: Any = SimpleNamespace(topics=("t",), partitions=(1,))
    admin: Any = SimpleNamespace(
        start_offsets=lambda *_: {0: first}, end_offsets=lambda *_: {0: 900}, offsets_at=lambda *_: {0: at}
    )
    found = {} if archived is None else {"t": Held("table", 3, "id", archived, {0: 600})}
    own = None if begins is None else {"t": {0: begins}}
    with (
        mock.patch.object(history, "archives_of", return_value=found),
        mock.patch.object(history, "first_since", return_value={0: logged}),
    ):
        begin, lacking = starts_since(none, source, admin, since, own)
    return begin["t"][0], bool(lacking)


def test_without_an_archive_the_log_is_all_there_is() -> None:
    assert starts(None, None, first=0, at=None) == (0, False)
    assert starts(None, 7, first=500, at=520) == (520, False)
    assert starts(None, 7, first=500, at=500) == (500, True)
    assert starts(None, 7, first=500, at=None) == (900, False)


def test_what_was_deleted_is_found_in_the_archive() -> None:
    whole, half, cut = ranges((0, 0, 600)), ranges((0, 200, 600)), ranges((0, 0, 400))
    assert starts(whole, 7, first=500, at=500, logged=300) == (300, False)
    assert starts(whole, 7, first=500, at=520, logged=300) == (520, False)  # the log reaches back further
    assert starts(whole, None, first=500, at=None) == (0, False)
    assert starts(half, 7, first=500, at=500, logged=200) == (200, True)  # before it, too, something may be meant
    assert starts(cut, 7, first=500, at=500, logged=300) == (500, True)  # between archive and log is a gap
    assert starts(ranges((0, -50, 600)), None, first=500, at=None) == (-50, False)


def test_a_build_lacks_nothing_from_before_it_began() -> None:
    half, past = ranges((0, 200, 600)), ranges((0, -50, 600))
    assert starts(half, 7, begins=200, first=500, at=500, logged=200) == (200, False)
    assert starts(None, 7, begins=500, first=500, at=500) == (500, False)
    assert starts(past, None, begins=0, first=500, at=None) == (0, False)
