"""Keeps a query running: starts it, watches it, and restarts it after a failure for as long as that may help.

A subclass says what the query does: a view, the intake of a topic, or the lake of a view.
"""

from __future__ import annotations

import re
import threading
import time
from abc import ABC, abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING

from leftfold import clock
from leftfold.errors import LeftfoldError, LogError, RunError, StoreError
from leftfold.kafka.failures import in_java
from leftfold.kafka.registry import SchemaRegistry
from leftfold.offsets import Offsets
from leftfold.run.outages import outage
from leftfold.run.progress import Failing, Progress
from leftfold.run.sources import learned
from leftfold.run.turns import StoppedError, Turns
from leftfold.spark.ids import looked_at
from leftfold.spark.query import Query, Snapshot
from leftfold.spark.source import Source, raw_range

if TYPE_CHECKING:
    from leftfold.spark.session import SparkSession

# How long to wait after each failure in a row. The last value repeats. So a query recovers by itself within a minute
# after an outage of hours, and makes one try a minute until then.
BACK_OFF_S = (1, 2, 4, 8, 16, 32, 60)
# With `until_caught_up` somebody waits for the end. Nine tries take some three minutes: enough to restart a broker or a
# store.
TRIES_TO_CATCH_UP = 9
# With `until_caught_up`, a failure that names no engine will most likely repeat: three times are enough to be sure.
TRIES_UNEXPLAINED = 3
_LOOK_EVERY_S = 0.2
# To look at the schema ids of a batch, we ask the registry or read the batch once more. After so many batches in which
# no unknown id was seen, we stop looking: the next unknown id stops its batch again.
_QUIET_BATCHES = 500
# So many batches are read with care (less at a time) after one that did not fit into memory or killed its process.
_CAREFUL_BATCHES = 20
# A task ran out of memory: Java's error or Spark's own. On a cluster: an executor exited at such an error, or was
# killed for it.
_OUT_OF_MEMORY = re.compile(r"java\.lang\.OutOfMemoryError|SparkOutOfMemoryError|exited with (exit )?code (3|52|137)\b")


class BatchRefusedError(Exception):
    """Raised inside a batch so that Spark does not commit it. The query keeps the reason in `_refusal` or `_again`."""


class RunAgainError(BatchRefusedError):
    """A refused batch shall run again at once, in another way."""


class Running(ABC):
    """One query that is starting, running, waiting for the next try, or ended.

    One thread looks after the query and is the only one that changes its state. It calls `start`, and then `wait` or
    repeatedly `poll`. These calls wait for engines; a start takes hours if a store is repaired. So no other work may
    depend on that thread (see `run.crew`). Other threads:

    - Spark's thread runs the batches of the query, but never during a start;
    - any thread may ask for an end (`stop`), read `progress`, and ask for the state (`running`, `in_batch`).
    """

    checkpoint: str
    _session: SparkSession
    _query: Query | None = None

    kind = "view"

    def __init__(self, name: str, partitions: int, log_file: str) -> None:
        self.name = name
        self._partitions = partitions  # the number of partitions that it reads, in all topics together
        self.progress = Progress(name, self.kind)
        self._log_file = log_file
        self._stopping = threading.Event()
        self._refusal: LeftfoldError | None = None  # why the current batch was not applied
        self._again = False  # the refused batch shall run again, in another way
        self._failures = 0  # failures in a row, without a batch in between
        self._due: float | None = None  # when to start again
        self._until_caught_up = False
        self._turns = Turns()
        self._turn = self._turns.start(self._stopping)  # the turn of the start under way

    @abstractmethod
    def prepare(self, session: SparkSession) -> None:
        """Compile the query, or raise an error that names it. Nothing is started."""

    @abstractmethod
    def _begin(self) -> Query:
        """Start the query from the position of its checkpoint."""

    def _noticed(self, seen: Snapshot) -> None:
        """Take in Spark's report of the last finished batch. Called repeatedly, also for the same batch."""
        self.progress.rate = seen.rate
        if seen.behind is not None:
            self.progress.lag = seen.behind

    def _caught_up(self) -> None:
        """React to the end of a query that has read everything."""
        self.progress.lag = 0

    def _look_after(self) -> None:  # noqa: B027 # most have nothing to look after
        """Do regular checks while the query runs. Called on every poll."""

    def start(self, session: SparkSession, *, until_caught_up: bool, turns: Turns | None = None) -> None:
        """Start the query. An error is kept in its progress, so that others continue.

        Only a few of the queries that share `turns` start at the same time.
        """
        self._session = session
        self._until_caught_up = until_caught_up
        self._turns = turns or self._turns
        self._start()

    @property
    def query(self) -> Query:
        assert self._query is not None, f"{self.name} was not started"
        return self._query

    @property
    def running(self) -> bool:
        return self.progress.state not in ("caught up", "stopped", "failed")

    @property
    def in_batch(self) -> bool:
        """True while a batch is under way: the only thing that a stop waits for."""
        query = self._query
        return query is not None and query.in_batch

    def wait(self) -> None:
        """Poll until the query has ended: for callers without their own loop."""
        while self.running:
            if self._query is not None and self._due is None:
                self._query.wait(_LOOK_EVERY_S)
            else:
                time.sleep(_LOOK_EVERY_S)
            self.poll()

    def stop(self) -> None:
        """Ask the query to end at the next batch boundary; `poll` carries it out."""
        self._stopping.set()

    def close(self) -> None:  # noqa: B027 # most hold nothing
        """Release what it holds in addition to its query."""

    def poll(self) -> None:
        """Look at the query once: take in its progress, its end or a failure, and restart it when that is due."""
        if not self.running:
            return
        if self._due is not None:
            self._wait_or_start(self._due)
            return
        query = self.query
        if self._stopping.is_set():
            query.stop_if_idle()
        try:
            self._look(query)
        except LeftfoldError as error:
            if query.active and isinstance(error, (LogError, StoreError)):
                return  # an engine did not answer this look; the next batch decides whether that matters
            self._failed(error)

    def _look(self, query: Query) -> None:
        if (seen := query.snapshot(self._partitions)) is not None:
            self._noticed(seen)
        if query.active:
            if self._failures and query.at_rest:
                self._went_well()
            self._look_after()
            return
        failure = query.failure()
        if self._stopping.is_set():
            self.progress.state = "failed" if self.progress.error else "stopped"
        elif failure is None:
            self._caught_up()
            self.progress.state = "caught up"
        elif self._again or self._learned(failure):
            self._again = False
            self._start()
        else:
            self._failed(self._refusal or self._meant(failure))

    def _start(self) -> None:
        self._refusal = None
        self._query = None
        self.progress.state = "starting"
        try:
            with self._turns.start(self._stopping) as self._turn:
                self._query = self._begun()
        except StoppedError:
            self._stopped()
        except LeftfoldError as error:
            self._failed(error)
        else:
            self.progress.state = "running"

    def _begun(self) -> Query:
        while True:
            try:
                return self._begin()
            except LeftfoldError as error:
                if not self._learned(str(error.__cause__)):  # a repair at the start may meet old schemas
                    raise

    def _failed(self, error: LeftfoldError) -> None:
        if error.code == "spark-died":
            raise error  # the JVM is gone for all queries of this process: all end
        self._failures += 1
        if error.retriable and self._stopping.is_set():
            self._stopped()
            return
        tries = TRIES_UNEXPLAINED if error.code == "view-failed" else TRIES_TO_CATCH_UP
        if not error.retriable or (self._until_caught_up and self._failures >= tries):
            self._give_up(error)
            return
        wait_s = BACK_OFF_S[min(self._failures, len(BACK_OFF_S)) - 1]
        before = self.progress.failing
        since = before.since if before else clock.now_us() / 1e6
        self._due = clock.monotonic() + wait_s
        self.progress.failing = Failing(self._failures, since, self._due)
        self.progress.error = error
        self.progress.restarts += 1
        self.progress.state = "waiting"

    def _wait_or_start(self, due: float) -> None:
        if self._stopping.is_set():
            self._stopped()
        elif clock.monotonic() >= due:
            self._due = None
            self.progress.error = None
            self._start()

    def _stopped(self) -> None:
        """Note that the query ended on request. That is not a failure, whatever it was waiting for."""
        self._due = None
        self.progress.error = None
        self.progress.state = "stopped"

    def _unless_stopping(self) -> None:
        """Abandon the start here if a stop was requested. Anything half done is done again by the next start."""
        if self._stopping.is_set():
            raise StoppedError

    def _give_up(self, error: LeftfoldError) -> None:
        self.progress.error = error
        self.stop()
        if self._query is not None:
            self._query.stop_if_idle()
        self.progress.state = "failed"

    def _went_well(self) -> None:
        """Forget earlier failures: a batch was applied, or there was none to apply."""
        self._failures = 0
        self.progress.failing = None

    def _meant(self, failure: str) -> LeftfoldError:
        explained = self._explain(failure)
        return (outage(self.name, failure) or explained) if explained.code == "view-failed" else explained

    def _learned(self, failure: str) -> bool:
        """Return whether the cause of the failure was removed, such as an unknown schema. Then the batch runs again."""
        return False

    def _explain(self, failure: str) -> LeftfoldError:
        if (refusal := in_java(failure)) is not None:
            return refusal
        lines = [line.strip() for line in failure.splitlines() if line.strip()]
        cause = next((line for line in reversed(lines) if "Error" in line or "Exception" in line), lines[0])
        return RunError(
            "view-failed",
            f"{self.name} stopped",
            why=cause[:300],
            state="its last batch is not committed; it runs again, with the same records, at the next start",
            fix=_fix(failure, self._log_file),
            retriable=True,
        )


def _fix(failure: str, log_file: str) -> str:
    """Return the fix for a failure that has no error of its own. It names the setting if the cause is known."""
    if _OUT_OF_MEMORY.search(failure):
        return (
            "give Spark more memory: "
            'spark = { conf = { "spark.driver.memory" = "4g" } } of the profile ("spark.executor.memory" if executors '
            "run elsewhere), or read less at a time: spark = { most_offsets = 10000 }; then leftfold run"
        )
    if "No space left on device" in failure:
        return (
            "free space on the disk of Spark's temporary files (spark.local.dir) or of checkpoints; then leftfold run"
        )
    return f"see {log_file} for the whole failure; once its cause is removed: leftfold run"


class RunningReader(Running):
    """A query that reads declared topics. It learns schema versions that appear after its start."""

    def __init__(self, name: str, source: Source, registry: SchemaRegistry, log_file: str) -> None:
        super().__init__(name, sum(source.partitions), log_file)
        self._source = source
        self._registry = registry
        self._quiet = 0  # batches in a row in which no unknown schema id was seen
        self._with_care = 0  # the number of batches that are still to be read with care

    @property
    def source(self) -> Source:
        return self._source

    def learn(self, failure: str) -> bool:
        """Learn from a failure outside of its query. Return whether the cause of the failure was removed."""
        return self._learned(failure)

    def take_care(self) -> bool:
        """Read less at a time from the next start of the query on. Return False if it already does so."""
        if self._source.careful:
            return False
        self._source, self._with_care = replace(self._source, careful=True), _CAREFUL_BATCHES
        return True

    def _learned(self, failure: str) -> bool:
        if _OUT_OF_MEMORY.search(failure):
            return self.take_care()
        source = learned(self._source, self._registry, failure)
        if source is not None:
            self._source = source
        return source is not None

    def _went_well(self) -> None:
        super()._went_well()
        self._with_care -= 1

    @property
    def _as_usual(self) -> bool:
        """True if batches need not be checked before they are computed."""
        return self._source.unknown == "stop" and not self._source.careful

    def _look_at_batch(self, starts: Offsets, ends: Offsets) -> None:
        """Check a batch before it is computed. Refuse it if the query has to be started in another way for it."""
        if self._source.careful and self._with_care <= 0:
            self._source, self._again = replace(self._source, careful=False), True
            raise BatchRefusedError("batches fit again; this one runs again, read as usual")
        if self._source.unknown == "stop":
            return
        # An id was met that the registry never gave out. There may be more unknown ids, and the registry may know some.
        known, met = self._source, False
        if known.given_out is None:
            known, met = looked_at(raw_range(self._session, known, starts, ends), known)
        self._quiet = 0 if met else self._quiet + 1
        # Ask now: the end of the batch is settled, and a producer registers a schema before it writes with it.
        given_out = self._registry.given_out_if_few()
        if len(known.writer_schemas) > len(self._source.writer_schemas) or _has_more(given_out, known.given_out):
            self._source, self._again = replace(known, given_out=given_out), True
            raise BatchRefusedError("a schema is new; the batch runs again, decoded with it")
        if self._quiet >= _QUIET_BATCHES:
            usual = replace(self._source, unknown="stop", rejected_ids=frozenset(), given_out=None)
            self._source, self._again = usual, True
            raise BatchRefusedError("no unknown schema id for long; the batch runs again, without a look at its ids")


def _has_more(given_out: frozenset[int] | None, known: frozenset[int] | None) -> bool:
    """True if the registry has ids that the query was not started with.

    `given_out` is None if the registry is too large to be asked before every batch.
    """
    return given_out is not None and (known is None or not given_out <= known)
