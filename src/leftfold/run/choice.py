"""The choice between Arrow and Spark: by what each is able to do, and by the time that each is expected to take."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from leftfold.errors import RunError

Engine = Literal["arrow", "spark"]
NO_ARROW = "numpy, pyarrow or xxhash is not installed"

# Seconds on a machine of 2 cores (docs/decisions/0030-small-work-without-spark.md). In this process each record is
# read, decoded and judged, and each label is folded or each row is written. Spark starts, plans its jobs, then works on
# all cores.
SPARK_START_S = 14.0
TRAINING_ARROW = (9e-6, 4e-4)  # for each record, for each label
TRAINING_SPARK = (22.0, 4e-6, 5e-5)  # for the jobs, for each record, for each label
REPLAY_ARROW = 2e-5  # for each record
REPLAY_SPARK = (9.0, 8e-6)  # for the jobs, for each record
COMPARE_ARROW = 2e-5  # for each record of both sides
COMPARE_SPARK = (20.0, 8e-6)  # for the jobs, for each record of both sides
# A process holds the records of the labels' entities in memory, and all labels. More are left to Spark.
MOST_RECORDS = 4_000_000
MOST_LABELS = 500_000


@dataclass(frozen=True)
class Choice:
    """The engine that does the work, and why. Times are in seconds, and None if there was nothing to compare."""

    engine: Engine
    why: str
    records: int | None = None
    labels: int | None = None
    arrow_s: float | None = None
    spark_s: float | None = None

    def __str__(self) -> str:
        name = "this process, with Arrow" if self.engine == "arrow" else "Spark"
        return f"made by {name}: {self.why}"

    def as_json(self) -> dict[str, object]:
        return {
            "engine": self.engine,
            "why": self.why,
            "records": self.records,
            "labels": self.labels,
            "arrow_s": self.arrow_s,
            "spark_s": self.spark_s,
        }


def for_training(records: int, labels: int) -> Choice:
    """Choose the engine of a training set."""
    jobs, per_record, per_label = TRAINING_SPARK
    counted = f"{labels:,} labels and {records:,} records"
    arrow_s = records * TRAINING_ARROW[0] + labels * TRAINING_ARROW[1]
    spark_s = _start() + jobs + records * per_record + labels * per_label
    if records > MOST_RECORDS or labels > MOST_LABELS:
        why = f"{counted} are more than this process holds"
        return Choice("spark", why, records, labels, arrow_s, spark_s)
    return _quicker(counted, records, labels, arrow_s, spark_s)


def for_replay(records: int) -> Choice:
    """Choose the engine of a replay to files. What Arrow reads it writes at once, so any number fits."""
    jobs, per_record = REPLAY_SPARK
    arrow_s, spark_s = records * REPLAY_ARROW, _start() + jobs + records * per_record
    return _quicker(f"{records:,} records", records, None, arrow_s, spark_s)


def for_compare(records: int) -> Choice:
    """Choose the engine of a comparison. `records` are those of both sides together."""
    jobs, per_record = COMPARE_SPARK
    arrow_s, spark_s = records * COMPARE_ARROW, _start() + jobs + records * per_record
    if records > MOST_RECORDS:
        return Choice("spark", f"{records:,} records are more than this process holds", records, None, arrow_s, spark_s)
    return _quicker(f"{records:,} records", records, None, arrow_s, spark_s)


def _quicker(counted: str, records: int, labels: int | None, arrow_s: float, spark_s: float) -> Choice:
    engine: Engine = "arrow" if arrow_s <= spark_s else "spark"
    why = f"{counted} take about {arrow_s:.0f} s in this process, and {spark_s:.0f} s with Spark"
    return Choice(engine, why, records, labels, arrow_s, spark_s)


def _start() -> float:
    """Return how long the start of Spark takes: nothing, if this process has a session already."""
    if "pyspark" not in sys.modules:
        return SPARK_START_S
    from leftfold.spark.session import session_at_hand

    return SPARK_START_S if session_at_hand() is None else 0.0


def chosen(what: str, wanted: Engine | None, reason: Callable[[], str | None], quicker: Callable[[], Choice]) -> Choice:
    """Choose the engine of `what`: as wanted, else Spark if `reason` says why Arrow cannot, else the quicker one."""
    if wanted == "spark":
        return Choice("spark", "it was asked for")
    why = NO_ARROW if not has_arrow() else reason()
    if why is not None:
        return only_spark(what, why, wanted)
    return Choice("arrow", "it was asked for") if wanted == "arrow" else quicker()


def only_spark(what: str, reason: str, wanted: Engine | None) -> Choice:
    """Return the choice of Spark because nothing else can do it. Raise if the caller wants Arrow, or has no Spark."""
    if wanted == "arrow" or importlib.util.find_spec("pyspark") is None:
        raise RunError(
            "needs-spark",
            f"{what} can only be made with Spark",
            why=reason,
            fix='leave out engine="arrow"' if wanted == "arrow" else "pip install 'leftfold[spark]', and Java 17 or 21",
        )
    return Choice("spark", reason)


def need_spark() -> None:
    """Raise if PySpark is not installed."""
    if importlib.util.find_spec("pyspark") is None:
        raise RunError(
            "spark-missing",
            "PySpark is not installed here",
            why="declaring, sending, reading and small work on the log do without it; running a view does not",
            fix="install it: pip install 'leftfold[spark]'",
        )


def has_arrow() -> bool:
    """Return whether the libraries of the Arrow way are installed."""
    return all(importlib.util.find_spec(name) is not None for name in ("numpy", "pyarrow", "xxhash"))
