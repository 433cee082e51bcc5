"""What is committed of a partition, and what the next owner hands over again, in any order of events."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from leftfold.consume.settled import Committed, Settled, decoded, encoded

ID = "KzVhwQ0xQxaZ1Jb9uVnX2g"


def begin(at: Committed) -> Settled:
    return Settled("payments", ID, 3, at)


def test_the_lowest_open_offset_is_committed() -> None:
    part = begin(Committed(10))
    assert part.low == 10
    for offset in range(10, 15):
        assert part.take(offset, offset)
    part.settle(11)
    part.settle(13)
    assert part.low == 10
    assert part.position() == Committed(10, ID, (range(11, 12), range(13, 14)))
    assert part.oldest_us == 10
    part.settle(10)
    assert part.position() == Committed(12, ID, (range(13, 14),))
    part.settle(12)
    part.settle(14)
    assert part.position() == Committed(15, ID)


def test_gaps_settle_by_themselves() -> None:
    part = begin(Committed(0))
    part.take(0, 0)
    part.take(7, 0)  # 1 to 6 were removed by compaction
    part.settle(0)
    assert part.low == 7
    part.settle(7)
    part.reach(9)  # transaction markers before the end of the log
    assert part.low == 9


def test_the_next_owner_skips_what_is_settled_beyond() -> None:
    part = begin(decoded(10, encoded(Committed(10, ID, (range(11, 13), range(15, 16))))))
    assert [offset for offset in range(10, 18) if part.take(offset, 0)] == [10, 13, 14, 16, 17]
    assert part.redelivered == 3


def test_what_was_not_fetched_again_yet_is_still_known() -> None:
    part = begin(Committed(10, ID, (range(11, 13), range(15, 20))))
    part.take(10, 0)
    part.settle(10)
    assert part.position() == Committed(11, ID, (range(11, 13), range(15, 20)))
    part.take(11, 0)
    assert part.position().beyond == (range(12, 13), range(15, 20)) or part.low == 12


def test_metadata_that_is_not_ours_says_nothing() -> None:
    ours = encoded(Committed(10, ID, (range(12, 20),)))
    assert decoded(10, ours) == Committed(10, ID, (range(12, 20),))
    for foreign in (None, "", "{}", "[]", "not JSON", '{"v":2,"o":10}', ours.replace('"s":"', '"s":"!')):
        assert decoded(10, foreign) == Committed(10)
    assert decoded(11, ours) == Committed(11), "another tool has moved the position"


@given(st.lists(st.tuples(st.integers(1, 300), st.integers(1, 300)), max_size=3_000))
def test_metadata_fits_and_never_claims_too_much(gaps: list[tuple[int, int]]) -> None:
    at, beyond = 5, []
    for gap, length in gaps:
        beyond.append(range(at + gap, at + gap + length))
        at += gap + length
    text = encoded(Committed(5, ID, tuple(beyond)))
    assert len(text) <= 4_000  # brokers refuse more than 4,096 bytes
    read = decoded(5, text).beyond
    assert read == tuple(beyond[: len(read)])
    assert len(read) == len(beyond) or len(text) > 3_700


@given(st.randoms(use_true_random=False), st.integers(1, 60))
def test_any_history_loses_nothing(rnd: random.Random, records: int) -> None:
    """Take, settle, commit and crash in any order: every record is handled, and settled ones at most once more."""
    log = sorted(rnd.sample(range(2 * records), records))
    handled = dict.fromkeys(log, 0)
    committed = Committed(0)
    handled_since_commit: set[int] = set()
    crashes = 0
    while True:
        part, opened = begin(committed), list[int]()
        fetch = iter([offset for offset in log if offset >= committed.offset])
        more = True
        while more or opened:
            step = rnd.random()
            if step < 0.45 and more:
                offset = next(fetch, None)
                if offset is None:
                    more = False
                elif part.take(offset, 0):
                    opened.append(offset)
            elif step < 0.8 and opened:
                offset = opened.pop(rnd.randrange(len(opened)))
                part.settle(offset)
                handled[offset] += 1
                handled_since_commit.add(offset)
            elif step < 0.95:
                committed = decoded(part.low, encoded(part.position()))
                handled_since_commit.clear()
            elif crashes < 5:
                crashes += 1
                again = handled_since_commit.copy()
                handled_since_commit.clear()
                for offset in again:
                    handled[offset] -= 1  # may be handled once more
                break
        else:
            break
    assert all(number == 1 for number in handled.values())
