"""Comparison of two definitions of a view, at the same position of the log and the same moment.

It shows which values differ, and for which entities. The definitions come from the manifests of their builds, and the
same batch code evaluates both from the log. So it compares what the builds mean, not what a store holds of them at two
different moments. Instead of a second build, a table that someone else made can be compared. If little of the log is
read, this process compares without Spark.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leftfold import clock
from leftfold.declare.catalog import DeclaredView
from leftfold.declare.event import fields_of
from leftfold.declare.topic import Topic
from leftfold.errors import RunError
from leftfold.fold.compute import compute
from leftfold.fold.definition import Definition
from leftfold.fold.differences import Differences
from leftfold.fold.expressions import from_micros
from leftfold.fold.reach import needed_since, value_reach
from leftfold.offsets import SLOTS_PER_TOPIC, Offsets
from leftfold.places import local_path, table_unreadable
from leftfold.run.choice import Choice, Engine, chosen, for_compare, only_spark
from leftfold.run.deployment import Deployment, TopicPlace
from leftfold.store.layout import definition_in, reached
from leftfold.store.standings import Standings

if TYPE_CHECKING:
    from leftfold.arrow.compared import FeaturesAt, ForeignTable
    from leftfold.spark.session import DataFrame, SparkSession


_WHAT = "this comparison"


@dataclass(frozen=True)
class CompareOptions:
    at: int | None  # the moment (µs); None: now, or the newest event if no window reaches back to it from now
    against: str | None  # a table to compare with, instead of a second build
    keys: Mapping[str, str]  # by our name of a key or feature: its column in that table
    tolerance: float  # relative, for numbers
    top: int  # how many of the largest differences of each feature are reported


@dataclass(frozen=True)
class Comparison:
    view: str
    left: str  # a build, or "declared" if there is none
    right: str  # a build, or the table
    at: int
    position: Offsets  # the log was read up to these offsets; topics have their names in the cluster
    differences: Differences
    only_left: tuple[str, ...]  # features that the right side does not have
    only_right: tuple[str, ...]  # features that the left side does not have
    choice: Choice  # who compared

    def as_json(self) -> dict[str, Any]:
        return {
            "view": self.view,
            "left": self.left,
            "right": self.right,
            "at": from_micros(self.at).isoformat(),
            "position": self.position,
            "entities": self.differences.entities,
            "equal": self.differences.equal,
            "features": [asdict(feature) for feature in self.differences.features],
            "only_left": list(self.only_left),
            "only_right": list(self.only_right),
            "choice": self.choice.as_json(),
        }


@dataclass(frozen=True)
class _Range:
    """A range of one topic."""

    place: TopicPlace
    starts: dict[int, int]
    ends: dict[int, int]
    at_head: bool  # a partition is read from the first record that the log has

    @property
    def records(self) -> int:
        """The number of offsets that are read."""
        return sum(end - self.starts[p] for p, end in self.ends.items())


class Comparing:
    """A comparison of one view, at one moment and one position of the log. Both are fixed at the first use."""

    def __init__(
        self,
        deployment: Deployment,
        standings: Standings,
        declared: DeclaredView,
        options: CompareOptions,
    ) -> None:
        self._deployment, self._standings, self._admin = deployment, standings, deployment.engines.admin
        self._declared, self._options = declared, options

    def choice(self, engine: Engine | None = None) -> Choice:
        """Choose whether Arrow or Spark compares."""
        sides = self._sides  # raises if there is nothing to compare

        def only_spark_compares() -> str | None:
            if any(definition.stream is not None for _, definition in sides):
                return f"a function makes the rows of {self._declared.name}"
            if self._options.against is not None and self._local(self._options.against) is None:
                return f"{self._options.against} is not on this machine's disk"
            ranges = [read for name, _ in sides for read in self._ranges[name]]
            archived = [r.place.topic for r in ranges if r.at_head and self._deployment.may_be_archived(r.place.topic)]
            return f"the archive of {archived[0].name} may have older records" if archived else None

        def quicker() -> Choice:
            return for_compare(sum(read.records for name, _ in sides for read in self._ranges[name]))

        return chosen(_WHAT, engine, only_spark_compares, quicker)

    def run(
        self, start: Callable[[], SparkSession], *, session: SparkSession | None = None, engine: Engine | None = None
    ) -> Comparison:
        """Compare, with Spark if a session is given. If none is, and Spark is needed, `start` makes one for that."""
        choice = self.choice(engine) if session is None else Choice("spark", "its session was given")
        if choice.engine == "arrow":
            from leftfold.arrow import OnlySparkError

            try:
                return self._by_arrow(choice)
            except OnlySparkError as error:
                choice = only_spark(_WHAT, str(error), engine)
        if session is not None:
            return self._by_spark(session, choice)
        own = start()
        try:
            return self._by_spark(own, choice)
        finally:
            own.stop()

    def _by_arrow(self, choice: Choice) -> Comparison:
        from leftfold.arrow.compared import ForeignTable, compared

        (name, definition), *others = self._sides
        left = self._read(name, definition)
        if others:
            ((against, other),) = others
            right: FeaturesAt | ForeignTable = self._read(against, other)
        else:
            against = str(self._options.against)
            path = self._local(against)
            assert path is not None, "chosen for that"
            right = ForeignTable(path, left, self._options.keys)
        self._common(left.names, right.names, against)
        found = compared(left, right, tolerance=self._options.tolerance, top=self._options.top)
        return self._comparison(name, against, left.names, right.names, found, choice)

    def _by_spark(self, session: SparkSession, choice: Choice) -> Comparison:
        from leftfold.spark.history.differences import differences, table_at

        (name, definition), *others = self._sides
        if others:
            ((against, other),) = others
            right, nothing, names = self._frame(session, other), compute(other, [], self._at), other.visible
        else:
            against = str(self._options.against)
            right, nothing = table_at(session, against, definition.keys, self._options.keys), {}
            names = tuple(right.columns[1:])
        found = differences(
            self._frame(session, definition),
            right,
            self._common(definition.visible, names, against),
            nothing=(compute(definition, [], self._at), nothing),
            tolerance=self._options.tolerance,
            top=self._options.top,
        )
        return self._comparison(name, against, definition.visible, names, found, choice)

    def _common(self, left: Sequence[str], right: Sequence[str], against: str) -> list[str]:
        common = [name for name in left if name in right]
        if not common and self._options.against is not None:
            raise RunError(
                "nothing-to-compare",
                f"{against} has none of the features of {self._declared.name}",
                why=f"it has {', '.join(right) or 'no column beside the keys'}",
                fix="name columns that are called otherwise: --column FEATURE=COLUMN",
            )
        return common

    def _comparison(
        self, name: str, against: str, left: Sequence[str], right: Sequence[str], found: Differences, choice: Choice
    ) -> Comparison:
        return Comparison(
            self._declared.name,
            name,
            against,
            self._at,
            self._ends,
            found,
            tuple(feature for feature in left if feature not in right),
            tuple(feature for feature in right if feature not in left),
            choice,
        )

    @cached_property
    def _at(self) -> int:
        """The moment: as asked, else now. If nothing happened in the shortest window, just after the newest event.

        Now most features would be empty there on both sides, and nothing would be compared.
        """
        now = clock.now_us()
        if self._options.at is not None:
            return self._options.at
        windows = [f.window for _, definition in self._sides for f in definition.windowed if f.window is not None]
        newest = self._newest_event(now)
        return newest + 1 if newest and windows and newest <= now - min(windows) else now

    def _newest_event(self, now: int) -> int:
        """Return the time (µs) of the newest event that a build of the view has read; 0 if there is none."""
        view, origins = self._declared.name, self._declared.reading.origins
        builds = self._standings.of(view)
        ledgers = [self._standings.position(view, b)[1] for b in (builds.followed, builds.staged) if b is not None]
        return max((reached(ledger, origins, now) for ledger in ledgers), default=0)

    # The two sides ------------------------------------------------------------------------------------------------

    @cached_property
    def _sides(self) -> list[tuple[str, Definition]]:
        """The names and definitions of both sides; of one, if the other is a table."""
        builds = self._standings.of(self._declared.name)
        if self._options.against is not None:
            path = self._local(self._options.against)
            if path is not None and not path.exists():
                raise table_unreadable(self._options.against, why="there is nothing at that place")
            build = builds.staged or builds.followed
            if build:
                return [(build, self._definition(build))]
            return [("declared", self._windowed(self._declared.definition, "what is declared"))]
        if builds.staged is None or builds.followed is None:
            raise RunError(
                "nothing-to-compare",
                f"{self._declared.name} has no two builds: readers follow {builds.followed or 'none'}, "
                f"staged is {builds.staged or 'none'}",
                why="a staged build is compared with the one that readers follow",
                fix=f"leftfold rebuild {self._declared.name} makes a build of the definition as it is declared now",
            )
        return [(build, self._definition(build)) for build in (builds.followed, builds.staged)]

    def _definition(self, build: str) -> Definition:
        document = self._standings.manifest(self._declared.name, build)
        if document is None:
            raise RunError(
                "not-caught-up",
                f"{build} of {self._declared.name} cannot be compared yet",
                why="its history is still being read",
                fix=f"leftfold rebuild {self._declared.name} continues with it",
            )
        return self._windowed(definition_in(json.loads(document)), build)

    def _windowed(self, definition: object, build: str) -> Definition:
        stream = self._declared.reading.stream
        declared = self._declared.definition
        code = declared.stream if isinstance(declared, Definition) and stream is not None else None
        if not isinstance(definition, Definition) or definition.stream not in (None, code):
            raise RunError(
                "not-comparable",
                f"{self._declared.name} ({build}) cannot be evaluated from the log at a moment",
                why="its rows come from a function whose code is not what is declared now"
                if isinstance(definition, Definition)
                else "it keeps the newest row of a key, which has no windows",
                fix=f"compare values that you read: leftfold get {self._declared.name} KEY",
            )
        topics = {topic.name: topic for topic in self._declared.reading.topics}
        unknown = [o.topic for o in definition.origins if o.topic not in topics]
        event = fields_of(self._declared.reading.topics[0].event)
        unknown += [] if definition.stream else [f for f in definition.fields() if f not in event]
        if unknown:
            raise RunError(
                "not-comparable",
                f"{self._declared.name} ({build}) reads {unknown[0]}, which the declared view does not know",
                why="records are decoded as they are declared now",
                fix=f"declare {unknown[0]} as it was, for as long as the comparison takes",
            )
        return definition

    # What of the log they need ------------------------------------------------------------------------------------

    def _topics(self, definition: Definition) -> list[Topic[Any]]:
        """Return the topics of a definition, in its own order: the declared view may read others."""
        topics = {topic.name: topic for topic in self._declared.reading.topics}
        return [topics[origin.topic] for origin in definition.origins]

    @cached_property
    def _places(self) -> dict[str, TopicPlace]:
        topics = {topic.name: topic for _, definition in self._sides for topic in self._topics(definition)}
        who, at = self._declared.name, self._declared.source
        return {name: self._deployment.place(topic, who=who, at=at) for name, topic in topics.items()}

    @cached_property
    def _ends(self) -> Offsets:
        return {place.name: self._admin.stable_offsets(place.name, place.partitions) for place in self._places.values()}

    def _fields(self, definition: Definition) -> frozenset[str]:
        """Return the event's fields to decode: all of them if a function stands between topic and view."""
        event = fields_of(self._declared.reading.topics[0].event)
        return frozenset(event if definition.stream else definition.fields())

    def _since(self, definition: Definition) -> int | None:
        return needed_since(definition, self._at, value_reach(definition))

    @cached_property
    def _ranges(self) -> dict[str, list[_Range]]:
        """The ranges of the topics of each side, in the definition's order, by the name of the side."""
        return {name: self._ranges_of(definition) for name, definition in self._sides}

    def _ranges_of(self, definition: Definition) -> list[_Range]:
        ranges = []
        for topic in self._topics(definition):
            place = self._places[topic.name]
            ends = self._ends[place.name]
            begins, at_head = self._deployment.log_since(place, self._since(definition))
            starts = {p: min(begin, ends[p]) for p, begin in begins.items()}
            ranges.append(_Range(place, starts, ends, at_head=bool(at_head)))
        return ranges

    def _redrives(self, definition: Definition) -> str | None:
        return self._deployment.redrive_topic(self._topics(definition))

    def _local(self, location: str) -> Path | None:
        return local_path(location, self._deployment.profile.spark.conf)

    # Their features -----------------------------------------------------------------------------------------------

    def _read(self, name: str, definition: Definition) -> FeaturesAt:
        from leftfold.arrow import OnlySparkError
        from leftfold.arrow.compared import EveryEntity, FeaturesAt
        from leftfold.arrow.decode import WriterSchemas
        from leftfold.arrow.past import TopicRange, ViewRecords, read_topic

        kafka, registry = self._deployment.engines.kafka, self._deployment.engines.registry
        records = ViewRecords(definition, EveryEntity())
        begins: dict[int, int] = {}  # by slot
        redrives = self._redrives(definition)
        redriven = self._admin.end_offsets(redrives, 1)[0] if redrives else 0
        for number, read in enumerate(self._ranges[name]):
            place, starts, ends = read.place, read.starts, read.ends
            schemas = WriterSchemas(place.schemas, registry.schema)
            fields = self._fields(definition)
            of = TopicRange(place.topic, place.name, starts, ends, redrives or "", redriven, fields, schemas)
            read_topic(of, kafka, [(records, number)])
            firsts = self._admin.start_offsets(place.name, place.partitions)
            if any(start < min(firsts[p], ends[p]) for p, start in starts.items()):
                raise OnlySparkError("the log deleted records before they were read")
            begins |= {number * SLOTS_PER_TOPIC + p: start for p, start in starts.items()}
        return FeaturesAt(records, self._at, begins)

    def _frame(self, session: SparkSession, definition: Definition) -> DataFrame:
        from leftfold.run import redrive
        from leftfold.spark.history.differences import features_of
        from leftfold.spark.history.records import starts_since
        from leftfold.spark.views.tiles import TilesJob

        declared, topics = self._declared, self._topics(definition)
        read = self._deployment.source(topics, self._fields(definition), who=declared.name, at=declared.source)
        source = replace(read, unknown="look")
        ends = {topic: self._ends[topic] for topic in source.topics}
        starts, _ = starts_since(session, source, self._admin, self._since(definition))
        starts = {t: {p: min(offset, ends[t][p]) for p, offset in parts.items()} for t, parts in starts.items()}
        again = redrive.everything(session, source, self._admin, self._redrives(definition), since=starts)
        job = TilesJob(definition, declared.reading.stream if definition.stream else None)
        return features_of(session, source, job, starts=starts, ends=ends, at=self._at, redriven=again)
