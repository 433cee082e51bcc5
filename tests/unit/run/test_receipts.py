"""Receipts as values."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import pytest

from leftfold.errors import RunError
from leftfold.run import receipts as module
from leftfold.run.receipts import Applied, Receipt, counted, in_parts, rolled_up, summed, tiling
from leftfold.run.reconcile import anchors, check_history, check_log, check_receipts, check_topics
from leftfold.spark.checkpoint import CheckpointState
from leftfold.store.layout import LedgerRow

HOUR = 3_600_000_000


def receipt(number: int, *, hour: int = 0) -> Receipt:
    """Batch `number` of ten records: one late, the rest accepted."""
    end = 10 * (number + 1)
    return Receipt(
        first=number,
        last=number,
        topics={"clicks": "id"},
        ranges={"clicks": {0: (end - 10, end)}},
        records={"accepted": 9, "late": 1, "future": 0, "rejected": 0},
        rows=4,
        digest=2**63 + number,
        ledger=(LedgerRow("clicks", 0, "accepted", 9 * (number + 1), 5, 6, end - 1),),
        applied={"online": hour * HOUR + number},
        stores={},
        redriven=0,
    )


def test_a_receipt_survives_json() -> None:
    assert Receipt.from_json(receipt(7).as_json()) == receipt(7)
    assert receipt(7).as_json()["records"]["in"] == 10


def test_rolled_up_it_covers_the_same() -> None:
    whole = rolled_up([receipt(n) for n in range(4)])
    assert (whole.first, whole.last, whole.ranges) == (0, 3, {"clicks": {0: (0, 40)}})
    assert whole.records == {"accepted": 36, "late": 4, "future": 0, "rejected": 0}
    assert whole.digest == (4 * 2**63 + 6) % 2**64
    assert whole.ledger == receipt(3).ledger


def test_rolled_up_it_still_knows_its_batches() -> None:
    whole = Receipt.from_json(rolled_up([receipt(n, hour=n) for n in range(5, 9)]).as_json())
    assert whole.batches() == [Applied(n, n * HOUR + n, {"clicks": {0: 10 * (n + 1)}}) for n in range(5, 9)]
    assert receipt(3).batches() == [Applied(3, 3, {"clicks": {0: 40}})]


def test_a_sum_covers_the_same_without_its_batches() -> None:
    several = [receipt(n) for n in range(4)]
    assert summed(several) == replace(rolled_up(several), series=None)
    assert summed([summed(several[:2]), rolled_up(several[2:])]) == summed(several)
    assert not summed(several).known


@pytest.mark.parametrize(
    ("ranges", "expected"),
    [
        ([], []),
        ([(0, 0), (1, 1), (2, 2)], [(0, 0), (1, 1), (2, 2)]),
        ([(0, 2), (0, 0), (1, 1), (2, 2), (3, 3)], [(0, 2), (3, 3)]),  # a death before the tombstones
        ([(0, 5), (0, 9), (6, 9), (10, 10)], [(0, 9), (10, 10)]),  # an older sum, and details
        ([(0, 80), (0, 50), (51, 100), (101, 101)], [(0, 50), (51, 100), (101, 101)]),  # lines drawn differently
        ([(0, 3), (5, 5), (6, 9), (7, 7)], [(0, 3), (5, 5), (6, 9)]),  # a gap
        ([(4, 9), (4, 4), (10, 10)], [(4, 9), (10, 10)]),  # the first are missing
        ([(0, 3), (2, 5), (4, 4)], [(0, 3), (4, 4)]),
    ],
)
def test_some_chain_reaches_the_last_batch(ranges: list[tuple[int, int]], expected: list[tuple[int, int]]) -> None:
    given = [replace(receipt(last), first=first) for first, last in ranges]
    for order in (given, given[::-1]):
        assert [(r.first, r.last) for r in tiling(order)] == expected


def test_a_partition_that_was_added_has_nothing_before() -> None:
    wider = replace(receipt(1), ranges={"clicks": {0: (10, 20), 1: (0, 4)}})
    assert rolled_up([receipt(0), wider]).batches() == [
        Applied(0, 0, {"clicks": {0: 10, 1: 0}}),
        Applied(1, 1, {"clicks": {0: 20, 1: 4}}),
    ]


def test_receipts_of_older_releases_know_no_batches() -> None:
    document = rolled_up([receipt(n) for n in range(3)]).as_json()
    del document["batches"]
    older = Receipt.from_json(document)
    assert older.batches() is None
    assert rolled_up([older, receipt(3)]).batches() is None
    assert Receipt.from_json(older.as_json()) == older


def test_what_is_too_large_for_one_is_rolled_up_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    several = [replace(receipt(n), applied={"online": n**9}) for n in range(40)]
    whole = rolled_up(several).series or ""
    for limit in (8, len(whole) // 5, len(whole) - 1, len(whole)):
        monkeypatch.setattr(module, "_LARGEST_SERIES", limit)
        parts = list(in_parts(several))
        assert all(p.first == p.last or len(p.series or "") <= limit for p in parts)
        assert (len(parts) == 1) == (limit == len(whole))
        assert [b for p in parts for b in p.batches() or ()] == rolled_up(several).batches()


def test_a_large_hour_fits_a_message() -> None:
    """An hour of a batch a second over 64 partitions, each of other records: no part beyond what a broker takes."""
    chance = random.Random(1)
    ends = [0] * 64
    hour = []
    for number in range(3_600):
        ranges = {"clicks": {p: (end, end + chance.randrange(5_000)) for p, end in enumerate(ends)}}
        ends = [end for _, end in ranges["clicks"].values()]
        hour.append(replace(receipt(number), ranges=ranges, applied={"online": number * 1_000_000}))
    parts = list(in_parts(hour))
    assert len(parts) > 1
    assert max(len(json.dumps(p.as_json())) for p in parts) < 1_000_000
    assert [b.ends["clicks"][63] for p in parts for b in p.batches() or ()][-1] == ends[63]


def test_counts_are_differences() -> None:
    assert counted(receipt(5).ledger, receipt(4).ledger)["accepted"] == 9


@pytest.mark.parametrize(
    ("receipts", "standing", "code"),
    [
        ([0, 1, 2], CheckpointState("id", 2, 2), None),
        ([0, 1, 2], CheckpointState("id", 1, 2), None),  # died between receipt and commit
        ([0, 1], CheckpointState("id", 1, 2), None),  # died before the receipt
        ([], CheckpointState("id", -1, 0), None),
        ([0, 1, 2], CheckpointState("id", 0, 1), "checkpoint-restored"),
        ([0, 1], CheckpointState("id", 2, 2), "receipts-missing"),
        ([0, 2], CheckpointState("id", 2, 2), "receipts-missing"),
        ([1, 2], CheckpointState("id", 2, 2), "receipts-missing"),
        ([], CheckpointState("id", 2, 2), "receipts-missing"),
    ],
)
def test_what_disagrees_is_refused(receipts: list[int], standing: CheckpointState, code: str | None) -> None:
    given = [receipt(n) for n in receipts]
    planned = given[-1].ends if given and given[-1].last <= standing.planned else None
    if code is None:
        check_receipts("clicks", standing, given, planned)
        return
    with pytest.raises(RunError) as refused:
        check_receipts("clicks", standing, given, planned)
    assert refused.value.code == code


def test_a_checkpoint_with_other_offsets_is_refused() -> None:
    with pytest.raises(RunError) as refused:
        check_receipts("clicks", CheckpointState("id", 0, 0), [receipt(0)], {"clicks": {0: 11}})
    assert refused.value.code == "checkpoint-restored"


def test_topics_are_compared_by_id() -> None:
    check_topics("clicks", receipt(0), {"clicks": "id"})
    check_topics("clicks", None, {"clicks": "another"})
    for ids in ({"clicks": "another"}, {}):
        with pytest.raises(RunError):
            check_topics("clicks", receipt(0), ids)


def test_a_gap_is_named_to_the_offset() -> None:
    check_history("clicks", {"clicks": {0: 5, 1: 7}}, {"clicks": {0: 5, 1: 0}})
    with pytest.raises(RunError, match=r"clicks/1: 7 to 8 \(2\)"):
        check_history("clicks", {"clicks": {0: 5, 1: 7}}, {"clicks": {0: 5, 1: 9}})


def test_the_anchor_is_the_newest_record_of_any_outcome() -> None:
    rows = [
        LedgerRow("clicks", 0, "accepted", 9, 5, 6, 20, (1, 2), 3),
        LedgerRow("clicks", 0, "late", 1, 5, 6, 21, (1, 2), 4),
        LedgerRow("clicks", 1, "accepted", 9, 5, 6, 7, (1, 2), 5),
        LedgerRow("clicks", 2, "accepted", 9, 5, 6, -7, (1, 2), 5),  # imported: the log never had it
        LedgerRow("clicks", 3, "accepted", 9, 5, 6, 7),  # counted by an earlier release
    ]
    assert anchors(rows) == {("clicks", 0): (21, 4), ("clicks", 1): (7, 5)}


def test_a_log_is_compared_where_it_was_read() -> None:
    read, ends = {0: (21, 4), 1: (7, 5)}, {0: 30, 1: 8}
    check_log("v", "clicks", read, ends, {0: 4, 1: 5})
    check_log("v", "clicks", read, ends, {0: 4})  # compaction took the other
    with pytest.raises(RunError, match=r"clicks/1 up to offset 7, .* another record has that offset now"):
        check_log("v", "clicks", read, ends, {0: 4, 1: 6})
    with pytest.raises(RunError, match=r"clicks/0 up to offset 21, .* it ends at 21"):
        check_log("v", "clicks", read, {0: 21, 1: 8}, {1: 5})
