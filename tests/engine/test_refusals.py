"""What a person's function may do, decided on plans that Spark really made; no query is started."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.window import Window

import leftfold as lf
from leftfold.declare.stream import Stream
from leftfold.errors import DeclarationError
from leftfold.fold.definition import Definition
from leftfold.spark.source import HASHES
from leftfold.spark.views.free import NOT_UNIQUE, FreeJob, analyse
from leftfold.spark.views.inspect import check_stream
from leftfold.spark.views.tiles import TilesJob

DELAY = 3_600_000_000


class Click(lf.Event):
    user_id: str
    item_id: str
    price: float
    at: datetime


clicks = lf.Topic("clicks", Click, key=Click.user_id, time=Click.at)

Function = Callable[[DataFrame], Any]


@pytest.fixture(scope="module")
def records(spark: Any) -> DataFrame:
    return streamed(spark)


def streamed(session: SparkSession) -> DataFrame:
    """A stream of what `read_stream` gives."""
    event = F.struct(
        F.lit("u1").alias("user_id"),
        F.lit("i1").alias("item_id"),
        F.lit(1.0).alias("price"),
        F.col("timestamp").alias("at"),
    )
    return (
        session.readStream.format("rate")
        .load()
        .select(
            F.lit(0).alias("slot"),
            F.col("value").alias("offset"),
            F.lit(None).cast("binary").alias("key"),
            F.lit(False).alias("deleted"),
            F.col("timestamp").alias("log_time"),
            F.lit(True).alias("by_broker"),
            event.alias("event"),
            *(F.lit(0).cast("long").alias(name) for name in HASHES),
        )
    )


def job(records: DataFrame, function: Function, **options: Any) -> FreeJob:
    declared = lf.view(clicks, **{"by": "item_id", "name": "trending", **options})(function)
    return analyse(declared, records, DELAY)


def refused(records: DataFrame, function: Function, **options: Any) -> DeclarationError:
    with pytest.raises(DeclarationError) as caught:
        job(records, function, **options)
    return caught.value


def windowed(clicks: DataFrame) -> DataFrame:
    counted = clicks.groupBy(F.window("at", "5 minutes"), "item_id").agg(F.count("*").alias("n"))
    return counted.select("item_id", "n", F.col("window.end").alias("window_end"))


# What a view may do -------------------------------------------------------------------------------------------------


def sorted_sellers(clicks: DataFrame) -> DataFrame:
    """A side that is no stream may be anything."""
    static = clicks.sparkSession.range(100).selectExpr("concat('i', id % 7) as item_id", "id as n")
    best = static.groupBy("item_id").agg(F.sum("n").alias("sold")).orderBy(F.desc("sold")).limit(3).distinct()
    ranked = best.withColumn("place", F.row_number().over(Window.orderBy("sold")))
    return clicks.join(F.broadcast(ranked), "item_id").select("item_id", "sold", "place", "at")


ACCEPTED: dict[str, tuple[Function, dict[str, Any]]] = {
    "as it is": (lambda c: c.select("item_id", "price"), {}),
    "filter and project": (lambda c: c.where("price > 100").selectExpr("item_id", "price * 2 as double_price"), {}),
    "windows": (windowed, {"latest": "window_end"}),
    "sliding windows": (
        lambda c: (
            c.groupBy(F.window("at", "10 minutes", "5 minutes").alias("w"), "item_id")
            .agg(F.sum("price").alias("spent"))
            .selectExpr("item_id", "spent", "w.end as until")
        ),
        {"latest": "until"},
    ),
    "grouped by the time itself": (lambda c: c.groupBy("at", "item_id").count(), {"latest": "at"}),
    "kept for ever": (lambda c: c.groupBy("item_id").count(), {"keep_forever": True}),
    "several keys": (lambda c: c.select("user_id", "item_id", "price"), {"by": ("user_id", "item_id")}),
    "a static side": (sorted_sellers, {"latest": "at"}),
    "a time of its own": (lambda c: c.select("item_id", F.unix_timestamp("at").alias("second")), {"latest": "second"}),
    "exploded": (lambda c: c.selectExpr("explode(split(item_id, '')) as item_id", "at"), {"latest": "at"}),
    "union": (lambda c: c.where("price > 9").union(c.where("price < 3")).select("item_id", "at"), {"latest": "at"}),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_accepted(records: DataFrame, name: str) -> None:
    function, options = ACCEPTED[name]
    made = job(records, function, **options)
    assert made.definition.visible
    assert made.stream(records, DELAY).isStreaming


# What it may not ----------------------------------------------------------------------------------------------------


def other_stream(clicks: DataFrame) -> DataFrame:
    other = clicks.sparkSession.readStream.format("rate").load()
    return clicks.join(other, F.expr("price = value"))


def twice(clicks: DataFrame) -> DataFrame:
    return windowed(clicks).groupBy("window_end", "item_id").agg(F.max("n").alias("most"))


REFUSED: dict[str, tuple[Function, str]] = {
    "sort": (lambda c: c.orderBy("price"), "a sort"),
    "sort within partitions": (lambda c: c.sortWithinPartitions("price"), "a sort"),
    "limit": (lambda c: c.limit(10), "a limit"),
    "offset": (lambda c: c.offset(10), "an offset"),
    "distinct": (lambda c: c.select("item_id").distinct(), "uses distinct or dropDuplicates"),
    "drop duplicates": (lambda c: c.dropDuplicates(["item_id"]), "uses distinct or dropDuplicates"),
    "drop duplicates within the watermark": (
        lambda c: c.dropDuplicatesWithinWatermark(["item_id"]),
        "dropDuplicatesWithinWatermark",
    ),
    "window function": (
        lambda c: c.withColumn("place", F.row_number().over(Window.partitionBy("item_id").orderBy("at"))),
        "a window function",
    ),
    "second watermark": (lambda c: c.withWatermark("at", "1 hour"), "a watermark of its own"),
    "two streams": (other_stream, "joins two streams"),
    "itself": (lambda c: c.alias("a").join(c.alias("b"), "item_id"), "joins two streams"),
    "aggregate of an aggregate": (twice, "aggregates an aggregate"),
    "session window": (
        lambda c: c.groupBy(F.session_window("at", "5 minutes"), "item_id").count(),
        "uses session windows",
    ),
    "now": (lambda c: c.withColumn("read_at", F.now()), "uses now()"),
    "current timestamp": (lambda c: c.withColumn("read_at", F.current_timestamp()), "uses current_timestamp()"),
    "today": (lambda c: c.where(F.to_date("at") == F.current_date()), "uses current_date()"),
    "the clock in seconds": (lambda c: c.withColumn("second", F.unix_timestamp()), "uses current_timestamp()"),
    "rand": (lambda c: c.where(F.rand() < 0.5), "uses rand()"),
    "uuid": (lambda c: c.withColumn("id", F.expr("uuid()")), "uses uuid()"),
    "the row's place in its partition": (
        lambda c: c.withColumn("id", F.monotonically_increasing_id()),
        "uses monotonically_increasing_id()",
    ),
    "a group without an end": (lambda c: c.groupBy("item_id").count(), "groups by nothing that ends"),
    "a group by a copy of the time": (
        lambda c: c.groupBy(F.date_trunc("hour", "at").alias("hour"), "item_id").count(),
        "groups by nothing that ends",
    ),
    "except": (lambda c: c.select("item_id").subtract(c.select("user_id")), "except"),
    "intersect": (lambda c: c.select("item_id").intersect(c.select("user_id")), "intersect"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(records: DataFrame, name: str) -> None:
    function, said = REFUSED[name]
    error = refused(records, function)
    assert error.code == "view-refused"
    assert said in error.what
    assert str(error.source).startswith("test_refusals.py:")


def test_to_keep_for_ever_allows_nothing_else(records: DataFrame) -> None:
    assert refused(records, twice, keep_forever=True).what.endswith("aggregates an aggregate")


@pytest.mark.parametrize(
    ("function", "options", "said"),
    [
        (lambda c: c.select("user_id"), {}, "returns no column 'item_id'"),
        (lambda c: c.select("item_id"), {"latest": "at"}, "returns no column 'at'"),
        (lambda c: c.select("item_id", F.array("price").alias("p")), {}, "returns p, which is array<double>"),
        (lambda c: c.select("item_id", F.expr("cast(price as decimal(9,2)) as p")), {}, "which is decimal(9,2)"),
        (lambda c: c.select("item_id", F.window("at", "1 hour").alias("w")), {}, "returns w, which is struct<"),
        (lambda c: c, {"by": "price"}, "is keyed by price, which is double"),
        (lambda c: c, {"latest": "user_id"}, "has latest='user_id', which is string"),
    ],
)
def test_columns(records: DataFrame, function: Function, options: dict[str, Any], said: str) -> None:
    error = refused(records, function, **options)
    assert error.code == "view-columns"
    assert said in error.what


def fails(_: DataFrame) -> DataFrame:
    raise ValueError("no such thing\nand more lines")


def fails_in_silence(_: DataFrame) -> DataFrame:
    raise AssertionError


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (fails, "could not be built: ValueError: no such thing"),
        (fails_in_silence, "could not be built: AssertionError"),
        (lambda c: c.select("prise"), "could not be built: AnalysisException: [UNRESOLVED_COLUMN"),
        (lambda c: None, "returns NoneType, not a DataFrame"),
        (lambda c: c.columns, "returns list, not a DataFrame"),
    ],
)
def test_functions_that_fail(records: DataFrame, function: Function, said: str) -> None:
    error = refused(records, function)
    assert error.code == "view-function"
    assert said in error.what
    assert "\n" not in error.what


# What it means ------------------------------------------------------------------------------------------------------


def renamed(given: DataFrame) -> DataFrame:
    # Another way to write the same thing.
    window = F.window("at", "5 minutes")
    result = given.groupBy(window, "item_id").agg(F.count("*").alias("n"))
    return result.select("item_id", "n", F.col("window.end").alias("window_end"))


def longer(clicks: DataFrame) -> DataFrame:
    counted = clicks.groupBy(F.window("at", "10 minutes"), "item_id").agg(F.count("*").alias("n"))
    return counted.select("item_id", "n", F.col("window.end").alias("window_end"))


def test_a_fingerprint_is_of_the_meaning(spark: Any, records: DataFrame) -> None:
    def code(function: Function, stream: DataFrame = records) -> str:
        made = job(stream, function, latest="window_end", name="trending").definition.code
        assert made is not None
        return made

    other_session = streamed(spark.newSession())
    assert code(windowed) == code(renamed) == code(windowed, other_session)
    assert code(windowed) != code(longer)
    assert code(lambda c: windowed(c.where("price > 100"))) == code(lambda c: windowed(c.where("price > 100")))
    assert code(lambda c: windowed(c.where("price > 100"))) != code(lambda c: windowed(c.where("price > 200")))
    assert code(lambda c: windowed(c.where("price > 100"))) != code(windowed)


def test_a_fingerprint_does_not_depend_on_the_delay(records: DataFrame) -> None:
    """A view that is swept later, because a partition is behind, goes on with the same checkpoint."""
    declared = lf.view(clicks, by="item_id", latest="window_end", name="trending")(windowed)
    assert len({analyse(declared, records, delay).definition.fingerprint for delay in (DELAY, 3 * DELAY)}) == 1


def test_a_fingerprint_holds_how_long_it_keeps_rows_and_by_what(records: DataFrame) -> None:
    kept = [
        job(records, lambda c: c, name="v").definition,
        job(records, lambda c: c, name="v", latest="at").definition,
        job(records, lambda c: c, name="v", ttl="1d").definition,
        job(records, lambda c: c, name="v", by="user_id").definition,
    ]
    assert len({definition.fingerprint for definition in kept}) == len(kept)


def test_rows_of_one_key_need_a_column_that_decides(spark: Any, records: DataFrame) -> None:
    batch = spark.createDataFrame(
        [("u1", "i7", 1.0, datetime(2026, 1, 5)), ("u2", "i7", 2.0, datetime(2026, 1, 6))],
        "user_id string, item_id string, price double, at timestamp",
    )
    with pytest.raises(Exception, match=f"{NOT_UNIQUE}i7 "):
        job(records, lambda c: c).packed(batch, 3).collect()
    (row,) = job(records, lambda c: c, latest="at").packed(batch, 3).collect()
    assert row.entity == "i7"
    assert '"u2"' in row.value


# Streams ------------------------------------------------------------------------------------------------------------


def checked(records: DataFrame, function: Function) -> None:
    declared = lf.stream(clicks, event=Click)(function)
    assert isinstance(declared, Stream)

    class Dear(lf.Features, of=declared, by=Click.user_id):
        clicks_1h = lf.count("1h", where=Click.price > 100)

    definition = Dear.__leftfold_definition__
    assert isinstance(definition, Definition)
    made = TilesJob(definition, declared)
    check_stream(declared, made.made(records), made.kinds)


def aggregated(given: DataFrame) -> DataFrame:
    return given.groupBy("user_id", "at", "_record").agg(F.sum("price").alias("price"))


def dear(given: DataFrame) -> DataFrame:
    return given.where("price > 100")


def exploded(given: DataFrame) -> DataFrame:
    return given.withColumn("user_id", F.explode(F.split("user_id", "")))


def looked_up(given: DataFrame) -> DataFrame:
    static = given.sparkSession.range(9).selectExpr("concat('u', id) as user_id").groupBy("user_id").count()
    return given.join(static, "user_id")


@pytest.mark.parametrize("function", [dear, exploded, looked_up])
def test_streams(records: DataFrame, function: Function) -> None:
    checked(records, function)


def without_record(given: DataFrame) -> DataFrame:
    return given.select("user_id", "price", "at")


def without_price(given: DataFrame) -> DataFrame:
    return given.select("user_id", "at", "_record")


def with_text_for_a_price(given: DataFrame) -> DataFrame:
    return given.withColumn("price", F.col("price").cast("string"))


def without_duplicates(given: DataFrame) -> DataFrame:
    return given.dropDuplicates(["user_id"])


def of_two_streams(given: DataFrame) -> DataFrame:
    return given.join(given.sparkSession.readStream.format("rate").load(), F.expr("price = value"))


def with_a_clock(given: DataFrame) -> DataFrame:
    return given.where(F.col("at") < F.now())


@pytest.mark.parametrize(
    ("function", "code", "said"),
    [
        (aggregated, "stream-has-state", "has an aggregation"),
        (without_duplicates, "stream-has-state", "has distinct or dropDuplicates"),
        (of_two_streams, "stream-has-state", "has a join of two streams"),
        (without_record, "stream-columns", "gives no column '_record'"),
        (without_price, "stream-columns", "gives no column 'price'"),
        (with_text_for_a_price, "stream-columns", "gives price as string"),
        (with_a_clock, "stream-not-repeatable", "uses now()"),
    ],
)
def test_refused_streams(records: DataFrame, function: Function, code: str, said: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        checked(records, function)
    assert caught.value.code == code
    assert said in caught.value.what
