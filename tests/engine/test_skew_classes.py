"""Every class and every reason of a comparison, on frames that are made by hand: Spark, and no brokers.

Values are compared with literals. Which records a batch had is shown by `test_skew.py`, on real engines.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import functions as F

import leftfold as lf
from leftfold.fold.known import AppliedBatch, Unknown
from leftfold.fold.vector import Part
from leftfold.spark.quality.skew import BuildPast, Predicted, ViewOfVector, compared
from leftfold.spark.training.assemble import ViewPast
from leftfold.spark.training.served import with_batches

SECOND = 1_000_000
T0 = 1_790_000_000 * SECOND  # a whole number of steps


class Payment(lf.Event):
    account: str
    amount: float
    at: datetime


class Item(lf.Event):
    account: str
    colour: str


payments = lf.Topic("payments", Payment, key=Payment.account, time=Payment.at, partitions=1, lateness="1m")
items = lf.Topic("items", Item, key=Item.account, compacted=True, partitions=1)


class Activity(lf.Features, of=payments, by=Payment.account):
    n = lf.count("1h")
    total = lf.sum(Payment.amount, "1h")
    newest = lf.last_n(Payment.amount, "1h", n=2)


class Fewer(lf.Features, of=payments, by=Payment.account, name="activity"):
    n = lf.count("1h", where=Payment.amount > 10)


class Colours(lf.Table, of=items, by=Item.account):
    colour = Item.colour


PARTS = (
    Part("n", "activity", "n"),
    Part("total", "activity", "total", 0.0),
    Part("newest", "activity", "newest"),
)
VIEWS = (
    ViewOfVector("activity", "a_build", "a_batch", "a_found", PARTS),
    ViewOfVector("colours", "c_build", "c_batch", "c_found", (Part("colour", "colours", "colour"),)),
)
SCHEMA = (
    "prediction_id string, scorer string, outcome string, scored_at timestamp, account string, n bigint, total double,"
    " newest array<double>, colour string, a_build string, a_batch bigint, a_found boolean, c_build string,"
    " c_batch bigint, c_found boolean"
)
# One partition, two records in each batch: (account, seconds, amount). Record i has offset i and is in batch i // 2.
PAID = [("x", 0, 1.5), ("y", 1, 20.0), ("x", 2, 20.25), ("y", 3, 4.0), ("x", 4, 100.0), ("z", 5, 7.0)]
# (account, colour), each in a batch of its own. The log still has these: an older row of y may be gone.
ROWS = [(0, "x", "red"), (2, "y", "blue"), (3, "z", "green")]


def at(seconds: float) -> datetime:
    return datetime.fromtimestamp(T0 / SECOND, UTC) + timedelta(seconds=seconds)


def batches(number: int, each: int) -> tuple[AppliedBatch, ...]:
    return tuple(AppliedBatch(n, T0 + n * SECOND, {0: (n + 1) * each}) for n in range(number))


def paid(spark: Any) -> Any:
    rows = [
        (0, i, T0 + s * SECOND, T0 + s * SECOND, "accepted", who, T0 + s * SECOND, amount)
        for i, (who, s, amount) in enumerate(PAID)
    ]
    schema = "slot int, offset bigint, log_us bigint, event_us bigint, outcome string"
    return spark.createDataFrame(rows, f"{schema}, own_account string, own_at bigint, own_amount double")


def coloured(spark: Any) -> Any:
    rows = [(0, o, who, T0 + o * SECOND, o, False, colour) for o, who, colour in ROWS]
    schema = "slot int, offset bigint, entity string, log_us bigint, position bigint, deleted boolean, c0 string"
    return spark.createDataFrame(rows, schema)


def logged(id_: str, account: str, **changes: Any) -> tuple[Any, ...]:
    """A prediction of x after batch 1, read ten seconds after the first payment, with what is right for it."""
    right: dict[str, Any] = {
        "prediction_id": id_,
        "scorer": "fraud",
        "outcome": "scored",
        "scored_at": at(10),
        "account": account,
        "n": 2,
        "total": 21.75,
        "newest": [20.25, 1.5],
        "colour": "red",
        **{"a_build": "b-1", "a_batch": 1, "a_found": True, "c_build": "c-1", "c_batch": 1, "c_found": True},
    }
    assert changes.keys() <= right.keys()
    return tuple({**right, **changes}.values())


def replayed(spark: Any, rows: list[tuple[Any, ...]]) -> Any:
    """The predictions as a replay gives them: a record that is late is one of them, a rejected one is not."""
    frame = spark.createDataFrame(rows, SCHEMA).withColumns({"_outcome": F.lit("late"), "_offset": F.lit(7)})
    again = frame.withColumns({"_offset": F.lit(9), "n": F.lit(77)})
    return frame.unionByName(again).unionByName(again.withColumns({"_outcome": F.lit("rejected"), "_offset": F.lit(1)}))


def build(spark: Any, definition: Any, name: str, rows: Any, applied: Any, **options: Any) -> BuildPast:
    past = ViewPast("view", definition, rows, rows, applied)
    return BuildPast(name, None, past, applied[-1].batch, **options)


def test_every_class_and_every_reason(spark: Any) -> None:
    rows, table = paid(spark), coloured(spark)
    activity, fewer = Activity.__leftfold_definition__, Fewer.__leftfold_definition__
    redrives = spark.createDataFrame(
        [("z", T0 + 4 * SECOND, T0 + 9 * SECOND)], "entity string, event_us bigint, redriven_us bigint"
    )
    beyond = F.col("at") < F.lit(T0)
    builds = [
        [
            build(spark, activity, "b-1", rows, batches(3, 2), redrives=redrives, beyond=beyond),
            build(spark, fewer, "f-1", rows, batches(3, 2), unknown=(Unknown(0, T0, 0, 1),)),
            BuildPast("g-1", "definition gone"),
        ],
        [build(spark, Colours.__leftfold_definition__, "c-1", table, batches(4, 1), compacted=True)],
    ]
    nothing = {"n": 0, "total": 0.0, "newest": [], "colour": None}
    found = [
        logged("right", "x"),
        logged("other scorer", "x", scorer="ranker", n=9),
        logged("before all", "x", a_batch=-1, **{**nothing, "colour": "red"}),
        logged("nobody", "w", **nothing),
        logged("newer", "x", a_batch=2, n=3, total=121.75, newest=[100.0, 20.25]),
        logged("early", "x", scored_at=at(1), n=1, total=1.5, newest=[1.5]),
        # Values that are wrong.
        logged("one more", "x", n=3),
        logged("last bit", "x", total=21.750000000000004),
        logged("only now", "x", n=None, newest=[]),
        logged("only then", "nobody", **{**nothing, "newest": [1.0], "colour": None}),
        logged("older batch", "x", a_batch=0),
        logged("other moment", "y", scored_at=at(2), a_batch=2, n=2, total=24.0, newest=[4.0, 20.0], colour=None),
        logged("wrong colour", "x", colour="blue"),
        # The other build counts other payments, and has one feature.
        logged("its own", "x", a_build="f-1", n=1, total=None, newest=[]),
        logged("not its own", "x", a_build="f-1", n=2, total=None, newest=[]),
        logged("more than it has", "x", a_build="f-1", n=1, total=3.5, newest=[]),
        # Reasons.
        logged("fell back", "x", outcome="fallback", a_found=None, c_found=None),
        logged("says nothing", "x", a_build=None),
        logged("gone", "x", a_build="g-1"),
        logged("unheard of", "x", a_build="h-1"),
        logged("too new", "x", a_batch=3),
        logged("rolled up", "x", a_build="f-1", a_batch=0, total=None, newest=[]),
        logged("long ago", "x", scored_at=at(-5)),
        # Reasons that count only where a value differs.
        logged("corrected", "z", a_batch=2, n=2, total=7.0, newest=[7.0], colour=None),
        logged("ahead", "x", scored_at=at(4), a_batch=2, n=3, total=21.75, newest=[20.25, 1.5]),
        logged("compacted", "y", n=2, total=24.0, newest=[4.0, 20.0], colour="black"),
        logged("compacted and equal", "y", n=2, total=24.0, newest=[4.0, 20.0], colour=None),
    ]
    frame = replayed(spark, found)
    predicted = Predicted(frame, "fraud", ("account",), VIEWS, None)
    assert predicted.count == len(found) - 1
    assert predicted.builds(0) == {"b-1": (-1, 3), "f-1": (0, 1), "g-1": (1, 1), "h-1": (1, 1)}
    result = compared(predicted, builds, frozenset(), 100)
    predicted.release()
    wrong: dict[str, dict[str, tuple[str, Any, Any]]] = {}
    for row in result.rows:
        wrong.setdefault(row["prediction_id"], {})[row["feature"]] = (row["kind"], row["then"], row["now"])
    expected = {
        "one more": {"n": ("differs", 3, 2)},
        "last bit": {"total": ("differs", 21.750000000000004, 21.75)},
        "only now": {"n": ("only now", None, 2), "newest": ("only now", [], [20.25, 1.5])},
        "only then": {"newest": ("only then", [1.0], [])},
        "older batch": {
            "n": ("differs", 2, 1),
            "total": ("differs", 21.75, 1.5),
            "newest": ("differs", [20.25, 1.5], [1.5]),
        },
        "other moment": {
            "n": ("differs", 2, 1),
            "total": ("differs", 24.0, 20.0),
            "newest": ("differs", [4.0, 20.0], [20.0]),
        },
        "wrong colour": {"colour": ("differs", "blue", "red")},
        "not its own": {"n": ("differs", 2, 1)},
        "more than it has": {"total": ("only then", 3.5, None)},
    }
    assert wrong == expected
    assert result.reasons == {
        "fallback": (1, "fell back"),
        "no provenance": (1, "says nothing"),
        "definition gone": (2, "gone"),
        "batch unknown": (1, "too new"),
        "batches rolled up": (1, "rolled up"),
        "history gone": (1, "long ago"),
        "re-driven": (1, "corrected"),
        "ahead": (1, "ahead"),
        "compacted": (1, "compacted"),
    }
    n = result.features["n"]
    assert (n.compared, n.differs, n.only_now, n.only_then) == (len(found) - 1 - 7 - 2, 4, 1, 0)
    late = ("right", "before all", "last bit", "only now", "older batch", "other moment", "wrong colour")
    assert n.not_log == len((*late, "its own", "more than it has")), "x had three payments by then, two of them large"


def test_a_sample_takes_all_predictions_of_some_keys(spark: Any) -> None:
    found = [logged(f"{account}/{n}", f"a{account}") for account in range(400) for n in range(3)]
    frame = replayed(spark, found)
    predicted = Predicted(frame, "fraud", ("account",), VIEWS, 300)
    sizes = {row["count"] for row in predicted.frame.groupBy("k0").count().collect()}
    assert sizes == {3}
    assert 150 < predicted.count < 450
    predicted.release()


def test_a_feature_that_the_first_predictions_did_not_have(spark: Any) -> None:
    """A null of theirs cannot be told from a value that was lost, so it is no alarm. A wrong value still is one."""
    builds = [
        [build(spark, Activity.__leftfold_definition__, "b-1", paid(spark), batches(3, 2))],
        [build(spark, Colours.__leftfold_definition__, "c-1", coloured(spark), batches(4, 1), compacted=True)],
    ]
    frame = replayed(spark, [logged("older", "x", n=None), logged("wrong", "x", n=7)])
    predicted = Predicted(frame, "fraud", ("account",), VIEWS, None)
    result = compared(predicted, builds, frozenset({"n"}), 10)
    predicted.release()
    assert [row["prediction_id"] for row in result.rows] == ["wrong"]
    assert result.reasons == {"older vector": (1, "older")}


def test_a_build_has_the_records_from_where_it_began(spark: Any) -> None:
    """An archive may have older ones. Imported records have negative offsets, and are there if the build read them."""
    rows = spark.createDataFrame([(0, -3), (0, -1), (0, 0), (0, 4), (0, 9), (1, 2)], "slot int, offset bigint")
    applied = [AppliedBatch(0, 1, {0: 5, 1: 2}), AppliedBatch(1, 2, {0: 9, 1: 3})]

    def found(begins: dict[int, int]) -> set[tuple[int, int, int]]:
        return {tuple(row) for row in with_batches(rows, applied, begins).select("slot", "offset", "batch").collect()}

    usual = {(0, 0, 0), (0, 4, 0), (1, 2, 1)}
    assert found({}) == usual
    assert found({0: -2, 1: 0}) == {(0, -1, 0), *usual}
    assert found({0: 4, 1: 0}) == usual - {(0, 0, 0)}
    assert found({0: 5}) == {(1, 2, 1)}
