"""Training sets: for each label the features of a vector at its moment, straight from the log, by the same definition.

Nothing is read before its rows are asked for. What it rests on is frozen then, and written with it, so that it can be
made again exactly. Dying while it is written leaves files without a manifest, which are no training set.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from leftfold import clock
from leftfold.errors import DeclarationError, ProjectError, RunError
from leftfold.fold.definition import Definition
from leftfold.fold.latest import Latest
from leftfold.fold.vector import Part, VectorDefinition
from leftfold.kafka.receipt_log import ReceiptLog
from leftfold.replay.report import Report
from leftfold.replay.training_topics import Past, Position
from leftfold.run.receipts import Books, Receipt
from leftfold.run.supervisor import Engines
from leftfold.settings import Profile
from leftfold.spark.as_of import AsOf
from leftfold.spark.fed import version_of
from leftfold.spark.files import exists
from leftfold.spark.labels import Labels, labels_of
from leftfold.spark.lake import lake_at
from leftfold.spark.latest_as_of import versions_in_lake, versions_of_table
from leftfold.spark.served import AppliedBatch
from leftfold.spark.source import SLOTS_PER_TOPIC
from leftfold.spark.tiles import accepted
from leftfold.spark.training import (
    Assembled,
    ViewPast,
    assembled,
    digest_of,
    kept,
    moments,
    oldest_logged,
    originals,
    outside,
    read_manifest,
    report_on,
    together,
    written,
)
from leftfold.spec.catalog import Catalog, DeclaredView
from leftfold.spec.companions import receipts_topic
from leftfold.spec.free import View
from leftfold.spec.sinks import Lake
from leftfold.spec.vector import Vector
from leftfold.store.builds import followed_builds
from leftfold.store.layout import definition_in

if TYPE_CHECKING:
    from leftfold.spark.session import DataFrame, SparkSession

VERSION = 1
MODES: tuple[AsOf, ...] = ("event", "log", "served")


@dataclass(frozen=True)
class Options:
    """How labels are read, and what counts as known at their moments."""

    time: str
    keys: Mapping[str, str] = field(
        default_factory=dict
    )  # of a view's key the column of the labels, if named otherwise
    as_of: AsOf = "log"
    batch: Mapping[str, str] = field(default_factory=dict)  # of a view the column with the batch that a reader got
    builds: Mapping[str, str] = field(default_factory=dict)  # of a view the build that was served, if not the followed

    def as_json(self) -> dict[str, Any]:
        return {
            "time": self.time,
            "keys": dict(self.keys),
            "as_of": self.as_of,
            "batch": dict(self.batch),
            "builds": dict(self.builds),
        }


@dataclass(frozen=True)
class Project:
    """What a training set needs to know of a project."""

    catalog: Catalog
    profile: Profile
    engines: Engines
    lake: str
    session: Callable[[Any], SparkSession]  # the one of a DataFrame, else the one at hand, else a new one


@dataclass(frozen=True)
class Served:
    """What readers of one view followed, and when each batch of it was there."""

    build: str
    last: int  # the newest batch that is looked at
    batches: tuple[AppliedBatch, ...]
    unknown: tuple[tuple[int, int], ...]  # from, up to (µs): hours of older releases, whose batches are not known


def vector_of(vector: Any, catalog: Catalog) -> VectorDefinition:
    """A vector, or a view as if it were one: all its features under their names. By class, by function or by name."""
    if isinstance(vector, str) and vector in catalog.vectors:
        return catalog.vectors[vector].__leftfold_definition__
    if isinstance(vector, type) and issubclass(vector, Vector):
        return vector.__leftfold_definition__
    if isinstance(vector, str):
        declared = catalog.view(vector)
    elif isinstance(vector, View) or hasattr(vector, "__leftfold_definition__"):
        declared = DeclaredView.of(vector)
    else:
        raise DeclarationError(
            "not-a-vector",
            f"a training set was asked for {vector!r}",
            why="its features are those of a lf.Vector, a lf.Features or a lf.Table",
            fix="pass such a class, or its name",
        )
    if isinstance(declared.definition, View):
        raise DeclarationError(
            "not-a-vector",
            f"a training set was asked for the function {declared.name}",
            why="which columns it has, only a vector says",
            fix=f"declare a lf.Vector with {declared.name}.column(...) and pass that",
            source=declared.source,
        )
    names = declared.definition.visible
    return VectorDefinition(declared.name, tuple(Part(n, declared.name, n) for n in names), (), names)


class TrainingSet:
    """Rows of `frame` are the labels, each once, in all their columns, and beside them the features.

    Use it in a `with` block, or call `release()`: Spark keeps the records that it was made of.
    """

    def __init__(
        self,
        labels: Any,
        vector: VectorDefinition,
        options: Options,
        project: Project,
        *,
        frozen: Mapping[str, Any] | None = None,
    ) -> None:
        self.vector = vector
        self.options = options
        self._given = labels
        self._project = project
        self._frozen = frozen
        self._views = {name: project.catalog.view(name) for name in vector.views}
        _check_options(options, self._views)

    # What people ask for ---------------------------------------------------------------------------------------

    @property
    def frame(self) -> DataFrame:
        """A Spark DataFrame; its rows are in no order."""
        return self._assembled.frame(self.options.as_of)

    def to_pandas(self) -> Any:
        """All of it in this process."""
        return self.frame.toPandas()

    def write(self, directory: str) -> dict[str, Any]:
        """Parquet files in a new directory, and a manifest of what they rest on, which is returned."""
        if exists(self._session, directory):
            raise RunError(
                "directory-taken",
                f"{directory} exists already",
                why="a training set is written once, into a directory of its own",
                fix="choose another directory, or delete that one first",
            )
        manifest = written(self.frame, directory, self._described)
        _tag_mlflow(manifest, directory)
        return manifest

    @property
    def expected(self) -> str | None:
        """Of one that is made again, the digest that it had."""
        return None if self._frozen is None else str(self._frozen["digest"])

    def digest(self) -> str:
        """Of its rows and values, whatever their order: of equal sets equal."""
        return digest_of(self.frame)

    def report(self) -> Report:
        """What is missing, what the history no longer has, and what another rule of time would have made different."""
        served = self._served_anyway()
        modes = tuple(mode for mode in MODES if mode != "served" or served)
        made = assembled(self._labels, self.vector, self._pasts(served), modes, self._read)
        windows = {n: d for n, v in self._views.items() if isinstance(d := v.definition, Definition)}
        unknown = [span for view in served.values() for span in view.unknown]
        counts = report_on(made, self.options.as_of, outside(windows.values(), self._known_since()), unknown)
        return Report.of(counts, self.options.as_of, modes, tuple(made.features[self.options.as_of]))

    def release(self) -> None:
        """Let Spark forget the records that it was made of; asked for again, they are read again."""
        if "_past" in self.__dict__:
            self._past.release()
        if "_labels" in self.__dict__:
            self._labels.frame.unpersist()
        for name in ("_labels", "_past", "_assembled", "_known"):
            self.__dict__.pop(name, None)

    def __enter__(self) -> TrainingSet:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    # What it rests on ------------------------------------------------------------------------------------------

    @cached_property
    def _session(self) -> SparkSession:
        return self._project.session(self._given)

    @cached_property
    def _labels(self) -> Labels:
        given = self._given
        if self._frozen is not None:  # its own files hold the labels
            given = self._session.read.parquet(str(given)).select(*(f"`{n}`" for n in self._frozen["label_columns"]))
        made = [part.name for part in self.vector.parts]
        labels = labels_of(given, self._session, time=self.options.time, keys=self.options.keys, made=made)
        # Kept, too: they are looked at several times, and may be another's query that gives other rows each time.
        return replace(labels, frame=kept(labels.frame))

    @cached_property
    def _past(self) -> Past:
        _, first, last = moments(self._labels)
        now = clock.now_us()
        past = Past(self._project.profile, self._project.engines, self._project.lake, self._session)
        frozen = None
        if self._frozen is not None:
            frozen = {name: Position.from_json(p) for name, p in self._frozen["topics"].items()}
        logged = {name: view for name, view in self._views.items() if not isinstance(view.definition, View)}
        past.read(logged, (now if first is None else first, now if last is None else last), frozen)
        return past

    @cached_property
    def _assembled(self) -> Assembled:
        served = self._served if self.options.as_of == "served" else {}
        return assembled(self._labels, self.vector, self._pasts(served), [self.options.as_of], self._read)

    @property
    def _read(self) -> dict[str, Any]:
        return {view: self._labels.batch(column) for view, column in self.options.batch.items()}

    def _pasts(self, served: Mapping[str, Served]) -> dict[str, ViewPast]:
        return {name: self._past_of(view, served.get(name)) for name, view in self._views.items()}

    def _past_of(self, view: DeclaredView, served: Served | None) -> ViewPast:
        batches = () if served is None else served.batches
        definition = view.definition
        if isinstance(definition, View):
            return self._recorded(view, batches)
        records = together([self._past.topics[topic.name].records for topic in view.reading.topics])
        if isinstance(definition, Latest):
            rows = versions_of_table(records, definition)
            return ViewPast(view.name, definition, rows, rows, batches)
        stream = view.reading.stream
        rows, unredriven = (accepted(some, definition, stream) for some in (records, originals(records)))
        return ViewPast(view.name, definition, rows, unredriven, batches)

    def _recorded(self, view: DeclaredView, batches: tuple[AppliedBatch, ...]) -> ViewPast:
        """A free view by the rows that it wrote: what its function would have made of the past, only batches tell."""
        if not any(isinstance(sink, Lake) for sink in view.sinks):
            raise DeclarationError(
                "view-without-history",
                f"{view.name} is a function, and its rows are not recorded",
                why="a free view enters a training set only by what it wrote at the time, which its lake keeps",
                fix=f"declare {view.name} with to=[lf.Online(), lf.Lake()]; from then on its rows are recorded",
                source=view.source,
            )
        build, definition = self._build(view)
        recorded = lake_at(self._session, self._table(view), self._lakes[view.name])
        rows = versions_in_lake(recorded, definition, build)
        return ViewPast(view.name, definition, rows, rows, batches, recorded=True)

    @cached_property
    def _lakes(self) -> dict[str, int]:
        """The version of each lake that is read."""
        if self._frozen is not None:
            return dict(self._frozen["lakes"])
        free = [view for view in self._views.values() if isinstance(view.definition, View)]
        return {view.name: version_of(self._session, self._table(view)) for view in free}

    def _table(self, view: DeclaredView) -> str:
        return f"{self._project.lake}/{view.name}"

    # What was served -------------------------------------------------------------------------------------------

    @cached_property
    def _builds(self) -> dict[str, tuple[str, Any]]:
        """By view the build that is asked about, and what it means."""
        online = self._project.engines.online.url.get_secret_value()
        found = followed_builds(online, self._project.profile.namespace, self._views)
        builds = {b.view: (b.id, definition_in({"build": b.id, **b.manifest})) for b in found}
        if self._frozen is not None:
            frozen = {n: v["build"] for n, v in self._frozen["views"].items() if v["build"]}
        else:
            frozen = dict(self.options.builds)
        return builds | {name: (build, builds.get(name, (None, None))[1]) for name, build in frozen.items()}

    def _build(self, view: DeclaredView) -> tuple[str, Any]:
        if view.name not in self._builds:
            raise RunError(
                "nothing-served",
                f"the store has no build of {view.name}",
                why="what readers got is known from the receipts of the build that they followed",
                fix=f'leftfold run builds it; or take as_of="log", or name an earlier build={{{view.name!r}: ...}}',
            )
        return self._builds[view.name]

    @cached_property
    def _served(self) -> dict[str, Served]:
        return {name: self._served_of(view) for name, view in self._views.items()}

    def _served_anyway(self) -> dict[str, Served]:
        """For a comparison: nothing, if it is not known of all views."""
        if self.options.as_of != "served" and any(name not in self._builds for name in self._views):
            return {}
        return self._served

    def _served_of(self, view: DeclaredView) -> Served:
        build, _ = self._build(view)
        project = self._project
        log = ReceiptLog(project.engines.kafka, project.profile.topic_name(receipts_topic()))
        receipts = Books(log, f"{view.name}/{build}").read()
        last = None if self._frozen is None else self._frozen["views"][view.name]["last"]
        if not receipts:
            raise RunError(
                "nothing-served",
                f"build {build} of {view.name} has no receipts",
                why="it never applied a batch, or this namespace never had such a build",
                fix="name a build that readers followed: leftfold status shows the one they follow now",
            )
        return served_by(receipts, build, [t.name for t in view.reading.topics], last)

    # What the report says of the history ------------------------------------------------------------------------

    @cached_property
    def _known(self) -> dict[str, int | None]:
        """Of each topic whose head is gone, since when the log has all (µs); None if nothing is left of it."""
        lacking = {name: topic for name, topic in self._past.topics.items() if topic.lacking}
        return {name: oldest_logged(topic.records, topic.lacking) for name, topic in lacking.items()}

    def _known_since(self) -> Callable[[Definition], int | Literal["always"] | None]:
        def since(definition: Definition) -> int | Literal["always"] | None:
            found = [self._known[origin.topic] for origin in definition.origins if origin.topic in self._known]
            if not found:
                return "always"
            return None if None in found else max(moment for moment in found if moment is not None)

        return since

    def _described(self, stored: DataFrame) -> dict[str, Any]:
        digest = digest_of(stored)
        served = self._served if self.options.as_of == "served" else {}
        return {
            "version": VERSION,
            "release": importlib.metadata.version("leftfold"),
            "vector": self.vector.as_json(),
            "options": self.options.as_json(),
            "views": {
                name: {
                    "fingerprint": view.fingerprint,
                    "build": served[name].build if name in served else self._free_build(view),
                    "last": served[name].last if name in served else None,
                }
                for name, view in self._views.items()
            },
            "topics": {name: topic.position.as_json() for name, topic in self._past.topics.items()},
            "lakes": self._lakes,
            "label_columns": list(self._labels.names),
            "features": [part.name for part in self.vector.parts],
            "rows": int(digest.partition("-")[0]),
            "digest": digest,
        }

    def _free_build(self, view: DeclaredView) -> str | None:
        return self._build(view)[0] if isinstance(view.definition, View) else None


def served_by(receipts: Iterable[Receipt], build: str, topics: list[str], last: int | None) -> Served:
    """When each batch was there, up to `last`, if it is given."""
    batches: list[AppliedBatch] = []
    unknown: list[tuple[int, int]] = []
    before = 0
    for receipt in receipts:
        found = receipt.batches()
        if found is None:
            # When its batches came is not known, only when all of them were there.
            unknown.append((before, receipt.applied["online"]))
            one = replace(receipt, first=receipt.last)
            found = one.batches() or []
        for batch in found:
            ends = {
                topics.index(topic) * SLOTS_PER_TOPIC + partition: end
                for topic, parts in batch.ends.items()
                for partition, end in parts.items()
            }
            # A batch that ran again has the moment of its last receipt; none can be there before the one before it.
            before = max(before, batch.online)
            if last is None or batch.batch <= last:
                batches.append(AppliedBatch(batch.batch, before, ends))
    return Served(build, batches[-1].batch, tuple(batches), tuple(unknown))


def again(directory: str, project: Project) -> TrainingSet:
    """The training set that lies there, to be made once more from the same offsets."""
    manifest = read_manifest(project.session(None), directory)
    if manifest is None or manifest.get("version") != VERSION:
        raise ProjectError(
            "no-training-set",
            f"{directory} holds no training set that this release knows",
            why="it has no manifest: it is something else, or whoever wrote it died before it was whole"
            if manifest is None
            else f"its manifest is of version {manifest.get('version')}, this release reads {VERSION}",
            fix="name a directory that leftfold training-set --out has written to its end",
        )
    vector = VectorDefinition.from_json(manifest["vector"])
    for name, told in manifest["views"].items():
        declared = project.catalog.view(name)
        if declared.fingerprint != told["fingerprint"]:
            raise ProjectError(
                "definition-changed",
                f"{name} is declared differently from when {directory} was made",
                why=f"its meaning was {told['fingerprint']}, and is {declared.fingerprint} now: values would differ",
                fix="bring back the declarations of that time; or make a new training set",
                source=declared.source,
            )
    return TrainingSet(directory, vector, Options(**manifest["options"]), project, frozen=manifest)


def _check_options(options: Options, views: Mapping[str, DeclaredView]) -> None:
    if options.as_of not in MODES:
        raise DeclarationError(
            "bad-as-of",
            f"a training set was asked for as of {options.as_of!r}",
            why='"event" takes all that happened before a label, "log" what was logged by then, "served" what readers '
            "of the store could get",
            fix='choose one of as_of="event", "log" or "served"',
        )
    for option, named in (("batch", options.batch), ("build", options.builds)):
        if unknown := [name for name in named if name not in views]:
            raise DeclarationError(
                "unknown-view",
                f"{option}= names {unknown[0]!r}, which is no view of this training set",
                why=f"it is made of {', '.join(views)}",
                fix="name one of these",
            )


def _tag_mlflow(manifest: Mapping[str, Any], directory: str) -> None:
    """On the run that is active, if MLflow is there and one is: from which log positions a model was trained."""
    if importlib.util.find_spec("mlflow") is None:
        return
    mlflow = importlib.import_module("mlflow")
    if mlflow.active_run() is None:
        return
    mlflow.set_tags(
        {
            "leftfold.training_set": directory,
            "leftfold.vector": manifest["vector"]["vector"],
            "leftfold.as_of": manifest["options"]["as_of"],
            "leftfold.rows": str(manifest["rows"]),
            "leftfold.digest": manifest["digest"],
            **{f"leftfold.view.{name}": view["fingerprint"] for name, view in manifest["views"].items()},
            **{
                f"leftfold.topic.{name}": ",".join(
                    f"{p}:{topic['starts'][p]}-{end}" for p, end in topic["ends"].items()
                )
                for name, topic in manifest["topics"].items()
            },
        }
    )
