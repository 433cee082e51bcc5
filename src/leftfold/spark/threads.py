"""Spark in several threads of one driver: settings that each thread needs, and jobs that another thread can cancel."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession


class CancelledError(Exception):
    """The jobs were cancelled by a call of `Jobs.cancel`."""


def ready_for_threads(session: SparkSession) -> None:
    """Start PySpark's callback server. Call this before several threads start queries.

    Otherwise the first query starts that server, and PySpark has no lock around it.
    """
    ensure_callback_server_started(session.sparkContext._gateway)  # type: ignore[no-untyped-call] # PySpark's own


def enter_thread(session: SparkSession, pool: str) -> None:
    """Prepare a thread for Spark. Call this at its beginning.

    It sets the scheduler pool. All jobs and queries of the thread run in it, and pools share the cores equally. Inside
    one pool the jobs of Spark take turns. If all views shared a pool, a long job of one view would keep the cores from
    the batches of all others.

    It also sets the active session, which a new thread does not have: a user's function may ask for it.
    """
    SparkSession._get_j_spark_session_class(session._jvm).setActiveSession(session._jsparkSession)
    session.sparkContext.setLocalProperty("spark.scheduler.pool", pool)


class Jobs:
    """The jobs that one thread runs in `with jobs.running()`. Any other thread can cancel them."""

    def __init__(self, session: SparkSession) -> None:
        self._context = session.sparkContext
        self._group = f"leftfold-{uuid.uuid4()}"
        self._cancelled = False

    @contextmanager
    def running(self) -> Iterator[None]:
        """Put the jobs of the `with` block into one group. Raises CancelledError if they were cancelled.

        A streaming query that is started in the block does not belong to these jobs: Spark gives it its own group.
        """
        self._context.setJobGroup(self._group, "leftfold start", interruptOnCancel=True)
        try:
            yield
        except (PySparkException, Py4JError) as error:
            if self._cancelled:
                raise CancelledError from error
            raise
        finally:
            self._context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type] # None removes it

    def cancel(self) -> None:
        """Cancel the jobs that run now. Call it until the thread ends: the thread may start another job afterwards."""
        self._cancelled = True
        self._context.cancelJobGroup(self._group)
