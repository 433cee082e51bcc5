"""The archives of a project's topics: show what they hold, import a past, and skip a gap.

Whoever moves the end of an archive's table holds the lock of the topic's intake. Nothing here deletes records.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from leftfold.declare.catalog import Catalog
from leftfold.declare.companions import archive_table
from leftfold.declare.schema import avro_schema
from leftfold.declare.topic import Topic
from leftfold.errors import DeclarationError, RunError
from leftfold.fold.expressions import from_micros
from leftfold.kafka.admin import Admin
from leftfold.kafka.producer import not_registered
from leftfold.kafka.registry import SchemaRegistry, subject_of
from leftfold.offsets import Range, Ranges
from leftfold.places import check_lake, scheme_of
from leftfold.run.intake import gap_of, intake_name
from leftfold.run.supervisor import only_runner
from leftfold.settings import Kafka, Profile
from leftfold.spark.history import archive, imports
from leftfold.spark.history.records import check_topic
from leftfold.spark.sinks.delta import version_of
from leftfold.spark.source import kafka_range

if TYPE_CHECKING:
    from leftfold.spark.session import SparkSession

# To find the earliest log time, so many offsets of each partition are read. One is not enough: the clocks of brokers
# differ a little, and transaction markers take offsets but are not records.
_FIRST_RECORDS = 1_000


@dataclass(frozen=True)
class Archive:
    """The archive of one topic: the records that it holds, and how the log continues from there."""

    topic: str
    table: str
    holds: Ranges
    days: list[archive.Day]
    log: dict[int, tuple[int, int]]  # by partition: the first offset, and the one after the last
    ends: dict[int, int]

    @property
    def files(self) -> int:
        return sum(day.files for day in self.days)

    @property
    def bytes(self) -> int:
        return sum(day.bytes for day in self.days)

    @property
    def records(self) -> int:
        return sum(day.records for day in self.days)

    @property
    def behind(self) -> int:
        """The number of offsets that are in the log but not yet in the archive."""
        return sum(max(0, end - max(first, self.ends.get(p, 0))) for p, (first, end) in self.log.items())

    @property
    def gap(self) -> Ranges:
        """The offsets that the log deleted before they were archived."""
        return (
            gap_of(self.topic, self.ends, {p: first for p, (first, _) in self.log.items()}) if self.ends else Ranges()
        )

    def as_json(self) -> dict[str, Any]:
        return {
            "topic": self.topic,
            "table": self.table,
            "holds": self.holds.as_json().get(self.topic, {}),
            "days": [
                {"date": day.date.isoformat(), "files": day.files, "bytes": day.bytes, "records": day.records}
                for day in self.days
            ],
            "seam": {
                str(p): {"archived_to": self.ends.get(p), "log_from": first, "log_to": end}
                for p, (first, end) in sorted(self.log.items())
            },
            "behind": self.behind,
            "gap": self.gap.as_json().get(self.topic, {}),
        }


@dataclass(frozen=True)
class Imported:
    topic: str
    records: int
    first: int  # the first log time (µs)
    last: int  # the last log time (µs)
    logged: int | None  # the first log time (µs) of records that came from Kafka; None if there are none yet
    new: bool  # False if the archive had it already


@dataclass
class Archives:
    """The archives of a project. Use it in a `with` block: it starts Spark when needed, and stops what it started."""

    catalog: Catalog
    profile: Profile
    lake: str
    kafka: Kafka
    admin: Admin
    registry: SchemaRegistry
    locks: Path
    start: Callable[[], SparkSession]
    given: SparkSession | None = None
    _held: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._held.close()

    @cached_property
    def _session(self) -> SparkSession:
        if self.given is not None:
            return self.given
        session = self.start()
        self._held.callback(session.stop)
        return session

    def show(self, topic: str | None = None) -> list[Archive]:
        names = [topic] if topic else [t.name for t in self.catalog.topics.values() if t.archive]
        return [self._shown(self._archived(name)) for name in names]

    def _shown(self, topic: Topic[Any]) -> Archive:
        name, table, partitions = self._place(topic)
        held = _as_declared(archive.held(self._session, table, name), topic.name)
        days = archive.days(self._session, table) if held.version >= 0 else []
        firsts, ends = self.admin.start_offsets(name, partitions), self.admin.end_offsets(name, partitions)
        log = {p: (firsts[p], ends[p]) for p in range(partitions)}
        return Archive(topic.name, table, held.ranges, days, log, held.ends)

    def skip(self, topic: str, spans: Mapping[int, tuple[int, int]]) -> None:
        """Let the archive continue after a gap.

        `spans` gives the gap by partition: its first offset, and the offset after its last. It must name exactly the
        gap that exists.
        """
        declared = self._written(topic)
        name, table, partitions = self._place(declared)
        with only_runner(self.locks, intake_name(topic)):
            position = archive.position(self._session, table) if archive.exists(self._session, table) else None
            ends = position.ends if position else {}
            gap = gap_of(name, ends, self.admin.start_offsets(name, partitions)) if ends else Ranges()
            named = Ranges.of(Range(name, p, start, end) for p, (start, end) in spans.items())
            if position is None or not gap.ranges or named != gap:
                raise RunError(
                    "not-the-gap",
                    f"the gap of {topic}'s archive is {', '.join(map(str, gap)) or 'none'}",
                    why=f"what was named is {', '.join(map(str, named)) or 'nothing'}: a gap stands for ever, so it is "
                    "named exactly",
                    fix="leftfold archive show " + topic,
                )
            check_topic(name, position.topic_id, self.admin.topic_ids([name]).get(name))
            after = {**ends, **{r.partition: r.end for r in gap}}
            to = replace(position, sequence=position.sequence + 1, ends=after, writer="skip")
            archive.move(self._session, archive.no_rows(self._session, table), table, topic=topic, to=to)

    def import_table(
        self, table: str, topic: str, *, columns: Mapping[str, str], time: str, until: int | None = None
    ) -> Imported:
        """Make an existing table the past of the archive.

        `columns` names the table's column for a field. Rows whose time is `until` (µs) or later are left out.
        """
        declared = self._written(topic)
        name, home, partitions = self._place(declared)
        schema_id = None
        if declared.format == "avro":
            schema_id = self.registry.id_of(subject_of(name), avro_schema(declared.event))
            if schema_id is None:
                raise not_registered(declared, name)
        rows = imports.as_records(
            imports.opened(self._session, table),
            declared,
            schema_id,
            columns=columns,
            time=time,
            partitions=partitions,
        )
        records = imports.until(rows, until)
        span, lacking = imports.span(records)
        if span is None or lacking:
            raise _unfit(declared, table, lacking)
        archive.make(self._session, home)
        number = archive.imports_of(self._session, home)  # read before the rows: another import may take this number
        version = version_of(self._session, home)
        before = archive.imported(self._session, home, version)
        topic_id = self.admin.topic_ids([name])[name]
        placed = imports.placed(records, topic_id)
        logged = self._first_logged(declared, version)
        done = Imported(topic, span.records, span.first, span.last, logged, new=not before)
        if before:
            if imports.digest(imports.past(self._session, home, version)) != imports.digest(placed):
                raise _imported_before(declared, home)
            return done
        if logged is not None and span.last >= logged:
            raise _overlaps(declared, table, span.last, logged)
        self._begin(declared)
        imports.append_past(imports.in_files(placed, span.records), home, number)
        # If two imports run at once, Delta silently leaves one of them out.
        past = imports.past(self._session, home, version_of(self._session, home))
        if imports.digest(past) != imports.digest(placed):
            raise _imported_before(declared, home)
        return done

    def _begin(self, topic: Topic[Any]) -> None:
        """Commit the offsets at which archiving begins, if no record of the log is archived yet.

        An imported past leads up to these offsets.
        """
        name, table, partitions = self._place(topic)
        position = archive.position(self._session, table)
        topic_id = self.admin.topic_ids([name])[name]
        check_topic(name, position.topic_id, topic_id)
        if position.ends:
            return
        with only_runner(self.locks, intake_name(topic.name)):
            firsts = self.admin.start_offsets(name, partitions)
            to = archive.ArchivePosition(position.sequence + 1, topic_id, firsts, {}, "import")
            archive.move(self._session, archive.no_rows(self._session, table), table, topic=topic.name, to=to)

    def _first_logged(self, topic: Topic[Any], version: int) -> int | None:
        """Return the earliest log time (µs) of records that came from Kafka, archived or still in the log."""
        name, table, partitions = self._place(topic)
        firsts, ends = self.admin.start_offsets(name, partitions), self.admin.end_offsets(name, partitions)
        upto = {p: min(ends[p], first + _FIRST_RECORDS) for p, first in firsts.items()}
        archived = archive.at_version(self._session, table, version).where("offset >= 0")
        moments = [
            imports.first_logged(archived),
            imports.first_logged(kafka_range(self._session, self.kafka, name, firsts, upto)),
        ]
        return min((moment for moment in moments if moment is not None), default=None)

    def _archived(self, name: str) -> Topic[Any]:
        topic = self.catalog.topic(name)
        if not topic.archive:
            raise DeclarationError(
                "not-archived",
                f"topic {name} has no archive",
                why="only records of a topic that is declared so are kept beside the log",
                fix="declare it with archive=True",
                source=topic.source,
            )
        return topic

    def _written(self, name: str) -> Topic[Any]:
        """Return an archived topic whose table is about to be written.

        Its intake may commit to the same table at the same time, so the lake is checked first.
        """
        topic, conf = self._archived(name), self.profile.spark.conf
        check_lake(self.lake, scheme_of(self.lake, conf), conf)
        return topic

    def _place(self, topic: Topic[Any]) -> tuple[str, str, int]:
        """Return the topic's name in the cluster, the archive's table, and the number of partitions."""
        name, table = self.profile.topic_name(topic.name, external=topic.external), archive_table(self.lake, topic)
        assert table is not None, "only archived topics come here"
        there = self.admin.partitions([name])
        if name not in there:
            raise RunError(
                "not-applied",
                f"topic {name} does not exist",
                why="an archive belongs to a topic of the cluster",
                fix="leftfold apply",
                source=topic.source,
            )
        return name, table, there[name]


def _as_declared(held: archive.Held, topic: str) -> archive.Held:
    return replace(held, ranges=Ranges.of(replace(r, topic=topic) for r in held.ranges))


def _unfit(topic: Topic[Any], table: str, lacking: int) -> DeclarationError:
    if not lacking:
        return DeclarationError(
            "import-empty",
            f"{table} has no rows to import into {topic.name}",
            why="it is empty, or all of it is later than --to",
            fix="name another table, or a later --to",
        )
    return DeclarationError(
        "import-nulls",
        f"{lacking:,} rows of {table} lack a value that {topic.event.__name__} or the log time needs",
        why="an event needs the value",
        fix="leave these rows out of the table, or give the field a default",
        source=topic.source,
    )


def _imported_before(topic: Topic[Any], table: str) -> RunError:
    return RunError(
        "already-imported",
        f"the archive of {topic.name} has an imported past already, and this is another",
        why="imported records are numbered as a whole, once: more of them would stand at the same offsets",
        fix=f"delete the imported one first if this is to replace it: DELETE FROM delta.`{table}` WHERE offset < 0",
    )


def _overlaps(topic: Topic[Any], table: str, last: int, logged: int) -> RunError:
    seam = from_micros(logged).isoformat()
    return RunError(
        "import-overlaps",
        f"{table} reaches up to {from_micros(last).isoformat()}, and {topic.name} has its own records from {seam} on",
        why="records that are in both would be counted twice",
        fix=f"add --to {seam}",
    )
