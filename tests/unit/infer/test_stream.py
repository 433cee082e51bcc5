"""Scoring of records: which are scored, and whether their features hold them."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import leftfold as lf
from leftfold import clock
from leftfold.declare.record import Record
from leftfold.errors import StoreError
from leftfold.infer.scoring import Scoring
from leftfold.infer.stream import FeaturesAwayError, StreamScoring
from leftfold.store.reader import AppliedOffsets
from tests.unit.infer.ranker import Click, RankerInput, clicks, half, read, scores


class Marks:
    """A reader whose view applies five more offsets at each read."""

    def __init__(self, first: int = 4, *, row_batch: int = 7) -> None:
        self.offset, self.reads, self.row_batch = first - 5, 0, row_batch

    def read_applied(self, _: Any, asked: list[Any], topic: str, partitions: list[int]) -> Any:
        assert topic == "clicks"
        self.reads += 1
        self.offset += 5
        offsets = {"user_activity": dict.fromkeys(partitions, self.offset)}
        return [read(batch=self.row_batch) for _ in asked], AppliedOffsets({"user_activity": 7}, offsets)


def streaming(root: Path, reader: Any, **options: Any) -> StreamScoring:
    each = options.pop("on", None) or lf.each(clicks, start="now", cart_value=Click.price)
    made = lf.scorer(RankerInput, to=scores, model=dict, name="ranker", on=each, **options)(half)
    return StreamScoring(Scoring(made, root), reader)


def records(number: int, *, age: timedelta = timedelta(0)) -> tuple[list[Click], list[Record]]:
    at = clock.now() - age
    events = [Click(user_id=f"u{n}", price=float(n), at=at) for n in range(number)]
    return events, [Record.fake("clicks", 3, n) for n in range(number)]


def test_each_record_gets_a_prediction_with_its_place(tmp_path: Path) -> None:
    made = streaming(tmp_path, Marks(first=4))(*records(8))
    ids = [p.prediction_id for (p,) in made]
    assert ids == [f"clicks/3/{n}/ranker" for n in range(8)]
    assert [p.trigger_applied for (p,) in made] == [True] * 5 + [False] * 3


def test_applied_waits_until_the_view_holds_the_records(tmp_path: Path) -> None:
    reader = Marks(first=4)
    scoring = streaming(tmp_path, reader, trigger="applied", within="5s")
    made = scoring(*records(12))
    assert [p.trigger_applied for (p,) in made] == [True] * 12
    assert (reader.reads, scoring.applied, scoring.not_applied) == (3, 12, 0)


def test_applied_waits_no_longer_than_within(tmp_path: Path) -> None:
    scoring = streaming(tmp_path, Marks(first=-1_000), trigger="applied", within="100ms")
    made = scoring(*records(3))
    assert [p.trigger_applied for (p,) in made] == [False] * 3
    assert scoring.not_applied == 3


def test_a_row_that_is_newer_than_the_mark_leaves_it_open(tmp_path: Path) -> None:
    made = streaming(tmp_path, Marks(first=0, row_batch=8))(*records(3))
    assert [p.trigger_applied for (p,) in made] == [True, None, None]


def test_old_records_and_others_are_passed_over(tmp_path: Path) -> None:
    each = lf.each(clicks, start="now", where=Click.price >= 2, cart_value=Click.price)
    some = streaming(tmp_path, Marks(first=100), on=each)(*records(4))
    assert [len(made) for made in some] == [0, 0, 1, 1]
    old = streaming(tmp_path, Marks(first=100), expire="1m")
    assert [len(made) for made in old(*records(4, age=timedelta(minutes=2)))] == [0] * 4
    assert old.expired == 4


def test_a_store_that_is_away_is_not_the_record_s_fault(tmp_path: Path) -> None:
    class Away:
        def read_applied(self, *_: Any) -> Any:
            raise StoreError("store-unreachable", "no Redis answered", why="refused", fix="start it", retriable=True)

    with pytest.raises(FeaturesAwayError):
        streaming(tmp_path, Away())(*records(1))
