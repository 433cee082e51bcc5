"""A training set that Spark makes: for any number of labels and records, and for every kind of view."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from leftfold import clock
from leftfold.declare.catalog import DeclaredView
from leftfold.declare.free import View
from leftfold.declare.sinks import Lake
from leftfold.errors import DeclarationError
from leftfold.fold.definition import Definition
from leftfold.fold.known import MODES, AppliedBatch, AsOf, Unknown
from leftfold.fold.latest import Latest
from leftfold.fold.vector import VectorDefinition
from leftfold.run.deployment import Deployment
from leftfold.spark.files import absolute
from leftfold.spark.quality.profiles import profiles_of
from leftfold.spark.sinks.delta import version_of
from leftfold.spark.sinks.lake import lake_at
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
    report_on,
    together,
    written,
)
from leftfold.spark.training.labels import Labels, as_logged, labels_of
from leftfold.spark.training.latest_as_of import versions_in_lake, versions_of_table
from leftfold.spark.views.tiles import accepted
from leftfold.training.manifest import FILE, Basis, StoredRows
from leftfold.training.options import TrainingOptions
from leftfold.training.position import FrozenPosition
from leftfold.training.report import Report
from leftfold.training.served import Served, ServedBuilds
from leftfold.training.topics import PastReader

if TYPE_CHECKING:
    from leftfold.spark.session import DataFrame, SparkSession


class SparkSet:
    """A training set of one vector. `positions` are those of its topics, if they were found before."""

    def __init__(
        self,
        labels: Any,
        vector: VectorDefinition,
        options: TrainingOptions,
        deployment: Deployment,
        *,
        frozen: Mapping[str, Any] | None = None,
        positions: Mapping[str, FrozenPosition] | None = None,
    ) -> None:
        self.vector = vector
        self.options = options
        self._given = labels
        self._deployment = deployment
        self._frozen = frozen
        self._positions = positions
        self._views = {name: deployment.catalog.view(name) for name in vector.views}
        self._builds = ServedBuilds(deployment, self._views, options.builds, self, frozen)

    def frame(self, moment: str | None = None) -> DataFrame:
        """The rows; with `moment`, one column more of that name: the moment of each label, in µs."""
        return self._assembled.frame(self.options.as_of, moment)

    def write(self, directory: str, describe: Callable[[Basis, StoredRows], dict[str, Any]]) -> dict[str, Any]:
        check_free(self.session, directory, what="a training set")
        return written(self.frame(), directory, lambda stored: describe(self.basis, self.stored_rows(stored)), FILE)

    def digest(self) -> str:
        return digest_of(self.frame())

    def report(self) -> Report:
        served = self._served_anyway()
        modes = tuple(mode for mode in MODES if mode != "served" or served)
        table = self._assembled_for(modes, served)
        windows = {n: d for n, v in self._views.items() if isinstance(d := v.definition, Definition)}
        unknown = [(span.since, span.until) for view in served.values() for span in view.unknown]
        counts = report_on(table, self.options.as_of, outside(windows.values(), self._known_since()), unknown)
        return Report.of(counts, self.options.as_of, modes, tuple(table.features[self.options.as_of]))

    def release(self) -> None:
        if "_past" in self.__dict__:
            self._past.release()
        if "_labels" in self.__dict__:
            self._labels.frame.unpersist()
        for name in ("_labels", "span", "_past", "_assembled", "_known", "_served"):
            self.__dict__.pop(name, None)

    @property
    def label_names(self) -> tuple[str, ...]:
        return self._labels.names

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
    def span(self) -> tuple[int, int]:
        """The first and the last moment of the labels (µs); now, if no label has a moment."""
        _, first, last = moments(self._labels)
        now = clock.now_us()
        return now if first is None else first, now if last is None else last

    @cached_property
    def _past(self) -> PastReader:
        past = PastReader(self._deployment, self.session)
        frozen = self._positions
        if frozen is None and self._frozen is not None:
            frozen = {name: FrozenPosition.from_json(p) for name, p in self._frozen["topics"].items()}
        logged = {name: view for name, view in self._views.items() if not isinstance(view.definition, View)}
        past.read(logged, self.span, frozen)
        return past

    @cached_property
    def _assembled(self) -> Assembled:
        return self._assembled_for([self.options.as_of], self._served if self.options.as_of == "served" else {})

    def _assembled_for(self, modes: Sequence[AsOf], served: Mapping[str, Served]) -> Assembled:
        """The labels with the features of all views, by each of these rules of time."""
        return assembled(self._labels, self.vector, self._pasts(served), modes, self._read, self._logged)

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
        build, definition = self._builds.build(view)
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

    # What labels ask of a build ---------------------------------------------------------------------------------

    def batches(self, view: str) -> tuple[int, int] | None:
        """The first and the last batch of a view that labels name; None if they name none."""
        read = self._read.get(view)
        return None if read is None else batch_span(self._labels, read)

    def among(self, unknown: Iterable[Unknown], view: str) -> int:
        """The number of labels that need a batch that is not known."""
        return among(self._labels, unknown, self._read.get(view))

    @cached_property
    def _served(self) -> dict[str, Served]:
        return self._builds.served(needed=self.options.as_of == "served")

    def _served_anyway(self) -> dict[str, Served]:
        """Return the served batches for the report, or {} if some view has no build and the set does not need them."""
        return self._served if self.options.as_of == "served" or self._builds.complete else {}

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

    # The manifest -------------------------------------------------------------------------------------------------

    @property
    def basis(self) -> Basis:
        served = self._served if self.options.as_of == "served" else {}
        free = {n: self._builds.build(v)[0] for n, v in self._views.items() if isinstance(v.definition, View)}
        return Basis(
            {name: topic.position for name, topic in self._past.topics.items()},
            free | {name: view.build for name, view in served.items()},
            {name: view.last for name, view in served.items()},
            self._lakes,
            self._labels.names,
        )

    def stored_rows(self, stored: DataFrame) -> StoredRows:
        logged = count_logged(self._labels, self._logged)
        return StoredRows(digest_of(stored), logged, lambda names: profiles_of(stored, names))


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
