"""Skew: every logged value of a scorer's predictions, computed again from the log at its own build and batch.

Two numbers tell how training and serving agree. A value that differs from what its build holds at its batch should not
exist: something is wrong. A value that differs from what the log held at that moment is the cost of the view's delay.
What cannot be compared is counted with its reason. No evidence is never a pass.

Nothing is written, so a process that dies leaves nothing behind.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from leftfold.declare.catalog import Catalog, DeclaredView
from leftfold.declare.companions import receipts_table, redrive_topic
from leftfold.declare.event import fields_of
from leftfold.declare.free import View
from leftfold.declare.prediction import vector_keys, view_fields
from leftfold.declare.reading import Reading
from leftfold.declare.scorer import Scorer
from leftfold.declare.sinks import Lake
from leftfold.errors import LogError, StoreError
from leftfold.fold.build_id import BuildId
from leftfold.fold.definition import Definition
from leftfold.fold.expressions import from_micros
from leftfold.fold.latest import Latest
from leftfold.kafka.registry import subject_of
from leftfold.offsets import SLOTS_PER_TOPIC
from leftfold.replay.replay import Replay
from leftfold.run.deployment import Deployment
from leftfold.run.receipt_store import ReceiptStore
from leftfold.run.receipts import Receipt
from leftfold.spark.files import exists
from leftfold.spark.quality.skew import BuildPast, Compared, Predicted, ViewOfVector, compared, redriven_rows
from leftfold.spark.sinks.delta import version_of
from leftfold.spark.sinks.lake import lake_at
from leftfold.spark.training.assemble import ViewPast, oldest_logged, originals, outside
from leftfold.spark.training.latest_as_of import versions_in_lake
from leftfold.store.builds import manifest_of
from leftfold.store.layout import definition_in
from leftfold.training.by_spark import logged_past
from leftfold.training.served import Served, begins_of, served_by, with_lake
from leftfold.training.topics import PastReader, TopicPast

if TYPE_CHECKING:
    from leftfold.spark.session import SparkSession

Verdict = Literal["equal", "differs", "unknown"]
MOST = 20  # rows that differ are listed up to here
# Why predictions are not compared, in words.
REASONS = {
    "fallback": "a fallback, for which no features were read",
    "no provenance": "they do not say which build and batch they were made from",
    "definition gone": "what their build meant is not known",
    "declaration gone": "a topic, field, key or stream of their build is no longer declared as it was",
    "not recorded": "a function made the values, and no lake recorded its rows",
    "receipts gone": "the receipts of their build are gone",
    "batch unknown": "their batch has no receipt yet, or never had one",
    "batches rolled up": "it is no longer known where each batch of their build ended",
    "history gone": "archive and log no longer have all records of their windows",
    "re-driven": "corrected records reach into their windows",
    "ahead": "an event of their batch happened after they were read",
    "lake behind": "the lake may not have the row yet that was read",
    "compacted": "the topic may no longer have the row that was read",
    "older vector": "they may be older than the feature",
}


@dataclass(frozen=True)
class FeatureSkew:
    """The logged values of one feature, compared."""

    feature: str
    view: str
    compared: int
    differs: int  # from what its build holds at its batch, both being there
    only_then: int  # logged, and missing now
    only_now: int  # missing then, and there now
    not_log: int  # other than what the log held at the moment of the read

    @property
    def not_served(self) -> int:
        return self.differs + self.only_then + self.only_now

    def as_json(self) -> dict[str, Any]:
        return {
            "feature": self.feature,
            "view": self.view,
            "compared": self.compared,
            "not_served": self.not_served,
            "differs": self.differs,
            "only_then": self.only_then,
            "only_now": self.only_now,
            "not_log": self.not_log,
        }


@dataclass(frozen=True)
class NotCompared:
    """Predictions of which at least one view cannot be compared, for one reason."""

    reason: str
    predictions: int
    example: str  # the id of one of them

    def as_json(self) -> dict[str, Any]:
        return {"reason": self.reason, "predictions": self.predictions, "example": self.example}


@dataclass(frozen=True)
class SkewedValue:
    """A logged value that is not what its build holds at its batch."""

    prediction_id: str
    feature: str
    view: str
    kind: str  # differs, only then (logged, and missing now), only now
    then: Any
    now: Any
    key: Mapping[str, Any]
    at: datetime
    build: str
    batch: int

    @property
    def command(self) -> str:
        """The command that compares the tiles of this key, as the store holds them now, with its events in the log."""
        keys = " ".join(shlex.quote(f"{name}={value}") for name, value in self.key.items())
        return f"leftfold why {self.view} {keys}"

    def as_json(self) -> dict[str, Any]:
        return {
            "prediction_id": self.prediction_id,
            "feature": self.feature,
            "view": self.view,
            "kind": self.kind,
            "then": self.then,
            "now": self.now,
            "key": dict(self.key),
            "at": self.at.isoformat(),
            "build": self.build,
            "batch": self.batch,
            "command": self.command,
        }


@dataclass(frozen=True)
class Skew:
    """The result of a comparison: what became of every logged value of a scorer's predictions."""

    scorer: str
    topic: str
    predictions: int
    first: datetime | None  # the moments of the first and the last read
    last: datetime | None
    builds: Mapping[str, tuple[str, ...]]  # by view: the builds that predictions name
    features: tuple[FeatureSkew, ...]
    not_compared: tuple[NotCompared, ...]
    values: tuple[SkewedValue, ...]  # the first that differ

    @property
    def verdict(self) -> Verdict:
        return verdict_on(self.features)

    def as_json(self) -> dict[str, Any]:
        return {
            "scorer": self.scorer,
            "topic": self.topic,
            "verdict": self.verdict,
            "predictions": self.predictions,
            "first": None if self.first is None else self.first.isoformat(),
            "last": None if self.last is None else self.last.isoformat(),
            "builds": {view: list(builds) for view, builds in self.builds.items()},
            "features": [feature.as_json() for feature in self.features],
            "not_compared": [one.as_json() for one in self.not_compared],
            "values": [value.as_json() for value in self.values],
        }


def verdict_on(features: Sequence[FeatureSkew]) -> Verdict:
    """Judge the counts. A single value that differs decides. A feature without any compared value proves nothing."""
    if any(feature.not_served for feature in features):
        return "differs"
    return "equal" if features and all(feature.compared for feature in features) else "unknown"


def skew(
    deployment: Deployment,
    scorer: Scorer[Any, Any],
    replay: Replay,
    *,
    sample: int | None = None,
    most: int = MOST,
    session: SparkSession | None = None,
) -> Skew:
    """Compare all predictions of a scorer in a replay, or about `sample` of them: all of some entities."""
    spark = session or deployment.session(lake=True)
    vector = scorer.vector.__leftfold_definition__
    names = view_fields(scorer.vector)
    views = [
        ViewOfVector(
            name,
            names[name].build,
            names[name].batch,
            names[name].found,
            tuple(part for part in vector.parts if part.view == name),
        )
        for name in vector.views
    ]
    predicted = Predicted(replay.frame(spark), scorer.name, vector_keys(scorer.vector), views, sample)
    history = _History(deployment, spark, (predicted.first, predicted.last), predicted.keys)
    try:
        named = [predicted.builds(number) for number in range(len(views))]
        builds = history.builds(dict(zip(vector.views, named, strict=True)))
        result = compared(predicted, builds, _grown(replay, [part.name for part in vector.parts]), most)
    finally:
        history.release()
        predicted.release()
    owners = {part.name: part.view for part in vector.parts}
    return Skew(
        scorer.name,
        scorer.to.name,
        predicted.count,
        from_micros(predicted.first) if predicted.count else None,
        from_micros(predicted.last) if predicted.count else None,
        {name: tuple(found) for name, found in zip(vector.views, named, strict=True)},
        tuple(_feature(name, owners[name], result.features[name]) for name in vector.order if name in owners),
        tuple(NotCompared(name, *result.reasons[name]) for name in REASONS if name in result.reasons),
        tuple(_value(row, deployment.catalog.view(row["view"])) for row in result.rows),
    )


def _feature(name: str, view: str, counted: Compared) -> FeatureSkew:
    return FeatureSkew(
        name, view, counted.compared, counted.differs, counted.only_then, counted.only_now, counted.not_log
    )


def _value(row: Mapping[str, Any], view: DeclaredView) -> SkewedValue:
    definition = view.definition
    keys = definition.by if isinstance(definition, View) else [key.name for key in definition.keys]
    key = {name: row["key"][name] for name in keys if name in row["key"]}
    return SkewedValue(**{**row, "at": from_micros(row["at"]), "key": key})


def _grown(replay: Replay, parts: Iterable[str]) -> frozenset[str]:
    """Return the parts that some version of the topic's schema lacks: its first predictions were made without them."""
    versions = replay.registry.versions(subject_of(replay.source.topics[0])).values()
    known = [{field["name"] for field in json.loads(text)["fields"]} for text in versions]
    return frozenset(part for part in parts if any(part not in names for names in known))


class _BarredError(Exception):
    """A build that cannot be computed again, with the reason."""


class _History:
    """The past of the builds of a vector's views: their definitions, receipts and records.

    `span` are the first and the last moment of the predictions (µs), `keys` the keys that predictions hold.
    """

    def __init__(
        self, deployment: Deployment, session: SparkSession, span: tuple[int, int], keys: Sequence[str]
    ) -> None:
        self._deployment, self._session, self._span, self._keys = deployment, session, span, frozenset(keys)
        self._past = PastReader(deployment, session)

    def release(self) -> None:
        self._past.release()

    def builds(self, named: Mapping[str, Mapping[str, tuple[int, int]]]) -> list[list[BuildPast]]:
        """Return the past of each named build of each view. `named` has the batches that predictions name."""
        found: dict[tuple[str, str], DeclaredView] = {}
        served: dict[tuple[str, str], Served] = {}
        barred: dict[tuple[str, str], str] = {}
        for view, builds in named.items():
            kept = self._kept(view)
            for build, batches in builds.items():
                try:
                    declared = self._as_built(self._deployment.catalog.view(view), build, kept)
                    served[view, build] = self._served(declared, build, batches)
                    found[view, build] = declared
                except _BarredError as reason:
                    barred[view, build] = str(reason)
        logged = {f"{view}/{build}": declared for (view, build), declared in found.items() if not _recorded(declared)}
        self._past.read(logged, self._span)
        return [
            [
                BuildPast(build, barred[view, build])
                if (view, build) in barred
                else self._past_of(found[view, build], build, served[view, build])
                for build in builds
            ]
            for view, builds in named.items()
        ]

    # Definitions -----------------------------------------------------------------------------------------------------

    def _kept(self, view: str) -> dict[str, dict[str, Any]]:
        try:
            return self._deployment.definitions.definitions(view)
        except LogError as error:
            if error.code != "not-applied":  # a project that an older release has applied
                raise
            return {}

    def _as_built(self, declared: DeclaredView, build: str, kept: Mapping[str, Mapping[str, Any]]) -> DeclaredView:
        """Return a view as it was when a build of it was made."""
        definition = self._definition(declared, build, kept)
        if isinstance(definition, Latest) and definition.code is not None:
            if not (isinstance(declared.definition, View) and any(isinstance(sink, Lake) for sink in declared.sinks)):
                raise _BarredError("not recorded")
            reading = declared.reading
            if [topic.name for topic in reading.topics] != [origin.topic for origin in definition.origins]:
                raise _BarredError("declaration gone")
        else:
            reading = read_by(definition, declared, self._deployment.catalog)
        if not {key.name for key in definition.keys} <= self._keys:
            raise _BarredError("declaration gone")
        return replace(declared, definition=definition, reading=reading)

    def _definition(
        self, declared: DeclaredView, build: str, kept: Mapping[str, Mapping[str, Any]]
    ) -> Definition | Latest:
        fingerprint = BuildId.parse(build).fingerprint
        document = kept.get(fingerprint)
        if document is None:
            profile, online = self._deployment.profile, self._deployment.engines.online
            document = manifest_of(online.address, profile.namespace, declared.name, build)
        if document is None:
            today = declared.definition
            if not isinstance(today, View) and today.fingerprint == fingerprint:
                return today
            raise _BarredError("definition gone")
        try:
            definition = definition_in({**document, "build": build})
        except StoreError:  # of a release with another layout
            raise _BarredError("definition gone") from None
        if definition.fingerprint != fingerprint:
            raise _BarredError("definition gone")
        return definition

    # Batches ---------------------------------------------------------------------------------------------------------

    def _served(self, view: DeclaredView, build: str, batches: tuple[int, int]) -> Served:
        held = ReceiptStore(self._deployment.receipts, f"{view.name}/{build}").every()
        table = receipts_table(self._deployment.lake, view.name)
        receipts = with_lake(held, table, build, lambda: (self._session, self._span, batches))
        if not receipts:
            raise _BarredError("receipts gone")
        self._check_topics(view, receipts)
        topics = [topic.name for topic in view.reading.topics]
        served = served_by(receipts, build, topics, None)
        return replace(served, begins=begins_of(held, topics))

    def _check_topics(self, view: DeclaredView, receipts: Sequence[Receipt]) -> None:
        """Refuse a build whose topics were deleted and created again: the log has other records at its offsets."""
        name = self._deployment.profile.topic_name
        there = {t.name: name(t.name, external=t.external) for t in view.reading.topics}
        ids = self._deployment.engines.admin.topic_ids(list(there.values()))
        then = receipts[-1].topics
        if any(topic not in there or ids.get(there[topic]) != id_ for topic, id_ in then.items()):
            raise _BarredError("history gone")

    # Records ---------------------------------------------------------------------------------------------------------

    def _past_of(self, view: DeclaredView, build: str, served: Served) -> BuildPast:
        definition = view.definition
        assert not isinstance(definition, View), "the definition is that of a build"
        if _recorded(view):
            return self._recorded(view, build, served)
        past = logged_past(view, self._past, served)
        made = BuildPast(build, None, past, served.last, served.unknown)
        if isinstance(definition, Latest):
            return replace(made, compacted=True)
        redrives = None
        (*others, topic) = view.reading.topics
        read = self._past.topics[topic.name]
        if not others and not topic.compacted and read.position.redriven:  # else no build takes corrected records
            source = self._deployment.source([topic], view.fields, who=view.name, at=view.source)
            name, end = self._deployment.profile.topic_name(redrive_topic(topic.name)), read.position.redriven
            stream = view.reading.stream
            redrives = redriven_rows(source, name, end, read.records, definition, stream)
        beyond = outside([definition], lambda _: self._known_since(view, served))
        return replace(made, beyond=beyond, redrives=redrives)

    def _recorded(self, view: DeclaredView, build: str, served: Served) -> BuildPast:
        table = f"{self._deployment.lake}/{view.name}"
        definition = view.definition
        assert isinstance(definition, Latest), "the rows of a function"
        if not exists(self._session, f"{table}/_delta_log"):
            return BuildPast(build, "not recorded")
        rows = versions_in_lake(lake_at(self._session, table, version_of(self._session, table)), definition, build)
        past = ViewPast(view.name, definition, rows, rows, served.batches, recorded=True)
        return BuildPast(build, None, past, served.last, served.unknown)

    def _known_since(self, view: DeclaredView, served: Served) -> int | Literal["always"] | None:
        """Return since when (µs) all records that a build ever had are there; None if none are."""
        starts: list[int | None] = []
        for place, topic in enumerate(view.reading.topics):
            read = self._past.topics[topic.name]
            if lacking := gone_from(read, served.begins, place):
                starts.append(oldest_logged(originals(read.records), lacking))
        if not starts:
            return "always"
        return None if None in starts else max(start for start in starts if start is not None)


def _recorded(view: DeclaredView) -> bool:
    return isinstance(view.definition, Latest) and view.definition.code is not None


def gone_from(read: TopicPast, begins: Mapping[int, int], place: int) -> list[int]:
    """Return the partitions of a topic whose first records are gone, although a build had them.

    `place` is the index of the topic among those of the build. A build that began later than the log has nothing to
    miss.
    """
    slots = {p: place * SLOTS_PER_TOPIC + p for p in read.lacking}
    return [p for p, slot in slots.items() if begins.get(slot, 0) < read.position.starts.get(p, 0)]


def read_by(definition: Definition | Latest, declared: DeclaredView, catalog: Catalog) -> Reading:
    """Return the input of a build, as far as it is still declared."""
    topics = tuple(catalog.topics[origin.topic] for origin in definition.origins if origin.topic in catalog.topics)
    if not topics or len(topics) < len(definition.origins):
        raise _BarredError("declaration gone")
    stream = None
    if isinstance(definition, Definition) and definition.stream is not None:
        stream = declared.reading.stream
        if stream is None or stream.fingerprint != definition.stream or stream.topics != topics:
            raise _BarredError("declaration gone")
    event = topics[0].event if stream is None else stream.event
    if any(topic.event is not topics[0].event for topic in topics):
        raise _BarredError("declaration gone")
    if not definition.fields() <= set(fields_of(event)):
        raise _BarredError("declaration gone")
    return Reading(topics, event, stream)
