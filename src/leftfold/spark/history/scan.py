"""The batch scan of a rebuild: all closed tiles of history in one aggregation, with progress while it runs."""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from typing import TypeVar

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from leftfold import clock
from leftfold.errors import LeftfoldError, RunError
from leftfold.kafka.failures import in_java
from leftfold.settings import Spark
from leftfold.spark.cutover import FrozenHistory
from leftfold.spark.history.records import read_history, session_for
from leftfold.spark.history.redriven import with_redriven
from leftfold.spark.source import Source
from leftfold.spark.views.batch_tiles import stacked
from leftfold.spark.views.tiles import TilesJob, hashed

_LOOK_EVERY_S = 0.5
R = TypeVar("R")


class ScanStoppedError(Exception):
    """The scan was stopped because `look` returned False."""


def bounded(spark: Spark, cores: int) -> Spark:
    """The settings of Spark, limited to at most this number of cores.

    The number of shuffle partitions stays as a run would choose it, because state keeps its partitions forever.
    """
    local = re.fullmatch(r"local(\[(\*|\d+)(,\d+)?\])?", spark.master)
    if local is None:
        conf = {**spark.conf, "spark.cores.max": cores}
        if "spark.cores.max" in spark.conf:
            conf = {"spark.sql.shuffle.partitions": spark.conf["spark.cores.max"], **conf}
        return spark.model_copy(update={"conf": conf})
    own = os.cpu_count() or 1 if local[2] == "*" else int(local[2] or 1)
    conf = {"spark.sql.shuffle.partitions": own, **spark.conf}
    return spark.model_copy(update={"master": f"local[{min(cores, own)},4]", "conf": conf})


def scanned(
    session: SparkSession, source: Source, job: TilesJob, frozen: FrozenHistory, redriven: DataFrame | None
) -> DataFrame:
    """The closed tiles and the ledger of history, packed as batch 0.

    Re-driven records take effect in tiles only, because the ledger counts the outcomes of the log's own records.
    """
    records = read_history(session, source, frozen.firsts, frozen.ends)
    if redriven is None:
        return _packed(records, job, frozen)
    in_place = _packed(with_redriven(records, redriven), job, frozen).where("entity is not null")
    return in_place.unionByName(_packed(records, job, frozen).where("entity is null"))


def _packed(records: DataFrame, job: TilesJob, frozen: FrozenHistory) -> DataFrame:
    if job.between is None:
        return job.packed(stacked(records, job.definition, frozen.closed()), 0)
    return job.packed(hashed(replace(job, only=frozen.closed()).stream(records, 0)), 0)


class Scan:
    """One scan, with its own session, its own thread and its progress."""

    def __init__(self, session: SparkSession, source: Source, frozen: FrozenHistory) -> None:
        self.total = sum(
            end - frozen.firsts[t].get(p, 0) for t, parts in frozen.ends.items() for p, end in parts.items()
        )
        self.done = 0
        self._session = session_for(session, frozen.firsts, frozen.ends)
        self._group = f"leftfold-scan-{uuid.uuid4()}"
        self._began = clock.monotonic()

    @property
    def seconds(self) -> float:
        return clock.monotonic() - self._began

    def run(self, work: Callable[[SparkSession], R], look: Callable[[], bool]) -> R:
        """Do the work in a thread, and call `look` every half second. If `look` returns False, cancel the work."""
        with ThreadPoolExecutor(1) as thread:
            future = thread.submit(self._begin, work)
            try:
                going = True
                while not wait([future], _LOOK_EVERY_S).done:
                    self._notice()
                    if not look():
                        going = False
                        self._session.sparkContext.cancelJobGroup(self._group)
                result = future.result()
            except (PySparkException, Py4JError) as error:
                raise (_explained(error) if going else ScanStoppedError()) from error
            finally:
                self._session.sparkContext.cancelJobGroup(self._group)  # if `look` failed
        self.done = self.total
        return result

    def _begin(self, work: Callable[[SparkSession], R]) -> R:
        self._session.sparkContext.setJobGroup(self._group, "history", interruptOnCancel=True)
        return work(self._session)

    def _notice(self) -> None:
        """Update the progress by the tasks of the stage that reads records, which is the first stage of its job."""
        tracker = self._session.sparkContext.statusTracker()
        for job in tracker.getJobIdsForGroup(self._group):
            job_info = tracker.getJobInfo(job)
            stages = sorted(job_info.stageIds) if job_info else []
            stage = tracker.getStageInfo(stages[0]) if stages else None
            if stage is not None and stage.numTasks:
                self.done = max(self.done, self.total * stage.numCompletedTasks // stage.numTasks)


def _explained(failure: PySparkException | Py4JError) -> LeftfoldError:
    if (refusal := in_java(str(failure))) is not None:
        return refusal
    lines = [line.strip() for line in str(failure).splitlines() if line.strip()]
    why = next((line for line in reversed(lines) if "Caused by" in line), lines[0] if lines else type(failure).__name__)
    return RunError(
        "rebuild-failed",
        "history could not be read to its end",
        why=why[:300],
        state="readers follow the build that they followed; what was frozen is kept",
        fix="run the same command again: it scans what was frozen once more",
        retriable=True,
    )
