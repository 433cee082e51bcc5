"""The job of a declared view, of whichever kind; a person's own functions are checked here, before anything starts."""

from __future__ import annotations

from pyspark.sql import SparkSession

from leftfold.fold.definition import Definition
from leftfold.fold.latest import Latest
from leftfold.spark.free import analyse
from leftfold.spark.inspect import check_stream
from leftfold.spark.query import Job
from leftfold.spark.source import Source, read_stream
from leftfold.spark.table import TableJob
from leftfold.spark.tiles import TilesJob
from leftfold.spec.catalog import DeclaredView


def job_of(declared: DeclaredView, session: SparkSession, source: Source, delay: int) -> Job:
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
