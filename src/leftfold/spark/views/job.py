"""The job of a declared view, of any kind. A user's own functions are checked here, before anything starts."""

from __future__ import annotations

import threading

from pyspark.sql import SparkSession

from leftfold.declare.catalog import DeclaredView
from leftfold.fold.definition import Definition
from leftfold.fold.latest import Latest
from leftfold.spark.query import Job
from leftfold.spark.source import Source, read_stream
from leftfold.spark.views.free import analyse
from leftfold.spark.views.inspect import check_stream
from leftfold.spark.views.table import TableJob
from leftfold.spark.views.tiles import TilesJob

# A user's function is called by one thread at a time. Also, a setting of the session is changed while its plan is
# turned into text (`inspect.plan_text`).
_one_at_a_time = threading.Lock()


def job_of(declared: DeclaredView, session: SparkSession, source: Source, delay: int) -> Job:
    with _one_at_a_time:
        return _job_of(declared, session, source, delay)


def _job_of(declared: DeclaredView, session: SparkSession, source: Source, delay: int) -> Job:
    definition, stream = declared.definition, declared.reading.stream
    if isinstance(definition, Latest):
        return TableJob(definition)
    if not isinstance(definition, Definition):
        return analyse(definition, read_stream(session, source), delay)
    if stream is None:
        return TilesJob(definition)
    job = TilesJob(definition, stream)
    check_stream(stream, job.made(read_stream(session, source)), job.kinds)
    return job
