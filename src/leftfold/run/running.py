"""A query that is kept running: started, watched, started again after a failure, and given up on with a reason.

What the query does is its subclass's: a view, the intake of a topic, the lake of a view.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from leftfold import clock
from leftfold.errors import LeftfoldError, RunError
from leftfold.kafka.registry import SchemaRegistry
from leftfold.run.progress import Progress
from leftfold.run.sources import learned
from leftfold.spark.query import Query, Snapshot
from leftfold.spark.source import Source

if TYPE_CHECKING:
    from leftfold.spark.session import SparkSession

# How long to wait after each failure in a row. An engine that is away comes back within minutes, or a person looks.
BACK_OFF_S = (1, 2, 4, 8, 16, 32, 60, 60)
# A failure that names no engine is most likely the same again: three times tell that it is.
_TRIES_UNEXPLAINED = 3
_LOOK_EVERY_S = 0.2


class BatchRefusedError(Exception):
    """Raised inside a batch so that Spark does not commit it; the reason is kept beside it."""


class Running(ABC):
    """Driven by the supervisor's loop (`poll`) and by Spark's thread (its batches)."""

    checkpoint: str
    _session: SparkSession
    _query: Query | None = None

    kind = "view"

    def __init__(self, name: str, partitions: int, log_file: str) -> None:
        self.name = name
        self._partitions = partitions  # that it reads, of all topics together
        self.progress = Progress(name, self.kind)
        self._log_file = log_file
        self._stopping = threading.Event()
        self._refusal: LeftfoldError | None = None  # why the batch at hand was not applied
        self._again = False  # the refused batch is to run again, in another way
        self._failures = 0  # in a row, without a batch in between
        self._due: float | None = None  # when to start again
        self._until_caught_up = False

    @abstractmethod
    def prepare(self, session: SparkSession) -> None:
        """Compile it, or refuse it by name; nothing is started."""

    @abstractmethod
    def _begin(self) -> Query:
        """Start the query, from wherever its checkpoint stands."""

    def _noticed(self, seen: Snapshot) -> None:
        """Spark tells of a finished batch; called again and again."""
        self.progress.rate = seen.rate
        if seen.behind is not None:
            self.progress.lag = seen.behind

    def _caught_up(self) -> None:
        """The query ended because all was read."""
        self.progress.lag = 0

    def _look_after(self) -> None:  # noqa: B027 # most have nothing to look after
        """Now and then, while the query runs."""

    def start(self, session: SparkSession, *, until_caught_up: bool) -> None:
        """Trouble is kept with this query: others go on."""
        self._session = session
        self._until_caught_up = until_caught_up
        self._start()

    @property
    def query(self) -> Query:
        assert self._query is not None, f"{self.name} was not started"
        return self._query

    @property
    def running(self) -> bool:
        return self.progress.state not in ("caught up", "stopped", "failed")

    def wait(self) -> None:
        """Until it has ended: for callers without a loop of their own."""
        while self.running:
            if self._query is not None and self._due is None:
                self._query.wait(_LOOK_EVERY_S)
            else:
                time.sleep(_LOOK_EVERY_S)
            self.poll()

    def stop(self) -> None:
        """Ask for an end at the next batch boundary; `poll` sees to it."""
        self._stopping.set()

    def close(self) -> None:  # noqa: B027 # most hold nothing
        """Let go of what it holds beside its query."""

    def poll(self) -> None:
        """Notice progress, the end, or a failure."""
        if not self.running:
            return
        if self._due is not None:
            self._wait_or_start(self._due)
            return
        if self._query is None:
            if self._stopping.is_set():
                self.progress.state = "stopped"  # before it was started
            return
        if self._stopping.is_set():
            self._query.stop_if_idle()
        try:
            self._look(self._query)
        except LeftfoldError as error:
            if error.retriable and self._query.active:
                return  # the store is away for a moment; the next batch decides whether it is for good
            self._failed(error)

    def _look(self, query: Query) -> None:
        if (seen := query.snapshot(self._partitions)) is not None:
            self._noticed(seen)
        if query.active:
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
            self._failed(self._refusal or self._explain(failure))

    def _start(self) -> None:
        self._refusal = None
        self._query = None
        try:
            self._query = self._begin()
        except LeftfoldError as error:
            if self._learned(str(error.__cause__)):  # what is computed anew at a start meets old schemas too
                self._start()
            else:
                self._failed(error)
        else:
            self.progress.state = "running"

    def _failed(self, error: LeftfoldError) -> None:
        self._failures += 1
        tries = _TRIES_UNEXPLAINED if error.code == "view-failed" else len(BACK_OFF_S) + 1
        if not error.retriable or self._failures >= tries:
            self._give_up(error)
            return
        self.progress.error = error
        self.progress.state = "waiting"
        self.progress.restarts += 1
        self._due = clock.monotonic() + BACK_OFF_S[self._failures - 1]

    def _wait_or_start(self, due: float) -> None:
        if self._stopping.is_set():
            self._due = None
            self.progress.error = None
            self.progress.state = "stopped"
        elif clock.monotonic() >= due:
            self._due = None
            self.progress.error = None
            self._start()

    def _give_up(self, error: LeftfoldError) -> None:
        self.progress.error = error
        self.stop()
        if self._query is not None:
            self._query.stop_if_idle()
        self.progress.state = "failed"

    def _went_well(self) -> None:
        """A batch was applied: whatever failed before is over."""
        self._failures = 0

    def _learned(self, failure: str) -> bool:
        """Whether the failure tells of something that can be read in: the same batch then runs again."""
        return False

    def _explain(self, failure: str) -> RunError:
        lines = [line.strip() for line in failure.splitlines() if line.strip()]
        cause = next((line for line in reversed(lines) if "Error" in line or "Exception" in line), lines[0])
        return RunError(
            "view-failed",
            f"{self.name} stopped",
            why=cause[:300],
            state="its last batch is not committed; it runs again, with the same records, at the next start",
            fix=f"see {self._log_file}; then leftfold run",
            retriable=True,
        )


class RunningReader(Running):
    """One that reads declared topics: a schema version that appears after the start is learned."""

    def __init__(self, name: str, source: Source, registry: SchemaRegistry, log_file: str) -> None:
        super().__init__(name, sum(source.partitions), log_file)
        self._source = source
        self._registry = registry

    @property
    def source(self) -> Source:
        return self._source

    def learn(self, failure: str) -> bool:
        """Whether a failure outside of its query tells of something that it has now read in."""
        return self._learned(failure)

    def _learned(self, failure: str) -> bool:
        found = learned(self._source, self._registry, failure)
        if found is not None:
            self._source = found
        return found is not None
