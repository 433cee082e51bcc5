"""A project as it is deployed under one profile: its declarations, the engines that it connects to, and its places.

What needs no Spark imports none, so that small work can do without it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leftfold.declare.batches import declared_rate
from leftfold.declare.catalog import Catalog, DeclaredView
from leftfold.declare.companions import (
    archive_table,
    changelog_topic,
    definitions_topic,
    has_changelog,
    receipts_topic,
    redrive_topic,
)
from leftfold.declare.topic import Topic
from leftfold.errors import RunError, SourceLine
from leftfold.kafka.admin import Admin
from leftfold.kafka.definition_log import DefinitionLog
from leftfold.kafka.receipt_log import ReceiptLog
from leftfold.kafka.registry import SchemaRegistry, subject_of
from leftfold.places import local_path
from leftfold.run.choice import need_spark
from leftfold.settings import Kafka, OnlineStore, Profile
from leftfold.store.writer import publish_vectors

if TYPE_CHECKING:
    from leftfold.run.view import RunningView
    from leftfold.spark.session import SparkSession
    from leftfold.spark.source import Source


@dataclass(frozen=True)
class Engines:
    """Everything a run connects to."""

    kafka: Kafka
    online: OnlineStore
    admin: Admin
    registry: SchemaRegistry


@dataclass(frozen=True)
class TopicPlace:
    """A topic as it is in the cluster."""

    topic: Topic[Any]
    name: str
    partitions: int
    schemas: dict[int, str]  # by id; all that the registry has for it


@dataclass(frozen=True)
class Deployment:
    """The value that makes sources, views and sessions: it knows where everything is."""

    catalog: Catalog
    profile: Profile
    engines: Engines
    checkpoints: str
    lake: str
    locks: Path
    log_file: Path
    application: str  # the name of its Spark application

    def session(self, frame: Any = None, *, lake: bool = True) -> SparkSession:
        """The session of a given DataFrame, else the active one, else a new one. With `lake` it can read Delta."""
        need_spark()
        from leftfold.spark.session import build_session, session_at_hand

        return session_at_hand(frame) or build_session(
            self.profile.spark, application=self.application, log_file=self.log_file, lake=lake
        )

    def source(self, topics: Sequence[Topic[Any]], fields: frozenset[str], *, who: str, at: SourceLine) -> Source:
        """The source that reads these topics and decodes these fields, with the schemas as they are now.

        `who` reads them, and is declared at `at`. An error names both.
        """
        from leftfold.spark.source import Source

        engines = self.engines
        places = [self.place(topic, who=who, at=at) for topic in topics]
        physical = [place.name for place in places]
        partitions = {place.name: place.partitions for place in places}
        schemas = {schema_id: text for place in places for schema_id, text in place.schemas.items()}
        return Source(
            topics=tuple(physical),
            partitions=tuple(partitions[p] for p in physical),
            kafka=engines.kafka,
            event=topics[0].event,
            fields=fields,
            format=topics[0].format,
            writer_schemas=schemas,
            most_offsets=self.profile.spark.most_offsets,
            record_bytes=max(engines.admin.width(topic, number) for topic, number in partitions.items()),
            rate=declared_rate(topics),
            archives=tuple(archive_table(self.lake, t) for t in topics),
            first_log=frozenset(p for t, p in zip(topics, physical, strict=True) if t.log_time == "header"),
            registry=engines.registry,
        )

    def place(self, topic: Topic[Any], *, who: str, at: SourceLine) -> TopicPlace:
        """The place of a topic, with its schemas as they are now. `who` reads it, and is declared at `at`."""
        name, engines = self.profile.topic_name(topic.name, external=topic.external), self.engines
        partitions = engines.admin.partitions([name])
        schemas = engines.registry.versions(subject_of(name)) if topic.format == "avro" else {}
        if name not in partitions or (topic.format == "avro" and not schemas):
            lacks = "has no schema" if name in partitions else "does not exist"
            raise RunError(
                "not-applied",
                f"{who} reads topic {name}, which {lacks}",
                why="a view needs its topic and the schema of its records",
                fix="ask the topic's owner to create it with a schema" if topic.external else "leftfold apply",
                source=at,
            )
        return TopicPlace(topic, name, partitions[name], schemas)

    def log_since(self, place: TopicPlace, since: int | None) -> tuple[dict[int, int], list[int]]:
        """The offsets from which on a log has all that was logged since a moment (µs; None: from the beginning).

        Also the partitions of which that is the first record that the log has: there may have been older ones.
        """
        admin, name, partitions = self.engines.admin, place.name, place.partitions
        firsts = admin.start_offsets(name, partitions)
        begins = firsts
        if since is not None:
            ends, offsets = admin.end_offsets(name, partitions), admin.offsets_at(name, partitions, since)
            begins = {p: ends[p] if at is None else max(at, firsts[p]) for p, at in offsets.items()}
        return begins, [p for p, begin in begins.items() if begin == firsts[p]]

    def may_be_archived(self, topic: Topic[Any]) -> bool:
        """Return whether the topic has an archive that may have begun."""
        table = archive_table(self.lake, topic)
        path = None if table is None else local_path(table, self.profile.spark.conf)
        return table is not None and (path is None or (path / "_delta_log").exists())

    def reading(self, declared: DeclaredView, fields: frozenset[str]) -> Source:
        """The source that reads the topics of a view and decodes only these fields."""
        return self.source(declared.reading.topics, fields, who=declared.name, at=declared.source)

    def redrive_topic(self, topics: Sequence[Topic[Any]]) -> str | None:
        """The topic of the re-driven records of a view's topics; None if there are several, or a compacted one."""
        redriven = topics[0] if len(topics) == 1 and not topics[0].compacted else None
        return self.profile.topic_name(redrive_topic(redriven.name)) if redriven else None

    def view(self, name: str, *, staged: bool = False, take_over: bool = True) -> RunningView:
        """Make one view, without starting it. A `staged` build waits for `promote`.

        Without `take_over`, so does one of another definition than the build that readers follow.
        """
        from leftfold.run.build import Destination
        from leftfold.run.view import RunningView

        declared = self.catalog.view(name)
        source = self.reading(declared, declared.fields)
        place = Destination(
            online_url=self.engines.online.address,
            namespace=self.profile.namespace,
            checkpoints=self.checkpoints,
            log_file=str(self.log_file),
            receipts=self.receipts,
            definitions=self.definitions,
            changelog=self.profile.topic_name(changelog_topic(name)) if has_changelog(declared) else None,
            redrive=self.redrive_topic(declared.reading.topics),
            publish=self.publish,
            staged=staged,
            take_over=take_over,
        )
        return RunningView(declared, source, place, admin=self.engines.admin, registry=self.engines.registry)

    @cached_property
    def receipts(self) -> ReceiptLog:
        return ReceiptLog(self.engines.kafka, self.profile.topic_name(receipts_topic()))

    @cached_property
    def definitions(self) -> DefinitionLog:
        return DefinitionLog(self.engines.kafka, self.profile.topic_name(definitions_topic()))

    def publish(self) -> None:
        """Write to the store what it holds for readers in addition to builds: the definitions of vectors."""
        vectors = [vector.__leftfold_definition__ for vector in self.catalog.vectors.values()]
        publish_vectors(self.engines.online.address, self.profile.namespace, vectors)
