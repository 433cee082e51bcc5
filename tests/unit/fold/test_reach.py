"""How far back the log is read, against a search for the oldest record that could matter."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import leftfold as lf
from leftfold.fold.definition import Definition
from leftfold.fold.durations import SECOND
from leftfold.fold.reach import CLOCK_SLACK, needed_since, store_reach, value_reach
from leftfold.fold.tiles import floor

NOW = 1_790_000_000_000_000


class Click(lf.Event):
    user_id: str
    at: datetime


def view(*windows: str | None, **options: Any) -> Definition:
    topic = lf.Topic("clicks", Click, key=Click.user_id, time=Click.at, **options)
    features = {f"n{number}": lf.count(window) for number, window in enumerate(windows)}
    made: Any = type("Clicks", (lf.Features,), features, of=topic, by=Click.user_id)
    definition: Definition = made.__leftfold_definition__
    return definition


WINDOWS = ("12s", "1m", "1h", "24h", "7d", "30d")
views = st.lists(st.sampled_from(WINDOWS), min_size=1, max_size=3, unique=True).map(lambda windows: view(*windows))
moments = st.integers(NOW, NOW + 40 * 86_400 * SECOND)


@given(views, moments)
def test_no_record_before_it_has_a_part_in_a_value(definition: Definition, moment: int) -> None:
    reach = value_reach(definition)
    assert reach is not None
    oldest_event = min(floor(moment - f.window, f.step) for f in definition.windowed if f.window is not None)
    assert oldest_event - definition.future >= moment - reach


@given(views, moments)
def test_no_record_before_it_lies_in_a_tile_of_the_store(definition: Definition, newest: int) -> None:
    """A ring of n slots holds the tile of the newest event and the n - 1 before it."""
    reach = store_reach(definition)
    assert reach is not None
    oldest_event = min(floor(newest, step) - (ring - 1) * step for step, ring in definition.rings.items())
    assert oldest_event - definition.future >= newest - reach


@given(views)
def test_the_store_keeps_what_a_value_needs(definition: Definition) -> None:
    of_values, of_store = value_reach(definition), store_reach(definition)
    assert of_values is not None
    assert of_store is not None
    assert of_store >= of_values


def test_the_log_is_read_from_a_minute_earlier() -> None:
    definition = view("24h")  # by steps of an hour; an event may be stamped a minute ahead
    assert value_reach(definition) == (25 * 3_600 + 60) * SECOND
    assert needed_since(definition, NOW, value_reach(definition)) == NOW - (25 * 3_600 + 60) * SECOND - CLOCK_SLACK


@pytest.mark.parametrize(("window", "options"), [(None, {}), ("1h", {"log_time": "producer"})])
def test_all_of_the_log_is_needed(window: str | None, options: dict[str, Any]) -> None:
    definition = view(window, **options)
    assert needed_since(definition, NOW, value_reach(definition)) is None
    assert needed_since(definition, NOW, store_reach(definition)) is None
