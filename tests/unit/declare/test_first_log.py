"""When a header is believed."""

from __future__ import annotations

import pytest

from leftfold.declare.first_log import AHEAD, HEADER, UNKNOWN, header_of, log_time_of

NOW = 1_790_000_000_000_000


def test_without_a_header_the_broker_is_believed() -> None:
    assert log_time_of(None, NOW, by_broker=True) == (NOW, True)
    assert log_time_of(None, NOW, by_broker=False) == (NOW, False)


def test_a_header_says_when_it_was_first_logged() -> None:
    assert log_time_of(b"17", NOW, by_broker=True) == (17, True)
    assert log_time_of(str(NOW + AHEAD).encode(), NOW, by_broker=True) == (NOW + AHEAD, True)


@pytest.mark.parametrize(
    "header", [b"", b"x", UNKNOWN, b"-1", b"1.5", b"17\n", b" 17", b"1" * 19, str(NOW + AHEAD + 1).encode()]
)
def test_what_is_no_moment_of_the_past_is_not_believed(header: bytes) -> None:
    assert log_time_of(header, NOW, by_broker=True) == (NOW, False)


def test_a_producers_stamp_is_no_ground_to_believe_it() -> None:
    assert log_time_of(b"17", NOW, by_broker=False) == (NOW, False)


def test_the_last_header_of_the_name_counts() -> None:
    assert header_of(None) is None
    assert header_of([("trace", b"x")]) is None
    assert header_of([(HEADER, b"1"), ("trace", b"x"), (HEADER, b"2")]) == b"2"
    assert header_of([(HEADER, None)]) == b""
