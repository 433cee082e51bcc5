"""Training sets against a hand-written range join on the same records: seconds for all labels.

One key has 30 % of all events and a twentieth of the labels. Both sides get decoded records. Both give counts, sums,
means, smallest, largest and last values over three windows, as known by log time. Lists and sketches are left out: by
hand, each would hold all events of a window.

Before any measurement, the values of both sides are compared on a quarter of the events and of the labels. On the full
data the join may take twelve times as long as ours did, and is then stopped. So a ratio of 12 means "at least 12".

In addition, our side alone is measured on a quarter to twice the events: its time must grow only in proportion to
them. No broker takes part.
"""

from __future__ import annotations

import os
import tempfile
import threading
import uuid
from datetime import datetime
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import leftfold as lf
from bench.pairs import Case, interleave, note
from leftfold import clock
from leftfold.settings import Spark
from leftfold.spark.session import build_session
from leftfold.spark.source import HASHES
from leftfold.spark.training.as_of import features_as_of, known_by_log
from leftfold.spark.views.tiles import accepted

SCALE = float(os.environ.get("LEFTFOLD_BENCH_SCALE", "1"))  # scales events, labels and keys, for a trial on less data
EVENTS, LABELS, KEYS = int(2_000_000 * SCALE), int(100_000 * SCALE), max(100, int(20_000 * SCALE))
GOAL = 10.0
MOST = 12.0
# Eight times the events may take at most 8 x this factor as long. Beyond it, the time grows faster than the events.
LINEAR_GOAL = 1.3
SIZES = (0.25, 0.5, 1.0, 2.0)
S = 1_000_000
HOUR, BASE, SPAN = 3_600 * S, 1_772_323_200 * S, 96 * 3_600 * S
WINDOWS = {"1h": (HOUR, 300 * S), "6h": (6 * HOUR, 300 * S), "24h": (24 * HOUR, HOUR)}
LATENESS = 1_800 * S
# Far more than the data, so that spilling to disk does not decide the result.
MEMORY = "5g"


class Sale(lf.Event):
    shop: str
    item: str
    price: float
    pieces: int
    at: datetime


sales = lf.Topic("sales", Sale, key=Sale.shop, time=Sale.at, lateness="30m")


def _over(window: str) -> dict[str, Any]:
    return {
        f"count_{window}": lf.count(window, where=Sale.pieces > 1),
        f"sum_{window}": lf.sum(Sale.price, window),
        f"mean_{window}": lf.mean(Sale.pieces, window),
        f"min_{window}": lf.min(Sale.price, window),
        f"max_{window}": lf.max(Sale.pieces, window),
        f"last_{window}": lf.last(Sale.item, window),
    }


Shop: Any = type("Shop", (lf.Features,), {**_over("1h"), **_over("6h"), **_over("24h")}, of=sales, by=Sale.shop)
DEFINITION = Shop.__leftfold_definition__


def measure(pairs: int) -> dict[str, Case]:
    with tempfile.TemporaryDirectory(prefix="leftfold-bench-") as directory:
        root = Path(directory)
        spark = Spark(conf={"spark.driver.memory": MEMORY})
        session = build_session(spark, application="bench", log_file=root / "spark.log")
        try:
            return _measured(session, root, pairs)
        finally:
            session.stop()


def _measured(session: SparkSession, root: Path, pairs: int) -> dict[str, Case]:
    wrong, compared = _compared(session, root)
    note(f"{compared:,} labels compared, {wrong} with another value")
    asked = _stored(_labels(session, LABELS), root / "labels")
    records = _stored(_events(session, EVENTS), root / "events")
    mine, theirs = _ours(records, asked), _by_hand(records, asked)
    limit = MOST * min(_seconds(mine) for _ in range(2))  # also warms up our side
    ratios = interleave("vs_range_join", pairs, lambda: _seconds(mine), lambda: _seconds(theirs, limit))
    records.unpersist()
    took = {}
    for size in SIZES:
        some = _stored(_events(session, int(EVENTS * size)), root / f"events-{size}")
        took[size] = min(_seconds(_ours(some, asked)) for _ in range(2))
        note(f"{int(EVENTS * size):,} events: {took[size]:.1f} s")
        some.unpersist()
    first, last = SIZES[0], SIZES[-1]
    growth = (took[last] / took[first]) / (last / first)
    seconds = {f"seconds_{int(EVENTS * size)}": round(t, 2) for size, t in took.items()}
    return {
        "training": Case(ratios, GOAL, wrong == 0 and compared > 0, figures={"events": EVENTS, "labels": LABELS}),
        "training_linear": Case((growth,), LINEAR_GOAL, wrong == 0, lower_is_better=True, figures=seconds),
    }


def _stored(frame: DataFrame, path: Path) -> DataFrame:
    """Write a frame to files and keep it in memory, so that both sides read the same prepared rows."""
    frame.write.parquet(str(path))
    kept = frame.sparkSession.read.parquet(str(path)).persist()
    kept.count()
    return kept


def _drawn(salt: int, below: int) -> Any:
    """A pseudo-random number from 0 up to `below` that depends only on the row and `salt`."""
    return F.pmod(F.xxhash64(F.col("id"), F.lit(salt)), F.lit(below))


def _events(session: SparkSession, number: int) -> DataFrame:
    """Records as a source gives them. 5 % were logged up to half an hour after they happened, the rest within 5 s."""
    log = F.lit(BASE) + F.floor(F.col("id") * F.lit(SPAN / number) / 1_000) * 1_000
    delay = F.when(_drawn(1, 100) < 5, _drawn(2, LATENESS)).otherwise(_drawn(3, 5 * S))
    shop = F.when(_drawn(4, 10) < 3, F.lit(0)).otherwise(_drawn(5, KEYS))
    event = F.struct(
        F.concat(F.lit("s"), shop.cast("string")).alias("shop"),
        F.concat(F.lit("i"), _drawn(6, 500).cast("string")).alias("item"),
        ((_drawn(7, 100_000) - 10_000) / F.lit(100.0)).alias("price"),
        _drawn(8, 6).alias("pieces"),
        F.timestamp_micros(log - delay).alias("at"),
    )
    return session.range(number).select(
        F.pmod(shop, F.lit(6)).cast("int").alias("slot"),
        F.col("id").alias("offset"),
        F.lit(None).cast("binary").alias("key"),
        F.lit(False).alias("deleted"),
        F.timestamp_micros(log).alias("log_time"),
        F.lit(True).alias("by_broker"),
        event.alias("event"),
        *(F.lit(None).cast("long").alias(name) for name in HASHES),  # only a ledger needs them
    )


def _labels(session: SparkSession, number: int) -> DataFrame:
    shop = F.when(_drawn(9, 20) == 0, F.lit(0)).otherwise(_drawn(10, KEYS))
    at = F.lit(BASE) + _drawn(11, SPAN)
    named = F.concat(F.lit("s"), shop.cast("string")).alias("entity")
    return session.range(number).select(named, at.alias("at")).distinct()


def _ours(records: DataFrame, asked: DataFrame) -> DataFrame:
    return features_as_of(known_by_log(asked, DEFINITION), accepted(records, DEFINITION), DEFINITION, "log")


def _by_hand(records: DataFrame, asked: DataFrame) -> DataFrame:
    """The hand-written side: join events with labels by key and time range, once for all windows."""
    event = records.select(
        "slot", "offset", F.unix_micros("log_time").alias("log"), F.unix_micros("event.at").alias("time"), "event.*"
    )
    longest = F.col("at_us") - F.lit(25 * HOUR)
    near = (F.col("shop") == F.col("entity")) & (F.col("time") < F.col("at_us")) & (F.col("time") >= longest)
    known = (F.col("log") < F.col("at_us")) & (F.col("log") - F.col("time") <= F.lit(LATENESS))
    labels = asked.withColumnRenamed("at", "at_us")
    made = []
    for length, step in WINDOWS.values():
        start = F.col("at_us") - F.lit(length)
        inside = F.col("time") >= start - F.pmod(start, F.lit(step))
        cents = F.round(F.col("price") * 100).cast("long")
        pieces, price, item = (F.when(inside, F.col(name)) for name in ("pieces", "price", "item"))
        made += [
            F.count(F.when(inside & (F.col("pieces") > 1), F.lit(1))),
            F.sum(F.when(inside, cents)) / F.lit(100.0),
            F.sum(pieces) / F.count(pieces),
            F.min(price),
            F.max(pieces),
            F.max_by(item, F.when(inside, F.struct("time", "slot", "offset"))),
        ]
    joined = labels.join(event, near & known, "left").groupBy("entity", "at_us")
    return joined.agg(*(column.alias(f"h{i}") for i, column in enumerate(made)))


def _compared(session: SparkSession, root: Path) -> tuple[int, int]:
    """Compare both sides on a quarter of the data: how many labels differ in a value, and how many labels there are."""
    asked = _stored(_labels(session, LABELS // 4), root / "some-labels")
    records = _stored(_events(session, EVENTS // 4), root / "some-events")
    names = DEFINITION.visible
    both = (
        _ours(records, asked)
        .withColumnRenamed("entity", "whose")
        .join(
            _by_hand(records, asked),
            (F.col("whose") == F.col("entity")) & (F.col("at") == F.col("at_us")),
            "full",
        )
    )
    differ = F.lit(False)
    for i, _ in enumerate(names):
        differ = differ | ~F.col(f"f{i}").eqNullSafe(F.col(f"h{i}"))
    wrong, compared = both.agg(F.count(F.when(differ, F.lit(1))), F.count(F.lit(1))).collect()[0]
    for kept in (asked, records):
        kept.unpersist()
    return int(wrong), int(compared)


def _seconds(frame: DataFrame, limit: float | None = None) -> float:
    """Return the seconds to compute all rows. With a limit, stop the job there and return the limit."""
    context, group = frame.sparkSession.sparkContext, uuid.uuid4().hex
    context.setJobGroup(group, "bench", interruptOnCancel=True)
    end = threading.Timer(limit or 0, lambda: context.cancelJobGroup(group))
    if limit is not None:
        end.start()
    started = clock.monotonic()
    try:
        frame.write.format("noop").mode("overwrite").save()
    except (PySparkException, Py4JJavaError):
        if limit is None or clock.monotonic() - started < limit:
            raise
        return limit
    finally:
        end.cancel()
    return clock.monotonic() - started
