"""All views of a project, or a named few, in one Spark application: one that fails does not stop the others."""

from __future__ import annotations

import fcntl
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from leftfold.errors import RunError
from leftfold.kafka.admin import Admin
from leftfold.kafka.registry import SchemaRegistry, subject_of
from leftfold.run.progress import Progress
from leftfold.run.view import Place, RunningView
from leftfold.settings import Kafka, Online, Profile
from leftfold.spark.checkpoint import set_aside
from leftfold.spark.session import build_session
from leftfold.spark.source import Source
from leftfold.spec.catalog import Catalog
from leftfold.spec.schema import avro_schema

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

    def run(self, look: Callable[[list[Progress]], None]) -> list[Progress]:
        """Until all views have ended; `look` is called on every round."""
        with ExitStack() as held:
            for view in self.views:
                held.enter_context(_only_runner(self._options.locks, view.definition.view))
            look(self.progress)
            session = build_session(
                self._profile.spark, application=self._options.application, log_file=self._options.log_file
            )
            try:
                for name in self._options.fresh:
                    set_aside(session, self._checkpoint(name))
                for view in self.views:
                    view.start(session, until_caught_up=self._options.until_caught_up)
                self._watch(look)
            finally:
                session.stop()
        return self.progress

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
        definition, topic = declared.__leftfold_definition__, declared.__leftfold_topic__
        physical = self._profile.topic_name(topic.name, external=topic.external)
        observed = self._engines.admin.topics([physical])
        schemas = self._engines.registry.versions(subject_of(physical))
        if physical not in observed or not schemas:
            raise RunError(
                "not-applied",
                f"{name} reads topic {physical}, which {'has no schema' if physical in observed else 'does not exist'}",
                why="a view needs its topic and the schema of its records",
                fix="ask the topic's owner to create it with a schema" if topic.external else "leftfold apply --yes",
                source=declared.__leftfold_source__,
            )
        source = Source(
            topic=physical,
            partitions=observed[physical].partitions,
            kafka=self._engines.kafka,
            reader_schema=avro_schema(topic.event, only=definition.fields()),
            writer_schemas=schemas,
        )
        place = Place(
            online_url=self._engines.online.url.get_secret_value(),
            namespace=self._profile.namespace,
            checkpoint=self._checkpoint(name),
            log_file=str(self._options.log_file),
        )
        return RunningView(definition, source, place, admin=self._engines.admin, registry=self._engines.registry)

    def _checkpoint(self, view: str) -> str:
        """One per definition: a changed definition never continues another's state."""
        fingerprint = self._catalog.view(view).__leftfold_definition__.fingerprint
        return f"{self._options.checkpoints}/{view}/{fingerprint}"


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
