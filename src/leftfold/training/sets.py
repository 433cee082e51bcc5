"""Training sets: the features of a vector at the moment of each label (a point-in-time join).

Features are computed from the log, by the same definition as online. Nothing is read before rows are asked for. Then
offsets, schemas and builds are frozen, and written with the set, so that exactly the same set can be made again. A
process that dies while it writes leaves files without a manifest; these do not count as a training set.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from leftfold import clock
from leftfold.declare.catalog import Catalog, DeclaredView
from leftfold.declare.companions import receipts_table
from leftfold.declare.free import View
from leftfold.declare.sinks import Lake
from leftfold.declare.vector import Vector
from leftfold.errors import DeclarationError, ProjectError, RunError
from leftfold.fold.definition import Definition
from leftfold.fold.durations import text
from leftfold.fold.expressions import from_micros
from leftfold.fold.latest import Latest
from leftfold.fold.profiles import as_document
from leftfold.fold.vector import Part, VectorDefinition
from leftfold.run.deployment import Deployment
from leftfold.run.receipt_store import DETAILS_KEPT, ReceiptStore
from leftfold.run.receipts import Applied, Receipt, known_history
from leftfold.spark.files import absolute
from leftfold.spark.quality.profiles import profiles_of
from leftfold.spark.sinks import receipts as receipt_table
from leftfold.spark.sinks.delta import version_of
from leftfold.spark.sinks.lake import lake_at
from leftfold.spark.sinks.receipts import ReceiptRow
from leftfold.spark.source import SLOTS_PER_TOPIC
from leftfold.spark.training.as_of import AsOf
from leftfold.spark.training.assemble import (
    Assembled,
    LoggedPart,
    ViewPast,
    among,
    assembled,
    batch_span,
    cached,
    check_free,
    count_logged,
    digest_of,
    logged_parts,
    moments,
    oldest_logged,
    originals,
    outside,
    read_manifest,
    report_on,
    together,
    written,
)
from leftfold.spark.training.labels import Labels, as_logged, labels_of
from leftfold.spark.training.latest_as_of import versions_in_lake, versions_of_table
from leftfold.spark.training.served import AppliedBatch, Unknown
from leftfold.spark.views.tiles import accepted
from leftfold.store.builds import followed_builds
from leftfold.store.layout import definition_in
from leftfold.training.report import Report
from leftfold.training.topics import FrozenPosition, PastReader

if TYPE_CHECKING:
    from leftfold.spark.session import DataFrame, SparkSession

VERSION = 1
MODES: tuple[AsOf, ...] = ("event", "log", "served")


@dataclass(frozen=True)
class TrainingOptions:
    """Options of a training set: how labels are read, and what counts as known at their moments."""

    time: str
    keys: Mapping[str, str] = field(default_factory=dict)  # by key of a view: the label column, if named otherwise
    as_of: AsOf = "log"
    batch: Mapping[str, str] = field(default_factory=dict)  # by view: the label column with the batch that was read
    builds: Mapping[str, str] = field(default_factory=dict)  # by view: the build that was served, if not the current
    logged: bool = False  # take features that were logged with a prediction, where the definition is equal

    def as_json(self) -> dict[str, Any]:
        return {
            "time": self.time,
            "keys": dict(self.keys),
            "as_of": self.as_of,
            "batch": dict(self.batch),
            "builds": dict(self.builds),
            "logged": self.logged,
        }


@dataclass(frozen=True)
class Served:
    """The build that readers of one view followed, and when each of its batches became readable."""

    build: str
    last: int  # the newest batch that is taken into account
    batches: tuple[AppliedBatch, ...]
    unknown: tuple[Unknown, ...]  # groups of batches for which only the time of the last is known
    begins: Mapping[int, int] = field(default_factory=dict)  # by slot: where the build began to read


def vector_of(vector: Any, catalog: Catalog) -> VectorDefinition:
    """Return the definition of a vector, which is given as a class or by name.

    A view can be given instead, also by class or name: it counts as a vector of all its features under their names.
    A free view (a function) is refused, because only a vector says which columns it has.
    """
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
    """A training set. `frame` has one row for each label, with all columns of the labels and then the features.

    Use it in a `with` block, or call `release()`: Spark keeps the records that it was made from.
    """

    def __init__(
        self,
        labels: Any,
        vector: VectorDefinition,
        options: TrainingOptions,
        deployment: Deployment,
        *,
        frozen: Mapping[str, Any] | None = None,
    ) -> None:
        self.vector = vector
        self.options = options
        self._given = labels
        self._deployment = deployment
        self._frozen = frozen
        self._views = {name: deployment.catalog.view(name) for name in vector.views}
        _check_options(options, self._views)

    # For users -------------------------------------------------------------------------------------------------

    @property
    def frame(self) -> DataFrame:
        """The rows as a Spark DataFrame, in no particular order."""
        return self._assembled.frame(self.options.as_of)

    def to_pandas(self) -> Any:
        """Return all rows as a pandas DataFrame, in the memory of this process."""
        return self.frame.toPandas()

    def write(self, directory: str) -> dict[str, Any]:
        """Write Parquet files to a new directory, with a manifest of what they were made from. Return the manifest."""
        check_free(self.session, directory, what="a training set")
        manifest = written(self.frame, directory, self.described)
        _tag_mlflow(manifest, directory)
        return manifest

    @property
    def expected(self) -> str | None:
        """The digest that the set had when it was first made; None if this is not a repetition."""
        return None if self._frozen is None else str(self._frozen["digest"])

    def digest(self) -> str:
        """Return a digest of all rows and values, independent of their order. Equal sets have equal digests."""
        return digest_of(self.frame)

    def report(self) -> Report:
        """Count missing values, labels beyond the history, and values that another rule of time would change."""
        served = self._served_anyway()
        modes = tuple(mode for mode in MODES if mode != "served" or served)
        table = assembled(self._labels, self.vector, self._pasts(served), modes, self._read, self._logged)
        windows = {n: d for n, v in self._views.items() if isinstance(d := v.definition, Definition)}
        unknown = [(span.since, span.until) for view in served.values() for span in view.unknown]
        counts = report_on(table, self.options.as_of, outside(windows.values(), self._known_since()), unknown)
        return Report.of(counts, self.options.as_of, modes, tuple(table.features[self.options.as_of]))

    def release(self) -> None:
        """Let Spark forget the records that the set was made from. If rows are asked for later, they are read again."""
        if "_past" in self.__dict__:
            self._past.release()
        if "_labels" in self.__dict__:
            self._labels.frame.unpersist()
        for name in ("_labels", "_span", "_past", "_assembled", "_known"):
            self.__dict__.pop(name, None)

    def __enter__(self) -> TrainingSet:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    # For those who add columns to the rows -------------------------------------------------------------------------

    def frame_with_moment(self, moment: str) -> DataFrame:
        """The rows, with one column more: the moment of each label, in µs."""
        return self._assembled.frame(self.options.as_of, moment)

    @property
    def label_names(self) -> tuple[str, ...]:
        return self._labels.names

    # Sources of the set ----------------------------------------------------------------------------------------

    @cached_property
    def session(self) -> SparkSession:
        return self._deployment.session(self._given)

    @cached_property
    def _labels(self) -> Labels:
        raw = self._given
        if self._frozen is not None:  # the files of the first set hold the labels
            logged = [part for part in self.vector.parts if part.name in self._frozen.get("logged", {})]
            kept = (*self._frozen["label_columns"], *(part.name for part in logged))
            raw = as_logged(
                self.session.read.parquet(absolute(self.session, str(raw))).select(*(f"`{n}`" for n in kept)), logged
            )
        features = [part.name for part in self.vector.parts]
        labels = labels_of(raw, self.session, time=self.options.time, keys=self.options.keys, made=features)
        # Labels are kept too: they are read several times, and a query behind them could give other rows each time.
        return replace(labels, frame=cached(labels.frame))

    @cached_property
    def _span(self) -> tuple[int, int]:
        """The first and the last moment of the labels (µs); now, if no label has a moment."""
        _, first, last = moments(self._labels)
        now = clock.now_us()
        return now if first is None else first, now if last is None else last

    @cached_property
    def _past(self) -> PastReader:
        past = PastReader(self._deployment, self.session)
        frozen = None
        if self._frozen is not None:
            frozen = {name: FrozenPosition.from_json(p) for name, p in self._frozen["topics"].items()}
        logged = {name: view for name, view in self._views.items() if not isinstance(view.definition, View)}
        past.read(logged, self._span, frozen)
        return past

    @cached_property
    def _assembled(self) -> Assembled:
        served = self._served if self.options.as_of == "served" else {}
        pasts = self._pasts(served)
        return assembled(self._labels, self.vector, pasts, [self.options.as_of], self._read, self._logged)

    @property
    def _logged(self) -> dict[str, LoggedPart]:
        """The features that labels hold as they were served, by name."""
        if not self.options.logged:
            return {}
        return logged_parts(self._labels, self.vector, {name: view.fingerprint for name, view in self._views.items()})

    @property
    def _read(self) -> dict[str, Any]:
        return {view: self._labels.batch(column) for view, column in self.options.batch.items()}

    def _pasts(self, served: Mapping[str, Served]) -> dict[str, ViewPast]:
        return {name: self._past_of(view, served.get(name)) for name, view in self._views.items()}

    def _past_of(self, view: DeclaredView, served: Served | None) -> ViewPast:
        if isinstance(view.definition, View):
            return self._recorded(view, () if served is None else served.batches)
        return logged_past(view, self._past, served)

    def _recorded(self, view: DeclaredView, batches: tuple[AppliedBatch, ...]) -> ViewPast:
        """Return the past of a free view, from the rows that it wrote to its lake.

        They cannot be recomputed from the log: what its function makes of records depends on their batches.
        """
        if not any(isinstance(sink, Lake) for sink in view.sinks):
            raise DeclarationError(
                "view-without-history",
                f"{view.name} is a function, and its rows are not recorded",
                why="a free view enters a training set only by what it wrote at the time, which its lake keeps",
                fix=f"declare {view.name} with to=[lf.Online(), lf.Lake()]; from then on its rows are recorded",
                source=view.source,
            )
        build, definition = self._build(view)
        recorded = lake_at(self.session, self._table(view), self._lakes[view.name])
        rows = versions_in_lake(recorded, definition, build)
        return ViewPast(view.name, definition, rows, rows, batches, recorded=True)

    @cached_property
    def _lakes(self) -> dict[str, int]:
        """By free view: the version of its lake's table that is read."""
        if self._frozen is not None:
            return dict(self._frozen["lakes"])
        free = [view for view in self._views.values() if isinstance(view.definition, View)]
        return {view.name: version_of(self.session, self._table(view)) for view in free}

    def _table(self, view: DeclaredView) -> str:
        return f"{self._deployment.lake}/{view.name}"

    # Served batches --------------------------------------------------------------------------------------------

    @cached_property
    def _builds(self) -> dict[str, tuple[str, Any]]:
        """By view: the build whose batches count as served, and the definition of the build that readers follow now.

        The build is the one that the manifest or the options name, else the one that readers follow. The definition is
        None if readers follow none.
        """
        online = self._deployment.engines.online.address
        followed = followed_builds(online, self._deployment.profile.namespace, self._views)
        builds = {b.view: (b.id, definition_in({"build": b.id, **b.manifest})) for b in followed}
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
        """Return the served batches for the report, or {} if some view has no build and the set does not need them."""
        if self.options.as_of != "served" and any(name not in self._builds for name in self._views):
            return {}
        return self._served

    def _served_of(self, view: DeclaredView) -> Served:
        build, _ = self._build(view)
        receipts, begins = self._receipts(view, build)
        last = None if self._frozen is None else self._frozen["views"][view.name]["last"]
        if not receipts:
            raise RunError(
                "nothing-served",
                f"build {build} of {view.name} has no receipts",
                why="it never applied a batch, or this namespace never had such a build",
                fix="name a build that readers followed: leftfold status shows the one they follow now",
            )
        served = served_by(receipts, build, [t.name for t in view.reading.topics], last)
        unknown = tuple(u for u in served.unknown if u.meets(self._span, self._batches(view)))
        if self.options.as_of == "served" and unknown:
            check_known(view, build, unknown, among(self._labels, unknown, self._read.get(view.name)))
        return replace(served, unknown=unknown, begins=begins)

    def _batches(self, view: DeclaredView) -> tuple[int, int] | None:
        """Return the first and the last batch of the view that labels name; None if they name none."""
        read = self._read.get(view.name)
        return None if read is None else batch_span(self._labels, read)

    def _receipts(self, view: DeclaredView, build: str) -> tuple[list[Receipt], dict[int, int]]:
        """Return the receipts of a build that the labels need, and where the build began."""
        held = ReceiptStore(self._deployment.receipts, f"{view.name}/{build}").every()
        begins = begins_of(held, [topic.name for topic in view.reading.topics])
        table = receipts_table(self._deployment.lake, view.name)
        return with_lake(held, table, build, lambda: (self.session, self._span, self._batches(view))), begins

    # History in the report --------------------------------------------------------------------------------------

    @cached_property
    def _known(self) -> dict[str, int | None]:
        """By topic whose oldest records are gone: the moment (µs) since which all records are there.

        The value is None if nothing is left of the topic.
        """
        lacking = {name: topic for name, topic in self._past.topics.items() if topic.lacking}
        return {name: oldest_logged(topic.records, topic.lacking) for name, topic in lacking.items()}

    def _known_since(self) -> Callable[[Definition], int | Literal["always"] | None]:
        def since(definition: Definition) -> int | Literal["always"] | None:
            starts = [self._known[origin.topic] for origin in definition.origins if origin.topic in self._known]
            if not starts:
                return "always"
            return None if None in starts else max(moment for moment in starts if moment is not None)

        return since

    def described(self, stored: DataFrame) -> dict[str, Any]:
        """Return the manifest of rows that were written: what they were made from, and their digest."""
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
            # By feature: for how many rows it was taken from the prediction, and not computed.
            "logged": count_logged(self._labels, self._logged),
            "rows": int(digest.partition("-")[0]),
            "digest": digest,
            "profile": as_document(profiles_of(stored, self._profiled)),
        }

    @property
    def _profiled(self) -> list[str]:
        """The columns whose distribution is kept: features, requests, and what scorers answer."""
        scorers = self._deployment.catalog.scorers.values()
        answers = [name for scorer in scorers for name in scorer.prediction.__leftfold_answers__]
        return list(dict.fromkeys([*self.vector.order, *answers]))

    def _free_build(self, view: DeclaredView) -> str | None:
        return self._build(view)[0] if isinstance(view.definition, View) else None


def with_lake(
    held: Sequence[Receipt],
    table: str,
    build: str,
    asked: Callable[[], tuple[SparkSession, tuple[int, int], tuple[int, int] | None]],
) -> list[Receipt]:
    """Return the receipts of a build: those that the topic holds, and those in the lake that labels need.

    `asked` is called if some may be in the lake. It gives the session, the moments of the labels (µs), and the batches
    that labels name, if they name any: the first and the last of each.
    """
    receipts = list(held)
    oldest = min((receipt.first for receipt in receipts if receipt.known), default=None)
    if receipts and oldest != 0:
        session, span, batches = asked()
        moved = [r for r in receipt_table.rows_of(session, table, build) if oldest is None or r.last < oldest]
        if needed := needed_of(moved, span, batches):
            first, last = needed[0].first, needed[-1].last
            documents = receipt_table.documents(session, table, build, first, last)
            receipts += [Receipt.from_json(document) for document in documents]
    return known_history(receipts)


def begins_of(held: Iterable[Receipt], topics: Sequence[str]) -> dict[int, int]:
    """Return the offsets at which a build began to read, by slot. `held` are the receipts that the topic holds.

    One of them reaches from batch 0, so the first that has a partition says where it began. If none does, the result is
    empty.
    """
    receipts = sorted(held, key=lambda receipt: receipt.first)
    begins: dict[int, int] = {}
    for receipt in receipts if receipts and receipts[0].first == 0 else ():
        for topic, parts in receipt.ranges.items():  # a partition may have been added in between
            for partition, (start, _) in parts.items():
                begins.setdefault(topics.index(topic) * SLOTS_PER_TOPIC + partition, start)
    return begins


def logged_past(view: DeclaredView, past: PastReader, served: Served | None) -> ViewPast:
    """Return the past of a view that is computed from the log, as its build read it if `served` is given."""
    batches, begins = ((), {}) if served is None else (served.batches, served.begins)
    records = together([past.topics[topic.name].records for topic in view.reading.topics])
    definition = view.definition
    if isinstance(definition, Latest):
        rows = versions_of_table(records, definition)
        return ViewPast(view.name, definition, rows, rows, batches, begins=begins)
    assert isinstance(definition, Definition), "a free view is recorded in its lake"
    stream = view.reading.stream
    rows, unredriven = (accepted(some, definition, stream) for some in (records, originals(records)))
    return ViewPast(view.name, definition, rows, unredriven, batches, begins=begins)


def served_by(receipts: Iterable[Receipt], build: str, topics: list[str], last: int | None) -> Served:
    """Return when each batch of a build became readable, up to the batch `last` if it is given.

    `receipts` come from `known_history`, and may have gaps. The batches of a gap count as one.
    """
    batches: list[AppliedBatch] = []
    unknown: list[Unknown] = []
    before, following = 0, 0
    for receipt in receipts:
        applied = receipt.batches()
        if applied is None:
            # It is not known when each of its batches was applied, only when all of them were.
            unknown.append(Unknown(before, receipt.applied["online"], following, receipt.last))
            applied = [Applied(receipt.last, receipt.applied["online"], receipt.ends)]
        elif receipt.first > following:  # the missing batches end where this receipt begins
            starts = {t: {p: start for p, (start, _) in parts.items()} for t, parts in receipt.ranges.items()}
            unknown.append(Unknown(before, applied[0].online, following, receipt.first - 1))
            applied = [Applied(receipt.first - 1, applied[0].online, starts), *applied]
        for batch in applied:
            ends = {
                topics.index(topic) * SLOTS_PER_TOPIC + partition: end
                for topic, parts in batch.ends.items()
                for partition, end in parts.items()
            }
            # A batch that ran again has the time of its last run. No batch can be readable before its predecessor.
            before = max(before, batch.online)
            # Several batches may count as one here, with `last` among them. No label has seen those after `last`.
            if last is None or following <= last:
                number = batch.batch if last is None else min(batch.batch, last)
                batches.append(AppliedBatch(number, before, ends))
            following = batch.batch + 1
    return Served(build, batches[-1].batch, tuple(batches), tuple(unknown))


def needed_of(moved: Iterable[ReceiptRow], span: tuple[int, int], batches: tuple[int, int] | None) -> list[ReceiptRow]:
    """Return the receipts in the lake that the labels need.

    These are the receipts for the moments of the labels (`span`, µs) and for the batches that labels name.
    """
    needed, since = [], 0
    for row in moved:
        if Unknown(since, row.online, row.first, row.last).meets(span, batches):
            needed.append(row)
        since = row.online
    return needed


def check_known(view: DeclaredView, build: str, unknown: Iterable[Unknown], labels: int) -> None:
    """Raise if there are labels for which the served batch is not known. `labels` is their number."""
    if labels:
        until = from_micros(max(span.until for span in unknown)).isoformat(timespec="seconds")
        raise RunError(
            "served-not-known",
            f"what readers of {view.name} got is not known for {labels} of the labels",
            why=f"build {build} no longer tells, or never did, when each of its batches before {until} was applied: "
            f"receipts keep that for {text(DETAILS_KEPT)}, and for ever if the view has a lake",
            state="nothing was written",
            fix=f'leave out labels before {until}, or take as_of="log"; a lake keeps it from now on: '
            "to=[lf.Online(), lf.Lake()]",
            source=view.source,
        )


def manifest_of(directory: str, session: SparkSession) -> dict[str, Any]:
    """Return the manifest of a training set."""
    manifest = read_manifest(session, directory)
    if manifest is None or manifest.get("version") != VERSION:
        raise ProjectError(
            "no-training-set",
            f"{directory} holds no training set that this release knows",
            why="it has no manifest: it is something else, or whoever wrote it died before it was whole"
            if manifest is None
            else f"its manifest is of version {manifest.get('version')}, this release reads {VERSION}",
            fix="name a directory that leftfold training-set --out has written to its end",
        )
    return manifest


def again(directory: str, deployment: Deployment) -> TrainingSet:
    """Return the training set of a directory, to be made again from the same offsets."""
    manifest = manifest_of(directory, deployment.session(None))
    vector = VectorDefinition.from_json(manifest["vector"])
    for name, frozen in manifest["views"].items():
        declared = deployment.catalog.view(name)
        if declared.fingerprint != frozen["fingerprint"]:
            raise ProjectError(
                "definition-changed",
                f"{name} is declared differently from when {directory} was made",
                why=f"its meaning was {frozen['fingerprint']}, and is {declared.fingerprint} now: values would differ",
                fix="bring back the declarations of that time; or make a new training set",
                source=declared.source,
            )
    return TrainingSet(directory, vector, TrainingOptions(**manifest["options"]), deployment, frozen=manifest)


def _check_options(options: TrainingOptions, views: Mapping[str, DeclaredView]) -> None:
    if options.as_of not in MODES:
        raise DeclarationError(
            "bad-as-of",
            f"a training set was asked for as of {options.as_of!r}",
            why='"event" takes all that happened before a label, "log" what was logged by then, "served" what readers '
            "of the store could get",
            fix='choose one of as_of="event", "log" or "served"',
        )
    if options.logged and options.as_of != "served":
        raise DeclarationError(
            "logged-not-served",
            f'a training set as of "{options.as_of}" was asked for logged features',
            why="a prediction logs what its reader got, and another rule of time gives other values",
            fix='take as_of="served", or leave logged= out',
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
    """Tag the active MLflow run with the log positions that a model is trained from.

    Do nothing if MLflow is not installed or no run is active.
    """
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
