"""A training set that this process makes without Spark, from the records of the log that its labels need."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from leftfold import clock
from leftfold.arrow import OnlySparkError
from leftfold.arrow.assemble import ViewHistory, features_of, outside, report_on, table_of, written
from leftfold.arrow.decode import WriterSchemas
from leftfold.arrow.digest import digest_of
from leftfold.arrow.labels import ArrowLabels, labels_of
from leftfold.arrow.past import Batches, TopicRange, ViewRecords, read_topic
from leftfold.arrow.profiles import profiles_of
from leftfold.declare.catalog import DeclaredView
from leftfold.declare.companions import redrive_topic
from leftfold.fold.definition import Definition
from leftfold.fold.known import MODES, AsOf, Unknown
from leftfold.fold.latest import Latest
from leftfold.fold.vector import VectorDefinition
from leftfold.places import directory_taken, local_path
from leftfold.run.deployment import Deployment, TopicPlace
from leftfold.training.manifest import FILE, Basis, StoredRows
from leftfold.training.options import TrainingOptions
from leftfold.training.position import (
    FrozenPosition,
    find_position,
    gone_from_log,
    read_by,
    refuse_another,
    schemas_of,
)
from leftfold.training.report import Report
from leftfold.training.served import Served, ServedBuilds

if TYPE_CHECKING:
    from leftfold.spark.session import SparkSession


@dataclass(frozen=True)
class _Found:
    """A topic, where it is read, and who reads it."""

    place: TopicPlace
    readers: list[DeclaredView]
    fields: frozenset[str]
    position: FrozenPosition
    lacking: tuple[int, ...]  # partitions whose oldest records are gone, and might have been needed


class ArrowSet:
    """A training set of one vector. Whatever it cannot do raises `OnlySparkError`."""

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
        self._builds = ServedBuilds(deployment, self._views, options.builds, self, frozen)
        self._firsts: dict[str, dict[int, int]] = {}  # by topic and partition: the log time of its first record

    def check(self) -> None:
        """Raise OnlySparkError if the views or options need Spark. Nothing is read for that."""
        for view in self._views.values():
            if not isinstance(view.definition, Definition | Latest) or view.reading.stream is not None:
                raise OnlySparkError(f"a function makes the rows of {view.name}")
        if self.options.logged:
            raise OnlySparkError("logged features are taken from a DataFrame of Spark")

    @property
    def records(self) -> int:
        """The number of offsets that are read."""
        return sum(
            max(end - found.position.starts[p], 0) for found in self._found.values() for p, end in
            found.position.ends.items()
        )  # fmt: skip

    @property
    def rows(self) -> int:
        return self._labels.rows

    @property
    def positions(self) -> dict[str, FrozenPosition]:
        """The positions of the topics that were read; empty if nothing was read yet."""
        return {n: found.position for n, found in self._found.items()} if "_records" in self.__dict__ else {}

    def table(self) -> pa.Table:
        return self._table

    def write(self, directory: str, describe: Callable[[Basis, StoredRows], dict[str, Any]]) -> dict[str, Any]:
        path = self.path(directory)
        if path.exists():
            raise directory_taken(directory, what="a training set")
        table = self._table  # nothing is written before all rows are made
        try:
            return written(table, path, lambda stored: describe(self._basis, self._stored_rows(stored)), FILE)
        except FileExistsError as error:
            raise directory_taken(directory, what="a training set") from error

    def path(self, directory: str) -> Path:
        path = local_path(directory, self._deployment.profile.spark.conf)
        if path is None:
            raise OnlySparkError(f"{directory} is not on this machine's disk")
        return path

    def digest(self) -> str:
        return digest_of(self._table)

    def report(self) -> Report:
        served = self._served if self.options.as_of == "served" or self._builds.complete else {}
        modes = tuple(mode for mode in MODES if mode != "served" or served)
        values = {mode: self._values(mode, served) for mode in modes}
        windows = [d for v in self._views.values() if isinstance(d := v.definition, Definition)]
        unknown = [(span.since, span.until) for view in served.values() for span in view.unknown]
        beyond = outside(windows, self._known_since)
        counts = report_on(self._labels, values, self.options.as_of, beyond, unknown)
        return Report.of(counts, self.options.as_of, modes, [part.name for part in self.vector.parts])

    def release(self) -> None:
        for name in ("_labels", "_found", "_records", "_table", "_served"):
            self.__dict__.pop(name, None)

    # What labels ask of a build ---------------------------------------------------------------------------------

    @property
    def session(self) -> SparkSession:
        raise OnlySparkError("some receipts of what was served are in the lake")

    @cached_property
    def span(self) -> tuple[int, int]:
        """The first and the last moment of the labels (µs); now, if no label has a moment."""
        now = clock.now_us()
        return self._labels.span or (now, now)

    def batches(self, view: str) -> tuple[int, int] | None:
        """The first and the last batch of a view that labels name; None if they name none."""
        known = [batch for batch in self._read(view) or () if batch is not None]
        return (min(known), max(known)) if known else None

    def among(self, unknown: Iterable[Unknown], view: str) -> int:
        """The number of labels that need a batch that is not known, by the batch they name, else by their moment."""
        spans, read = list(unknown), self._read(view) or [None] * self._labels.rows
        return sum(
            any(s.since <= at < s.until for s in spans if at is not None)
            if batch is None
            else any(s.first <= batch < s.last for s in spans)
            for at, batch in zip(self._labels.at, read, strict=True)
        )

    def _read(self, view: str) -> list[int | None] | None:
        column = self.options.batch.get(view)
        return None if column is None else self._labels.batches(column)

    # Sources of the set ----------------------------------------------------------------------------------------

    @cached_property
    def _labels(self) -> ArrowLabels:
        made = [part.name for part in self.vector.parts]
        given, only = self._given, []
        if self._frozen is not None:  # the files of the first set hold the labels
            given, only = self.path(str(given)), self._frozen["label_columns"]
        return labels_of(given, time=self.options.time, keys=self.options.keys, made=made, only=only)

    @cached_property
    def _found(self) -> dict[str, _Found]:
        """The topics by declared name, each with its position."""
        found = {}
        for topic, readers, fields in read_by(self._views):
            place = self._deployment.place(topic, who=readers[0].name, at=readers[0].source)
            if self._frozen is None:
                starts = self._starts_in(place)
                position, lacking = find_position(place, readers, self.span, self._deployment, starts)
            else:
                position, lacking = FrozenPosition.from_json(self._frozen["topics"][topic.name]), ()
                refuse_another(self._deployment, position)
                self._refuse_gone(place, position)
            found[topic.name] = _Found(place, readers, fields, position, lacking)
        return found

    def _starts_in(self, place: TopicPlace) -> Callable[[int | None], tuple[dict[int, int], list[int]]]:
        """Return the function that finds where to begin in the log, if the archive cannot have more."""

        def starts(since: int | None) -> tuple[dict[int, int], list[int]]:
            begins, at_head = self._deployment.log_since(place, since)
            if at_head and self._deployment.may_be_archived(place.topic):
                raise OnlySparkError(f"the archive of {place.topic.name} may have older records")
            return begins, [p for p in at_head if begins[p] > 0]

        return starts

    def _refuse_gone(self, place: TopicPlace, position: FrozenPosition) -> None:
        gone = gone_from_log(self._deployment, position, place.partitions)
        if gone is not None:
            if self._deployment.may_be_archived(place.topic):
                raise OnlySparkError(f"the log of {place.topic.name} has deleted what its archive has")
            raise gone

    @cached_property
    def _records(self) -> dict[str, ViewRecords]:
        """The records of each view."""
        records = {
            name: ViewRecords(self._definition(name), {e for e in self._entities(name) if e is not None})
            for name in self._views
        }
        profile, engines = self._deployment.profile, self._deployment.engines
        for name, found in self._found.items():
            place, position = found.place, found.position
            known = place.schemas
            if self._frozen is not None:
                known = schemas_of(self._deployment, position, known)
            schemas = WriterSchemas(known, engines.registry.schema if self._frozen is None else None)
            schemas.rejected.update(position.rejected)
            wanted = TopicRange(
                place.topic,
                place.name,
                position.starts,
                position.ends,
                profile.topic_name(redrive_topic(name)),
                position.redriven,
                found.fields,
                schemas,
            )
            views = [(records[v.name], [t.name for t in v.reading.topics].index(name)) for v in found.readers]
            self._firsts[name] = read_topic(wanted, engines.kafka, views)
            self._refuse_gone(place, position)  # the log may have deleted its head while it was read
            if self._frozen is None:
                ids = tuple(sorted(schemas.known)), tuple(sorted(schemas.rejected))
                self._found[name] = replace(found, position=replace(position, schemas=ids[0], rejected=ids[1]))
        return records

    def _definition(self, view: str) -> Definition | Latest:
        definition = self._views[view].definition
        assert isinstance(definition, Definition | Latest), "checked before"
        return definition

    def _entities(self, view: str) -> list[str | None]:
        return self._labels.entities(view, self._definition(view).keys)

    @cached_property
    def _served(self) -> dict[str, Served]:
        return self._builds.served(needed=self.options.as_of == "served")

    def _values(self, as_of: AsOf, served: Mapping[str, Served]) -> dict[str, list[Any]]:
        pasts = {}
        for name, records in self._records.items():
            view = served.get(name)
            batches = None if view is None else Batches(view.batches, view.begins)
            pasts[name] = ViewHistory(records, self._entities(name), batches, self._read(name))
        return features_of(self._labels, self.vector, pasts, as_of)

    @cached_property
    def _table(self) -> pa.Table:
        served = self._served if self.options.as_of == "served" else {}
        definitions = {name: self._definition(name) for name in self._views}
        return table_of(self._labels, self.vector, definitions, self._values(self.options.as_of, served))

    def _known_since(self, definition: Definition) -> int | Literal["always"] | None:
        """Return the moment (µs) since which all records of a view are there; None if nothing is left of a topic."""
        starts = []
        for origin in definition.origins:
            if lacking := self._found[origin.topic].lacking:
                firsts = [self._firsts[origin.topic][p] for p in lacking if p in self._firsts[origin.topic]]
                if not firsts:
                    return None
                starts.append(max(firsts))
        return max(starts, default="always")

    # The manifest -------------------------------------------------------------------------------------------------

    @property
    def _basis(self) -> Basis:
        served = self._served if self.options.as_of == "served" else {}
        return Basis(
            self.positions,
            {name: view.build for name, view in served.items()},
            {name: view.last for name, view in served.items()},
            {},
            self._labels.columns.names,
        )

    def _stored_rows(self, stored: pa.Table) -> StoredRows:
        return StoredRows(digest_of(stored), {}, lambda names: profiles_of(stored, names))
