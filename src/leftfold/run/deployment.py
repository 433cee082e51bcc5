"""A project as it is deployed under one profile: its declarations, the engines that it connects to, and its places."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
from leftfold.run.build import Destination
from leftfold.run.view import RunningView
from leftfold.settings import Kafka, OnlineStore, Profile
from leftfold.spark import source as reading
from leftfold.spark.session import build_session, session_at_hand
from leftfold.spark.source import Source
from leftfold.store.writer import publish_vectors

if TYPE_CHECKING:
    from leftfold.spark.session import SparkSession


@dataclass(frozen=True)
class Engines:
    """Everything a run connects to."""

    kafka: Kafka
    online: OnlineStore
    admin: Admin
    registry: SchemaRegistry


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
        return session_at_hand(frame) or build_session(
            self.profile.spark, application=self.application, log_file=self.log_file, lake=lake
        )

    def source(self, topics: Sequence[Topic[Any]], fields: frozenset[str], *, who: str, at: SourceLine) -> Source:
        """The source that reads these topics and decodes these fields, with the schemas as they are now.

        `who` reads them, and is declared at `at`. An error names both.
        """
        engines = self.engines
        physical = [self.profile.topic_name(t.name, external=t.external) for t in topics]
        partitions = engines.admin.partitions(physical)
        schemas: dict[int, str] = {}
        for topic, topic_name in zip(topics, physical, strict=True):
            versions = engines.registry.versions(subject_of(topic_name)) if topic.format == "avro" else {}
            schemas |= versions
            if topic_name not in partitions or (topic.format == "avro" and not versions):
                lacks = "has no schema" if topic_name in partitions else "does not exist"
                raise RunError(
                    "not-applied",
                    f"{who} reads topic {topic_name}, which {lacks}",
                    why="a view needs its topic and the schema of its records",
                    fix="ask the topic's owner to create it with a schema"
                    if topic.external
                    else "leftfold apply --yes",
                    source=at,
                )
        return Source(
            topics=tuple(physical),
            partitions=tuple(partitions[p] for p in physical),
            kafka=engines.kafka,
            event=topics[0].event,
            fields=fields,
            format=topics[0].format,
            writer_schemas=schemas,
            most_offsets=self._most_offsets(partitions),
            archives=tuple(archive_table(self.lake, t) for t in topics),
            first_log=frozenset(p for t, p in zip(topics, physical, strict=True) if t.log_time == "header"),
            registry=engines.registry,
        )

    def _most_offsets(self, partitions: Mapping[str, int]) -> int:
        """The most offsets of a partition in one batch: the profile's number, limited by `BYTES_PER_PARTITION`."""
        widest = max(self.engines.admin.width(topic, number) for topic, number in partitions.items())
        wanted = self.profile.spark.most_offsets or reading.OFFSETS_PER_PARTITION
        return max(1, min(wanted, int(reading.BYTES_PER_PARTITION / max(widest, 1.0))))

    def reading(self, declared: DeclaredView, fields: frozenset[str]) -> Source:
        """The source that reads the topics of a view and decodes only these fields."""
        return self.source(declared.reading.topics, fields, who=declared.name, at=declared.source)

    def redrive_topic(self, declared: DeclaredView) -> str | None:
        """The topic of re-driven records; None for a view that reads several topics or a compacted one."""
        topics = declared.reading.topics
        redriven = topics[0] if len(topics) == 1 and not topics[0].compacted else None
        return self.profile.topic_name(redrive_topic(redriven.name)) if redriven else None

    def view(self, name: str, *, staged: bool = False) -> RunningView:
        """Make one view, without starting it. A `staged` build waits for `promote`."""
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
            redrive=self.redrive_topic(declared),
            publish=self.publish,
            staged=staged,
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
