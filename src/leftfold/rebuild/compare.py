"""Comparison of two definitions of a view, at the same position of the log and the same moment.

It shows which values differ, and for which entities. The definitions come from the manifests of their builds, and the
same batch code evaluates both from the log. So it compares what the builds mean, not what a store holds of them at two
different moments. Instead of a second build, a table that someone else made can be compared.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from leftfold import clock
from leftfold.declare.catalog import DeclaredView
from leftfold.declare.event import fields_of
from leftfold.errors import RunError
from leftfold.fold.compute import compute
from leftfold.fold.definition import Definition
from leftfold.fold.expressions import from_micros
from leftfold.fold.reach import needed_since, value_reach
from leftfold.offsets import Offsets
from leftfold.run import redrive
from leftfold.run.deployment import Deployment
from leftfold.spark.history.differences import Differences, differences, features_of, table_at
from leftfold.spark.history.records import starts_since
from leftfold.spark.views.tiles import TilesJob
from leftfold.store.layout import definition_in
from leftfold.store.standings import Standings

if TYPE_CHECKING:
    from leftfold.spark.session import DataFrame, SparkSession


@dataclass(frozen=True)
class CompareOptions:
    at: int | None  # the moment (µs); None: now
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
        }


class Comparing:
    """A comparison of one view, at one moment and one position of the log."""

    def __init__(
        self,
        deployment: Deployment,
        standings: Standings,
        declared: DeclaredView,
        options: CompareOptions,
    ) -> None:
        self._deployment, self._standings, self._admin = deployment, standings, deployment.engines.admin
        self._declared, self._options = declared, options

    def run(self, session: SparkSession) -> Comparison:
        now = clock.now_us()
        at = now if self._options.at is None else self._options.at
        builds = self._standings.of(self._declared.name)
        if self._options.against is not None:
            return self._with_table(session, self._options.against, builds.staged or builds.followed, at)
        if builds.staged is None or builds.followed is None:
            raise RunError(
                "nothing-to-compare",
                f"{self._declared.name} has no two builds: readers follow {builds.followed or 'none'}, "
                f"staged is {builds.staged or 'none'}",
                why="a staged build is compared with the one that readers follow",
                fix=f"leftfold rebuild {self._declared.name} makes a build of the definition as it is declared now",
            )
        left, right = self._definition(builds.followed), self._definition(builds.staged)
        ends = {**self._ends(left), **self._ends(right)}
        common = [name for name in left.visible if name in right.visible]
        difference = differences(
            self._features(session, left, ends, at),
            self._features(session, right, ends, at),
            common,
            nothing=(compute(left, [], at), compute(right, [], at)),
            tolerance=self._options.tolerance,
            top=self._options.top,
        )
        return Comparison(
            self._declared.name,
            builds.followed,
            builds.staged,
            at,
            ends,
            difference,
            tuple(name for name in left.visible if name not in common),
            tuple(name for name in right.visible if name not in common),
        )

    def _with_table(self, session: SparkSession, table: str, build: str | None, at: int) -> Comparison:
        declared = self._declared.definition
        mine = self._definition(build) if build else self._windowed(declared, "what is declared")
        ends = self._ends(mine)
        theirs = table_at(session, table, mine.keys, self._options.keys)
        common = [name for name in mine.visible if name in theirs.columns]
        if not common:
            raise RunError(
                "nothing-to-compare",
                f"{table} has none of the features of {self._declared.name}",
                why=f"it has {', '.join(theirs.columns[1:]) or 'no column beside the keys'}",
                fix="name columns that are called otherwise: --key FEATURE=COLUMN",
            )
        difference = differences(
            self._features(session, mine, ends, at),
            theirs,
            common,
            nothing=(compute(mine, [], at), {}),
            tolerance=self._options.tolerance,
            top=self._options.top,
        )
        return Comparison(
            self._declared.name,
            build or "declared",
            table,
            at,
            ends,
            difference,
            tuple(name for name in mine.visible if name not in common),
            tuple(name for name in theirs.columns[1:] if name not in common),
        )

    def _definition(self, build: str) -> Definition:
        document = self._standings.manifest(self._declared.name, build)
        if document is None:
            raise RunError(
                "not-caught-up",
                f"{build} of {self._declared.name} cannot be compared yet",
                why="its history is still being read",
                fix=f"leftfold rebuild {self._declared.name} goes on with it",
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

    def _ends(self, definition: Definition) -> Offsets:
        source = self._deployment.reading(self._declared, self._fields(definition))
        pairs = zip(source.topics, source.partitions, strict=True)
        return {topic: self._admin.stable_offsets(topic, partitions) for topic, partitions in pairs}

    def _fields(self, definition: Definition) -> frozenset[str]:
        """Return the event's fields to decode: all of them if a function stands between topic and view."""
        event = fields_of(self._declared.reading.topics[0].event)
        return frozenset(event if definition.stream else definition.fields())

    def _features(self, session: SparkSession, definition: Definition, ends: Offsets, at: int) -> DataFrame:
        source = replace(self._deployment.reading(self._declared, self._fields(definition)), unknown="look")
        since = needed_since(definition, at, value_reach(definition))
        starts, _ = starts_since(session, source, self._admin, since)
        starts = {t: {p: min(offset, ends[t][p]) for p, offset in parts.items()} for t, parts in starts.items()}
        again = redrive.everything(
            session, source, self._admin, self._deployment.redrive_topic(self._declared), since=starts
        )
        stream = self._declared.reading.stream if definition.stream else None
        job = TilesJob(definition, stream)
        return features_of(session, source, job, starts=starts, ends=ends, at=at, redriven=again)
