"""What was served when, from receipts; what may stand in the place of a vector; options."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

import leftfold as lf
from leftfold.errors import DeclarationError
from leftfold.fold.vector import Part
from leftfold.replay.report import Report
from leftfold.replay.training import Options, served_by, vector_of
from leftfold.run.receipts import Receipt, rolled_up
from leftfold.spark.served import AppliedBatch
from leftfold.spark.source import SLOTS_PER_TOPIC
from leftfold.spec.catalog import Catalog


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
    assert served.unknown == ((100, 250),)


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
    options = Options("ts", {"user_id": "uid"}, "served", {"activity": "batch"}, {"activity": "b1"})
    assert Options(**options.as_json()) == options


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
