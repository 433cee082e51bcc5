"""Outcomes: predictions with their labels, from frozen offsets of two topics.

A label is closed once the log has passed the prediction's window, the lateness of records and the slack of the clocks,
in every partition of both topics. Nothing that is logged later can be accepted with an event time in that window, and
no other prediction can compete for its events. So a closed row never changes. An open row has no label: null, never 0.

Nothing is written but by `write` and `append`. A process that dies in `write` leaves a directory `DIR.unfinished-…`,
which the next `write` of that directory removes. What a death in `append` leaves is said in `outcome_table`.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from leftfold import clock
from leftfold.declare.catalog import Catalog
from leftfold.declare.companions import outcomes_table
from leftfold.declare.features import FUTURE_TOLERANCE
from leftfold.declare.outcome import Outcome, OutcomeDefinition
from leftfold.declare.topic import Topic
from leftfold.errors import DeclarationError, RunError
from leftfold.fold.durations import SECOND
from leftfold.fold.expressions import from_micros
from leftfold.offsets import Offsets, Ranges
from leftfold.replay.replay import Replay, as_offsets
from leftfold.run import watermark
from leftfold.run.deployment import Deployment
from leftfold.run.frontier import ends_reached
from leftfold.spark import files
from leftfold.spark.history.records import head_is_gone, session_for, starts_since
from leftfold.spark.quality.outcome_table import NO_ROWS, TablePosition, append_once, count_from, position
from leftfold.spark.quality.outcomes import OutcomeCounts, OutcomeRows, counted, first_logged

if TYPE_CHECKING:
    from leftfold.spark.session import DataFrame, SparkSession

MakeReplay = Callable[[str, datetime | None, datetime | None], Replay]

# A repeat of a prediction is recognized if the first is logged at most so long before the range that is read.
_REPEATED_WITHIN = 24 * 3_600 * SECOND
# How often an append begins again because another one was faster.
_TRIES = 20
_UNFINISHED = ".unfinished-"


@dataclass(frozen=True)
class Appended:
    """The result of an append: how many rows it added, and up to which moment of predictions the table goes now."""

    rows: int
    closed_until: datetime | None  # None: no row is closed yet
    table: str


def definition_of(outcome: type[Outcome] | str, catalog: Catalog) -> OutcomeDefinition:
    """Return the definition of an outcome, which is given as a class or by name."""
    if isinstance(outcome, str):
        return catalog.outcome(outcome)
    if isinstance(outcome, type) and issubclass(outcome, Outcome) and outcome is not Outcome:
        return outcome.__leftfold_outcome__
    raise DeclarationError(
        "not-an-outcome",
        f"outcomes were asked for of {outcome!r}",
        why="what counts as an outcome is declared by a class",
        fix="pass a lf.Outcome, or its name",
    )


class Outcomes:
    """The outcomes of predictions, as of the offsets that were frozen when this was made.

    Use it in a `with` block, or call `release()`: Spark keeps the records that it was made from.
    """

    def __init__(
        self,
        definition: OutcomeDefinition,
        deployment: Deployment,
        replay: MakeReplay,
        *,
        start: int | None,
        end: int | None,
        include_open: bool,
    ) -> None:
        self.definition = definition
        self.start, self.end = start, end
        self._deployment = deployment
        self._include_open = include_open
        self._looked = clock.now_us()
        # Before the offsets are frozen: what lies past them is then surely logged after these moments.
        complete = [self._complete_until(topic) for topic in self._topics]
        self._closed = min(complete) - definition.within
        slack, within = watermark.CLOCK_SLACK + FUTURE_TOLERANCE, definition.within
        first = None if start is None else start - within - _REPEATED_WITHIN - slack
        events_first = None if start is None else start - slack
        beyond = None if end is None else end + within + watermark.CLOCK_SLACK
        self.predictions = replay(
            definition.predictions.name, _moment(first), _moment(beyond, definition.predictions.lateness)
        )
        self.events = replay(definition.topic.name, _moment(events_first), _moment(beyond, definition.topic.lateness))
        self._since = (first, events_first)

    # For users -------------------------------------------------------------------------------------------------

    @property
    def frame(self) -> DataFrame:
        """The rows as a Spark DataFrame: every field of the prediction, the labels, and `closed`.

        It holds closed rows only, unless open ones were asked for. A prediction that was logged again is there once.
        """
        return self._rows.frame(include_open=self._include_open)

    def to_pandas(self) -> Any:
        """Return all rows as a pandas DataFrame, in the memory of this process."""
        return self.frame.toPandas()

    def report(self) -> OutcomeCounts:
        """Count predictions and events."""
        return counted(self._rows)

    @property
    def closed_until(self) -> datetime:
        """The moment up to which the labels of predictions are closed."""
        return from_micros(max(self._closed, 0))

    @property
    def ranges(self) -> dict[str, Ranges]:
        """The offsets that are read, by declared topic."""
        return {replay.topic.name: replay.ranges for replay in (self.predictions, self.events)}

    def write(self, directory: str) -> int:
        """Write the rows as Parquet files to a new directory, which appears as a whole. Return their number."""
        session = self._session
        directory = files.absolute(session, directory)
        if files.exists(session, directory):
            raise _taken(directory)
        for left in files.siblings(session, directory, _UNFINISHED):
            files.remove(session, left)
        beside = f"{directory}{_UNFINISHED}{uuid.uuid4().hex[:8]}"
        self.frame.write.parquet(beside)
        rows = session.read.parquet(beside).count()
        if files.exists(session, directory) or not files.rename(session, beside, directory):
            raise _taken(directory)
        return rows

    def append(self, table: str | None = None) -> Appended:
        """Append rows that were closed since the last append to a Delta table: to the outcome's own, in the lake.

        Every prediction is there once, whatever dies, and however many processes append at once. Rows of predictions
        up to one moment are in the table, later ones are not yet, and the commit that adds rows moves that moment.
        """
        session = self._session
        own = outcomes_table(self._deployment.lake, self.definition.name)
        place = own if table is None else files.absolute(session, table)
        until = self._closed if self.end is None else min(self._closed, self.end - 1)
        for _ in range(_TRIES):
            before = position(session, place)
            self._check_continues(before, place)
            after = TablePosition(before.sequence + 1, until, self.definition.fingerprint, uuid.uuid4().hex)
            if until <= before.closed:
                return Appended(0, _told(before.closed), place)
            rows = self._rows.closed_rows(before.closed, until)
            if append_once(rows, place, before, after, self._said()):
                return Appended(count_from(session, place, before.closed, until), _told(until), place)
        raise RunError(
            "outcomes-overtaken",
            f"other processes append to {place} all the time",
            why=f"each of {_TRIES} appends found that another one had committed meanwhile",
            state="this process added nothing; the table holds every row up to its end, once",
            fix="run it in one place only, for example once an hour",
            retriable=True,
        )

    def release(self) -> None:
        """Let Spark forget the records that it keeps. If rows are asked for later, they are read again."""
        if "_rows" in self.__dict__:
            self._rows.release()
            del self.__dict__["_rows"]

    def __enter__(self) -> Outcomes:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    @property
    def _topics(self) -> tuple[Topic[Any], Topic[Any]]:
        return self.definition.predictions, self.definition.topic

    # Sources ---------------------------------------------------------------------------------------------------

    def _complete_until(self, topic: Topic[Any]) -> int:
        """Return the moment (µs) before which no record can be accepted any more."""
        name = self._deployment.profile.topic_name(topic.name, external=topic.external)
        admin = self._deployment.engines.admin
        _, reached = ends_reached(admin, name, admin.partitions_of(name))
        return min(reached) - watermark.CLOCK_SLACK - topic.lateness

    @cached_property
    def _session(self) -> SparkSession:
        starts: Offsets = {}
        ends: Offsets = {}
        for replay in (self.predictions, self.events):
            first, last = as_offsets(replay.ranges, replay.source.topics[0], replay.source.partitions[0])
            starts, ends = {**starts, **first}, {**ends, **last}
        return session_for(self._deployment.session(), starts, ends)

    @cached_property
    def _rows(self) -> OutcomeRows:
        rows = self._read()
        return rows.without_before(self._known_since(rows))

    def _read(self) -> OutcomeRows:
        """Read the records of both topics. If the log's head is deleted meanwhile, the archive has it the next time."""
        session, tries = self._session, _TRIES if any(t.archive for t in self._topics) else 1
        while True:
            try:
                return OutcomeRows.of(
                    self.predictions.frame(session),
                    self.events.frame(session),
                    self.definition,
                    closed=self._closed,
                    start=self.start,
                    end=self.end,
                )
            except RunError as error:
                tries -= 1
                if not tries or not head_is_gone(str(error.__cause__)):
                    raise

    def _known_since(self, rows: OutcomeRows) -> int | None:
        """Return the moment (µs) from which on predictions have all their events; None if nothing is gone.

        Retention may have deleted the oldest events. If events are credited to the first prediction in reach, it may
        also have deleted that.
        """
        needed = [(self.events, self._since[1], rows.events, 0)]
        if self.definition.credit == "first":
            needed.append((self.predictions, self._since[0], rows.predictions, self.definition.within))
        moments = [
            known + watermark.CLOCK_SLACK + FUTURE_TOLERANCE + reach
            for replay, since, frame, reach in needed
            if (known := self._oldest(replay, since, frame)) is not None
        ]
        return max(moments, default=None)

    def _oldest(self, replay: Replay, since: int | None, frame: DataFrame) -> int | None:
        """Return the log time (µs) since which no record of a topic is gone that might be needed; None if none is."""
        _, lacking = starts_since(self._session, replay.source, self._deployment.engines.admin, since)
        places = [int(place.rpartition("/")[2]) for place in lacking]
        if not places:
            return None
        found = first_logged(frame, places)
        # A partition that holds no record any more: what it held was older than the retention.
        kept = self._looked - (replay.topic.retention or 0)
        return max(found.get(place, kept) for place in places)

    def _said(self) -> dict[str, Any]:
        return {
            "outcome": self.definition.name,
            "started": self.start,
            "ranges": {name: ranges.as_json() for name, ranges in self.ranges.items()},
        }

    def _check_continues(self, before: TablePosition, table: str) -> None:
        if before.fingerprint and before.fingerprint != self.definition.fingerprint:
            raise RunError(
                "outcome-changed",
                f"{table} holds outcomes of another definition of {self.definition.name}",
                why=f"its labels mean {before.fingerprint}, and those of now {self.definition.fingerprint}",
                state="nothing was appended",
                fix="declare the outcome with another name=; or move the table away, and append all rows anew",
            )
        if before.closed != NO_ROWS.closed and self.start is not None and self.start > before.closed + 1:
            raise RunError(
                "outcomes-gap",
                f"{table} holds predictions up to {from_micros(before.closed)}, and these start at "
                f"{from_micros(self.start)}",
                why="a later append continues from the end of this one, so predictions in between would never be there",
                state="nothing was appended",
                fix=f"leftfold outcomes {self.definition.name} --append continues from where the table ends",
            )


def next_start(session: SparkSession, table: str) -> int | None:
    """Return the moment (µs) at which the next append to a table begins; None: at the beginning of the log."""
    before = position(session, table)
    return None if before.closed == NO_ROWS.closed else before.closed + 1


def counts_as_json(counts: OutcomeCounts) -> dict[str, int]:
    return asdict(counts)


def _told(moment: int) -> datetime | None:
    return None if moment < 0 else from_micros(moment)


def _moment(us: int | None, more: int = 0) -> datetime | None:
    return None if us is None else from_micros(max(us + more, 0))


def _taken(directory: str) -> RunError:
    return RunError(
        "directory-taken",
        f"{directory} exists already",
        why="the rows of an outcome are written into a directory of their own, and never over anything",
        fix="choose another directory, or delete that one first",
    )
