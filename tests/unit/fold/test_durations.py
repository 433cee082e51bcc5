from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leftfold.errors import DeclarationError, SourceLine
from leftfold.fold.durations import micros, text


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("1ms", 1_000),
        ("1s", 1_000_000),
        ("90s", 90_000_000),
        ("10m", 600_000_000),
        ("1h", 3_600_000_000),
        ("7d", 604_800_000_000),
        ("1.5h", 5_400_000_000),
        (" 24 H ", 86_400_000_000),
        ("0.001ms", 1),
        (timedelta(hours=2), 7_200_000_000),
        (timedelta(microseconds=1), 1),
    ],
)
def test_what_people_write(written: str | timedelta, expected: int) -> None:
    assert micros(written, option="window") == expected


@pytest.mark.parametrize("written", ["", "10", "h", "1w", "-1h", "1 h 30 m", "1e3s", "١h ago", ".5h", "1h\n2h"])
def test_what_is_no_duration(written: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        micros(written, option="retention", source=SourceLine("streams.py", 3))
    assert caught.value.code == "bad-duration"
    assert f"retention={written!r}" in str(caught.value)
    assert str(caught.value.source) == "streams.py:3"


@pytest.mark.parametrize("written", [3600, 1.5, None, b"1h"])
def test_another_type_is_no_duration_either(written: Any) -> None:
    """The checker says so first; whoever has none is told the same, not an AttributeError."""
    with pytest.raises(DeclarationError) as caught:
        micros(written, option="window")
    assert caught.value.code == "bad-duration"


@pytest.mark.parametrize("written", ["0s", "0.0000001s", timedelta(0), timedelta(seconds=-1)])
def test_a_duration_is_positive(written: str | timedelta) -> None:
    with pytest.raises(DeclarationError) as caught:
        micros(written, option="window")
    assert caught.value.code == "duration-not-positive"


@given(st.integers(min_value=1, max_value=10**15))  # thirty years: beyond that a float of milliseconds loses digits
def test_text_parses_back(us: int) -> None:
    assert micros(text(us), option="window") == us


@pytest.mark.parametrize(
    ("us", "expected"), [(604_800_000_000, "7d"), (3_600_000_000, "1h"), (90_000_000, "90s"), (1_500, "1.5ms")]
)
def test_text_takes_the_largest_whole_unit(us: int, expected: str) -> None:
    assert text(us) == expected
