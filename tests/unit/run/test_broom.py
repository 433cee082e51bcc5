"""When may a batch be committed, so that the watermark sweeps nothing that is still to come?"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from leftfold.run.broom import CLOCK_SLACK, SLACK, first_delay, wider_delay

LATENESS = 600_000_000


def test_partitions_that_are_level_may_be_committed() -> None:
    newest = {0: 10**12, 1: 10**12 - SLACK // 2}
    assert wider_delay(first_delay(LATENESS), lateness=LATENESS, newest_log=newest, unread=[1]) is None


def test_a_partition_far_behind_needs_a_longer_delay() -> None:
    newest = {0: 10**12, 1: 10**12 - 5 * SLACK}
    wider = wider_delay(first_delay(LATENESS), lateness=LATENESS, newest_log=newest, unread=[1])
    assert wider is not None
    assert wider > 5 * SLACK + LATENESS + CLOCK_SLACK


def test_a_partition_that_is_read_to_its_end_holds_nobody_up() -> None:
    newest = {0: 10**12, 1: 0}
    assert wider_delay(first_delay(LATENESS), lateness=LATENESS, newest_log=newest, unread=[0]) is None
    assert wider_delay(first_delay(LATENESS), lateness=LATENESS, newest_log=newest, unread=[0, 2]) is None


@given(
    logs=st.dictionaries(st.integers(0, 5), st.integers(0, 10**12), min_size=1),
    unread=st.sets(st.integers(0, 5)),
    ahead=st.integers(0, 10**10),
    old=st.integers(0, LATENESS),
)
def test_no_accepted_record_is_ever_swept(logs: dict[int, int], unread: set[int], ahead: int, old: int) -> None:
    """The oracle is the rule itself: the next record's tile must end after the watermark that the commit creates."""
    delay = first_delay(LATENESS)
    while (wider := wider_delay(delay, lateness=LATENESS, newest_log=logs, unread=unread)) is not None:
        assert wider > delay
        delay = wider
    watermark = max(logs.values()) - delay
    for partition in unread & set(logs):
        next_log = logs[partition] - CLOCK_SLACK + ahead  # its leader's clock may have stepped back a little
        assert next_log - old >= watermark
