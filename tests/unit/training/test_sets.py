"""What was served when, from receipts; what may stand in the place of a vector; options."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

import leftfold as lf
from leftfold.declare.catalog import Catalog
from leftfold.errors import DeclarationError
from leftfold.fold.known import AppliedBatch, Unknown
from leftfold.fold.vector import Part
from leftfold.offsets import SLOTS_PER_TOPIC
from leftfold.run.receipts import Receipt, known_history, rolled_up, summed
from leftfold.spark.sinks.receipts import ReceiptRow
from leftfold.training.options import TrainingOptions, vector_of
from leftfold.training.report import Report
from leftfold.training.served import needed_of, served_by


class Click(lf.Event):
    user_id: str
    at: datetime


clicks = lf.Topic("clicks", Click, key=Click.user_id, time=Click.at)


class Activity(lf.Features, of=clicks, by=Click.user_id):
    n = lf.count("1h")
    half = n / 2


class Seen(lf.Vector):
    half = Activity.half.default(7.0)
    asked = lf.request(float)


CATALOG, _ = Catalog.of([clicks, Activity, Seen])


def receipt(number: int, applied: int) -> Receipt:
    return Receipt(
        first=number,
        last=number,
        topics={"a": "1", "b": "2"},
        ranges={"a": {0: (number, number + 1)}, "b": {3: (10 * number, 10 * (number + 1))}},
        records={"accepted": 11, "late": 0, "future": 0, "rejected": 0},
        rows=1,
        digest=0,
        ledger=(),
        applied={"online": applied},
        stores={},
        redriven=0,
    )


def batch(number: int, applied: int) -> AppliedBatch:
    return AppliedBatch(number, applied, {0: number + 1, SLOTS_PER_TOPIC + 3: 10 * (number + 1)})


def test_batches_of_single_and_rolled_up_receipts() -> None:
    receipts = [rolled_up([receipt(0, 100), receipt(1, 200)]), receipt(2, 300)]
    served = served_by(receipts, "b1", ["a", "b"], None)
    assert served.batches == (batch(0, 100), batch(1, 200), batch(2, 300))
    assert (served.last, served.unknown) == (2, ())
    earlier = served_by(receipts, "b1", ["a", "b"], 1)
    assert (earlier.last, earlier.batches) == (1, served.batches[:2])


def test_an_hour_of_an_older_release_counts_from_its_end() -> None:
    old = replace(rolled_up([receipt(1, 200), receipt(2, 250)]), series=None)
    served = served_by([receipt(0, 100), old, receipt(3, 400)], "b1", ["a", "b"], None)
    assert served.batches == (batch(0, 100), batch(2, 250), batch(3, 400))
    assert served.unknown == (Unknown(100, 250, 1, 2),)


def test_what_is_missing_ends_where_the_next_begins() -> None:
    """Details of batches 0 and 1 are gone, those of 4 and 5 are in the lake and not asked for; the sum covers all."""
    every = [receipt(n, 100 * (n + 1)) for n in range(8)]
    held = [summed(every[:7]), rolled_up(every[2:4]), every[6], every[7]]
    found = known_history(held)
    assert [(r.first, r.last) for r in found] == [(2, 3), (6, 6), (7, 7)]
    served = served_by(found, "b1", ["a", "b"], None)
    assert served.batches == tuple(
        batch(n, at) for n, at in ((1, 300), (2, 300), (3, 400), (5, 700), (6, 700), (7, 800))
    )
    assert served.unknown == (Unknown(0, 300, 0, 1), Unknown(400, 700, 4, 5))
    assert [u.meets((450, 450), None) for u in served.unknown] == [False, True]
    assert [u.meets((900, 900), (1, 1)) for u in served.unknown] == [True, False]


def test_a_sum_whose_hours_are_gone_is_one_batch() -> None:
    every = [receipt(n, 100 * (n + 1)) for n in range(4)]
    served = served_by(known_history([summed(every[:3]), every[3]]), "b1", ["a", "b"], None)
    assert served.batches == (batch(2, 300), batch(3, 400))
    assert served.unknown == (Unknown(0, 300, 0, 2),)
    # Its newest hour was deleted: what is known ends before it.
    found = known_history([summed(every), rolled_up(every[:2])])
    assert served_by(found, "b1", ["a", "b"], None).unknown == (Unknown(200, 400, 2, 3),)


def test_made_again_it_ends_where_it_ended() -> None:
    """By then batch 2, the newest at the time, may be in the middle of what is one batch now."""
    every = [receipt(n, 100 * (n + 1)) for n in range(6)]
    served = served_by(known_history([summed(every), rolled_up(every[:2])]), "b1", ["a", "b"], 2)
    assert (served.last, [b.batch for b in served.batches]) == (2, [0, 1, 2])


def test_only_what_labels_need_is_read_from_the_lake() -> None:
    rows = [ReceiptRow(10 * n, 10 * n + 9, 100 * (n + 1)) for n in range(9)]
    assert needed_of(rows, (250, 310), None) == rows[2:4]
    assert needed_of(rows, (300, 300), None) == rows[2:4]  # the last batch of one, the first of the other
    assert needed_of(rows, (5_000, 6_000), None) == []
    assert needed_of(rows, (5_000, 6_000), (45, 50)) == rows[4:6]


def test_a_batch_is_never_there_before_the_one_before_it() -> None:
    """Batch 0 ran again, and wrote its receipt again, after a clock had been set back."""
    served = served_by([receipt(0, 500), receipt(1, 450)], "b1", ["a", "b"], None)
    assert [b.applied for b in served.batches] == [500, 500]


@pytest.mark.parametrize("given", [Activity, "activity"])
def test_a_view_stands_for_a_vector(given: Any) -> None:
    made = vector_of(given, CATALOG)
    assert made.parts == (Part("n", "activity", "n"), Part("half", "activity", "half"))
    assert (made.name, made.inputs, made.order) == ("activity", (), ("n", "half"))


@pytest.mark.parametrize("given", [Seen, "seen"])
def test_a_vector_is_itself(given: Any) -> None:
    assert vector_of(given, CATALOG) == Seen.__leftfold_definition__


@pytest.mark.parametrize("given", ["nobody", 3, Click, dict])
def test_anything_else_is_refused(given: Any) -> None:
    with pytest.raises(DeclarationError) as refused:
        vector_of(given, CATALOG)
    assert refused.value.code in ("unknown-view", "not-a-vector")


def test_options_survive_json() -> None:
    options = TrainingOptions("ts", {"user_id": "uid"}, "served", {"activity": "batch"}, {"activity": "b1"})
    assert TrainingOptions(**options.as_json()) == options


def test_a_report_names_every_pair_once() -> None:
    counts = {(kind, "", ""): 1 for kind in ("labels", "without time", "outside", "unknown")}
    counts |= {("missing", "", "n"): 2, ("event", "log", "n"): 3}
    report = Report.of(counts, "log", ("event", "log"), ("n",))
    assert report.as_json() == {
        "as_of": "log",
        "rows": 1,
        "without_time": 1,
        "outside": 1,
        "unknown": 1,
        "missing": {"n": 2},
        "differ": {"event-log": {"n": 3}},
    }
