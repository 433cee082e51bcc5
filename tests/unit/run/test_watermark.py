"""When may a batch be committed, so that the watermark sweeps nothing that is still to come?"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from leftfold.declare.first_log import AHEAD
from leftfold.fold.definition import Origin
from leftfold.run.watermark import CLOCK_SLACK, SLACK, Place, first_delay, steps_back, wider_delay

LATENESS = 600_000_000
A, B, C = ("payments", 0), ("payments", 1), ("refunds", 0)
PLACES = st.tuples(st.sampled_from(["payments", "refunds"]), st.integers(0, 2))


def test_partitions_that_are_level_may_be_committed() -> None:
    newest = {A: 10**12, B: 10**12 - SLACK // 2}
    assert wider_delay(first_delay(LATENESS), lateness=LATENESS, newest_log=newest, unread=[B]) is None


def test_a_partition_far_behind_needs_a_longer_delay() -> None:
    newest = {A: 10**12, B: 10**12 - 5 * SLACK}
    wider = wider_delay(first_delay(LATENESS), lateness=LATENESS, newest_log=newest, unread=[B])
    assert wider is not None
    assert wider > 5 * SLACK + LATENESS + CLOCK_SLACK


def test_a_partition_that_is_read_to_its_end_holds_nobody_up() -> None:
    newest = {A: 10**12, B: 0}
    assert wider_delay(first_delay(LATENESS), lateness=LATENESS, newest_log=newest, unread=[A]) is None
    assert wider_delay(first_delay(LATENESS), lateness=LATENESS, newest_log=newest, unread=[A, C]) is None


@given(
    logs=st.dictionaries(PLACES, st.integers(0, 10**12), min_size=1),
    unread=st.sets(PLACES),
    ahead=st.integers(0, 10**10),
    old=st.integers(0, LATENESS),
)
def test_no_accepted_record_is_ever_swept(logs: dict[Place, int], unread: set[Place], ahead: int, old: int) -> None:
    """The oracle is the rule itself: the next record's tile must end after the watermark that the commit creates."""
    delay = first_delay(LATENESS)
    while (wider := wider_delay(delay, lateness=LATENESS, newest_log=logs, unread=unread)) is not None:
        assert wider > delay
        delay = wider
    watermark = max(logs.values()) - delay
    for place in unread & set(logs):
        next_log = logs[place] - CLOCK_SLACK + ahead  # its leader's clock may have stepped back a little
        assert next_log - old >= watermark


def test_what_a_copier_writes_may_step_back_further() -> None:
    assert steps_back([Origin("payments", LATENESS, "broker"), Origin("refunds", LATENESS, "producer")]) == 0
    back = steps_back([Origin("payments", LATENESS, "header")])
    assert AHEAD <= CLOCK_SLACK, "a repair finds copied records by the time at which they were copied"
    newest = {A: 10**12, B: 10**12 - (SLACK - CLOCK_SLACK - back)}
    delay = first_delay(LATENESS)
    assert wider_delay(delay, lateness=LATENESS, newest_log=newest, unread=[B], back=back) is None
    behind = {**newest, B: newest[B] - 1}
    wider = wider_delay(delay, lateness=LATENESS, newest_log=behind, unread=[B], back=back)
    assert wider is not None
    assert wider_delay(wider, lateness=LATENESS, newest_log=behind, unread=[B], back=back) is None
