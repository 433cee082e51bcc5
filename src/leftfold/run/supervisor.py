"""All views of a project, or a named few, in one Spark application: one that fails does not stop the others.

Beside the views run the intakes of the topics that they read, and the lakes that their changelogs feed.
"""

from __future__ import annotations

import fcntl
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leftfold.errors import RunError
from leftfold.errors import Source as Declared
from leftfold.kafka.admin import Admin
from leftfold.kafka.changelog import close as close_changelogs
from leftfold.kafka.receipt_log import ReceiptLog
from leftfold.kafka.registry import SchemaRegistry
from leftfold.run.intake import RunningIntake
from leftfold.run.lake import RunningLake, lake_name
from leftfold.run.progress import Progress
from leftfold.run.running import Running
from leftfold.run.sources import source_of
from leftfold.run.view import Place, RunningView
from leftfold.settings import Kafka, Online, Profile
from leftfold.spark.checkpoint import set_aside
from leftfold.spark.intake import IntakeTopics
from leftfold.spark.session import build_session
from leftfold.spark.source import Source
from leftfold.spec.catalog import Catalog, DeclaredView
from leftfold.spec.companions import (
    changelog_topic,
    companions_of,
    has_changelog,
    late_topic,
    receipts_topic,
    redrive_topic,
    rejects_topic,
)
from leftfold.spec.event import fields_of
from leftfold.spec.free import View
from leftfold.spec.sinks import Lake
from leftfold.spec.topic import Topic
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
    lake: str
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
        self._receipts = ReceiptLog(engines.kafka, profile.topic_name(receipts_topic()))
        self.views = [self.view(name) for name in options.views]
        self._check_companions()
        self.helpers: list[Running] = [*self._intakes(), *self._lakes()]

    @property
    def progress(self) -> list[Progress]:
        """Of the views, in their order, and then of what runs beside them."""
        return [one.progress for one in self._all]

    @property
    def _all(self) -> list[Running]:
        return [*self.views, *self.helpers]

    def stop(self) -> None:
        """End each query after the batch it is in. Safe to call from a signal handler."""
        self._stop.set()

    def run(self, look: Callable[[list[Progress]], None], *, session: SparkSession | None = None) -> list[Progress]:
        """Until all have ended; `look` is called on every round.

        A `session` that is given goes on after them; without one, a session is started here and stopped.
        """
        with ExitStack() as held:
            for view in self.views:
                held.enter_context(only_runner(self._options.locks, view.name))
            self.helpers = [one for one in self.helpers if self._is_ours(one, held)]
            for one in self._all:
                held.callback(one.close)
            look(self.progress)
            if session is None:
                session = build_session(
                    self._profile.spark,
                    application=self._options.application,
                    log_file=self._options.log_file,
                    lake=self._needs_delta,
                )
                held.callback(session.stop)
                held.callback(close_changelogs)
            else:
                held.callback(self._end)
            for one in self._all:
                one.prepare(session)  # all of them: what is refused is refused before anything starts
            for view in self.views:  # a rebuild beside this may run the same build
                held.enter_context(only_runner(self._options.locks, build_lock(view)))
            for one in self._all:
                if one.name in self._options.fresh:
                    set_aside(session, one.checkpoint)
            self._publish()
            self._watch(session, look)
        return self.progress

    @property
    def _needs_delta(self) -> bool:
        """Also where another application feeds the archive: a repair here reads it."""
        lakes = any(isinstance(one, RunningLake) for one in self.helpers)
        return lakes or any(topic.archive for topic in self._topics().values())

    def _is_ours(self, helper: Running, held: ExitStack) -> bool:
        """One application does it; another that reads the same topic leaves it to the first."""
        try:
            held.enter_context(only_runner(self._options.locks, helper.name))
        except RunError:
            return False
        return True

    def _end(self) -> None:
        """What an error on the way left running in a session that goes on."""
        for one in self._all:
            if one.running:
                one.stop()

    def _watch(self, session: SparkSession, look: Callable[[list[Progress]], None]) -> None:
        waiting = self._all
        while any(one.running for one in self._all):
            for one in [one for one in waiting if one.running and not self._waits(one)]:
                waiting.remove(one)
                one.start(session, until_caught_up=self._options.until_caught_up)
            time.sleep(_LOOK_EVERY_S)
            for one in self._all:
                if self._stop.is_set():
                    one.stop()
                one.poll()
            look(self.progress)

    def _waits(self, one: Running) -> bool:
        """A lake that is to catch up comes after its view: what that adds in this run is part of it."""
        views = (view for view in self.views if lake_name(view.name) == one.name)
        return self._options.until_caught_up and any(view.running for view in views)

    def view(self, name: str, *, staged: bool = False) -> RunningView:
        """One view, not started. A `staged` build of it waits for `promote`."""
        declared = self._catalog.view(name)
        source = self._source(declared.reading.topics, fields_read(declared), who=name, at=declared.source)
        changelog = self._profile.topic_name(changelog_topic(name)) if has_changelog(declared) else None
        place = Place(
            online_url=self._online_url,
            namespace=self._profile.namespace,
            checkpoints=self._options.checkpoints,
            log_file=str(self._options.log_file),
            receipts=self._receipts,
            changelog=changelog,
            redrive=self.redrive_topic(declared),
            publish=self._publish,
            staged=staged,
        )
        return RunningView(declared, source, place, admin=self._engines.admin, registry=self._engines.registry)

    def reading(self, declared: DeclaredView, fields: frozenset[str]) -> Source:
        """The topics of a view, of which these fields are decoded."""
        return self._source(declared.reading.topics, fields, who=declared.name, at=declared.source)

    def redrive_topic(self, declared: DeclaredView) -> str | None:
        """Where records of the view's topic are re-driven; None for a view that reads several or a table."""
        topics = declared.reading.topics
        redriven = topics[0] if len(topics) == 1 and not topics[0].compacted else None
        return self._profile.topic_name(redrive_topic(redriven.name)) if redriven else None

    def _intakes(self) -> Iterator[RunningIntake]:
        for topic in self._topics().values():
            late = None if topic.compacted else self._profile.topic_name(late_topic(topic.name))
            names = IntakeTopics(self._profile.topic_name(rejects_topic(topic.name)), late)
            yield RunningIntake(
                topic,
                self._source((topic,), frozenset(fields_of(topic.event)), who=topic.name, at=topic.source),
                names,
                checkpoints=self._options.checkpoints,
                log_file=str(self._options.log_file),
                admin=self._engines.admin,
                registry=self._engines.registry,
            )

    def _topics(self) -> dict[str, Topic[Any]]:
        """Those that are read; in a run of all views also those that are only archived."""
        read = {t.name: t for name in self._options.views for t in self._catalog.view(name).reading.topics}
        if set(self._options.views) == set(self._catalog.views):
            read |= {name: topic for name, topic in self._catalog.topics.items() if topic.archive}
        return read

    def _lakes(self) -> Iterator[RunningLake]:
        for name in self._options.views:
            declared = self._catalog.view(name)
            for sink in declared.sinks:
                if isinstance(sink, Lake):
                    changelog = self._profile.topic_name(changelog_topic(name))
                    yield RunningLake(
                        name,
                        self._engines.kafka,
                        changelog,
                        partitions=self._engines.admin.partitions([changelog])[changelog],
                        table=f"{self._options.lake}/{name}",
                        checkpoints=self._options.checkpoints,
                        every_s=sink.every_s,
                        log_file=str(self._options.log_file),
                    )

    def _source(self, topics: Sequence[Topic[Any]], fields: frozenset[str], *, who: str, at: Declared) -> Source:
        engines = self._engines
        return source_of(
            topics,
            fields,
            profile=self._profile,
            kafka=engines.kafka,
            lake=self._options.lake,
            admin=engines.admin,
            registry=engines.registry,
            who=who,
            at=at,
        )

    def _check_companions(self) -> None:
        """What Leftfold keeps beside the declared topics: all of it, or nothing starts."""
        names = [self._profile.topic_name(name) for name in companions_of(self._catalog)]
        there = self._engines.admin.partitions(names)
        for name in names:
            if name not in there:
                raise RunError(
                    "not-applied",
                    f"topic {name} does not exist",
                    why="receipts, and what is late, rejected or re-driven, are kept in topics of their own",
                    fix="leftfold apply --yes",
                )

    def _publish(self) -> None:
        vectors = [vector.__leftfold_definition__ for vector in self._catalog.vectors.values()]
        publish_vectors(self._online_url, self._profile.namespace, vectors)

    @property
    def _online_url(self) -> str:
        return self._engines.online.url.get_secret_value()


def fields_read(declared: DeclaredView) -> frozenset[str]:
    """What is decoded of a record: what the view reads, or all of it where a person's function decides that."""
    if isinstance(declared.definition, View) or declared.reading.stream is not None:
        return frozenset(fields_of(declared.reading.topics[0].event))
    return frozenset(declared.definition.fields())


def build_lock(view: RunningView) -> str:
    """Of one definition of a view: a rebuild runs another one beside the live view."""
    return f"{view.name}@{view.definition.fingerprint}"


@contextmanager
def only_runner(locks: Path, view: str) -> Iterator[None]:
    """Two runs of one view on one checkpoint would each undo the other's commits."""
    locks.mkdir(parents=True, exist_ok=True)
    with (locks / f"{view}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise RunError(
                "already-running",
                f"another process runs {view.partition('@')[0]}",
                why="two runs on one checkpoint would undo each other's commits",
                fix=f"stop the other one, or leave {view.partition('@')[0]} out with --views",
            ) from error
        yield
