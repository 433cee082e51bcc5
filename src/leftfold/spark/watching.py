"""How far the jobs of this thread are, told while they run."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

_LOOK_EVERY_S = 0.5


@contextmanager
def watching(session: SparkSession, watch: Callable[[int, int], None]) -> Iterator[None]:
    """`watch` is told, now and then, how many tasks are done, and of how many that are known so far."""
    context, group, over = session.sparkContext, uuid.uuid4().hex, threading.Event()
    context.setJobGroup(group, "leftfold")

    def look() -> None:
        tracker = context.statusTracker()
        while not over.wait(_LOOK_EVERY_S):
            jobs = [tracker.getJobInfo(number) for number in tracker.getJobIdsForGroup(group)]
            stages = [tracker.getStageInfo(number) for job in jobs if job for number in job.stageIds]
            known = [stage for stage in stages if stage]
            if known:
                watch(sum(s.numCompletedTasks for s in known), sum(s.numTasks for s in known))

    looking = threading.Thread(target=look, daemon=True)
    looking.start()
    try:
        yield
    finally:
        over.set()
        looking.join()
        context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type] # None removes it
