"""All views of a project, or a named few, in one Spark application: one that fails does not stop the others."""

from __future__ import annotations

import fcntl
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from leftfold.errors import RunError
from leftfold.fold.vector import VectorDefinition
from leftfold.kafka.admin import Admin
from leftfold.kafka.registry import SchemaRegistry, subject_of
from leftfold.run.progress import Progress
from leftfold.run.view import Place, RunningView
from leftfold.settings import Kafka, Online, Profile
from leftfold.spark.checkpoint import set_aside
from leftfold.spark.session import build_session
from leftfold.spark.source import Source
from leftfold.spec.catalog import Catalog, DeclaredView
from leftfold.spec.event import fields_of
from leftfold.spec.free import View
from leftfold.store.writer import publish_vectors

if TYPE_CHECKING:
    from leftfold.spark.session import SparkSession

# How often the loop looks. A person's eye and a SIGTERM can wait this long; a batch does not depend on it.
_LOOK_EVERY_S = 0.2


@dataclass(frozen=True)
class Engines:
    """Everything a run connects to."""

    kafka: Kafka
    online: Online
    admin: Admin
    registry: SchemaRegistry


@dataclass(frozen=True)
class Options:
    views: Sequence[str]
    until_caught_up: bool
    fresh: frozenset[str]  # views whose checkpoint is set aside: they read the log from its start
    checkpoints: str
    locks: Path
    log_file: Path
    application: str


class Supervisor:
    def __init__(self, catalog: Catalog, profile: Profile, engines: Engines, options: Options) -> None:
        self._catalog = catalog
        self._profile = profile
        self._engines = engines
        self._options = options
        self._stop = threading.Event()
        self.views = [self._view(name) for name in options.views]

    @property
    def progress(self) -> list[Progress]:
        return [view.progress for view in self.views]

    def stop(self) -> None:
        """End each view after the batch it is in. Safe to call from a signal handler."""
        self._stop.set()

    def run(self, look: Callable[[list[Progress]], None], *, session: SparkSession | None = None) -> list[Progress]:
        """Until all views have ended; `look` is called on every round.

        A `session` that is given goes on after them; without one, a session is started here and stopped.
        """
        with ExitStack() as held:
            for view in self.views:
                held.enter_context(_only_runner(self._options.locks, view.name))
            look(self.progress)
            if session is None:
                session = build_session(
                    self._profile.spark, application=self._options.application, log_file=self._options.log_file
                )
                held.callback(session.stop)
            else:
                held.callback(self._end)
            for view in self.views:
                view.prepare(session)  # all of them: what is refused is refused before anything starts
            for view in self.views:
                if view.name in self._options.fresh:
                    set_aside(session, view.checkpoint)
            publish_vectors(self._online_url, self._profile.namespace, self._vectors())
            for view in self.views:
                view.start(session, until_caught_up=self._options.until_caught_up)
            self._watch(look)
        return self.progress

    def _end(self) -> None:
        """What an error on the way left running in a session that goes on."""
        for view in self.views:
            if view.running:
                view.stop()

    def _watch(self, look: Callable[[list[Progress]], None]) -> None:
        while any(view.running for view in self.views):
            time.sleep(_LOOK_EVERY_S)
            for view in self.views:
                if self._stop.is_set():
                    view.stop()
                view.poll()
            look(self.progress)

    def _view(self, name: str) -> RunningView:
        declared = self._catalog.view(name)
        topics = declared.reading.topics
        physical = [self._profile.topic_name(t.name, external=t.external) for t in topics]
        observed = self._engines.admin.topics(physical)
        schemas: dict[int, str] = {}
        for topic, topic_name in zip(topics, physical, strict=True):
            found = self._engines.registry.versions(subject_of(topic_name)) if topic.format == "avro" else {}
            schemas |= found
            if topic_name not in observed or (topic.format == "avro" and not found):
                lacks = "has no schema" if topic_name in observed else "does not exist"
                raise RunError(
                    "not-applied",
                    f"{name} reads topic {topic_name}, which {lacks}",
                    why="a view needs its topic and the schema of its records",
                    fix="ask the topic's owner to create it with a schema"
                    if topic.external
                    else "leftfold apply --yes",
                    source=declared.source,
                )
        source = Source(
            topics=tuple(physical),
            partitions=tuple(observed[p].partitions for p in physical),
            kafka=self._engines.kafka,
            event=topics[0].event,
            fields=_fields(declared),
            format=topics[0].format,
            writer_schemas=schemas,
        )
        place = Place(
            online_url=self._online_url,
            namespace=self._profile.namespace,
            checkpoints=self._options.checkpoints,
            log_file=str(self._options.log_file),
        )
        return RunningView(declared, source, place, admin=self._engines.admin, registry=self._engines.registry)

    @property
    def _online_url(self) -> str:
        return self._engines.online.url.get_secret_value()

    def _vectors(self) -> list[VectorDefinition]:
        return [vector.__leftfold_definition__ for vector in self._catalog.vectors.values()]


def _fields(declared: DeclaredView) -> frozenset[str]:
    """What is decoded of a record: what the view reads, or all of it where a person's function decides that."""
    if isinstance(declared.definition, View) or declared.reading.stream is not None:
        return frozenset(fields_of(declared.reading.topics[0].event))
    return frozenset(declared.definition.fields())


@contextmanager
def _only_runner(locks: Path, view: str) -> Iterator[None]:
    """Two runs of one view on one checkpoint would each undo the other's commits."""
    locks.mkdir(parents=True, exist_ok=True)
    with (locks / f"{view}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise RunError(
                "already-running",
                f"another process runs {view}",
                why="two runs on one checkpoint would undo each other's commits",
                fix=f"stop the other one, or leave {view} out with --views",
            ) from error
        yield
