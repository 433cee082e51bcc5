"""Runs all views of a project, or a named few, in one Spark application. A view that fails does not stop the others.

In addition to the views, it runs the intakes of the topics that they read, and the lakes that their changelogs feed.
"""

from __future__ import annotations

import fcntl
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leftfold import private
from leftfold.declare.companions import (
    changelog_topic,
    companions_of,
    late_topic,
    receipts_table,
    rejects_topic,
)
from leftfold.declare.event import fields_of
from leftfold.declare.sinks import Lake
from leftfold.declare.topic import Topic
from leftfold.errors import RunError
from leftfold.kafka.changelog import close as close_changelogs
from leftfold.run.crew import Crew, Pulse
from leftfold.run.deaths import remembered_death
from leftfold.run.deployment import Deployment
from leftfold.run.intake import RunningIntake
from leftfold.run.lake import RunningLake, lake_name
from leftfold.run.progress import Progress
from leftfold.run.running import Running
from leftfold.run.view import RunningView
from leftfold.spark.checkpoint import set_aside
from leftfold.spark.session import build_session
from leftfold.spark.sinks.intake import IntakeTopics

if TYPE_CHECKING:
    from leftfold.spark.session import SparkSession


@dataclass(frozen=True)
class RunOptions:
    views: Sequence[str]
    until_caught_up: bool
    fresh: frozenset[str]  # names whose checkpoint is set aside: these views, intakes or lakes start over
    take_over: bool  # a changed definition takes readers over once it has caught up; else it waits for `promote`


class Supervisor:
    def __init__(self, deployment: Deployment, options: RunOptions) -> None:
        self._deployment = deployment
        self._catalog = deployment.catalog
        self._profile = deployment.profile
        self._engines = deployment.engines
        self._options = options
        self._stop = threading.Event()
        self.views = [deployment.view(name, take_over=options.take_over) for name in options.views]
        self._check_companions()
        self.helpers: list[Running] = [*self._intakes(), *self._lakes()]

    @property
    def progress(self) -> list[Progress]:
        """The progress of the views, in their order, and then of intakes and lakes."""
        return [one.progress for one in self._all]

    @property
    def _all(self) -> list[Running]:
        return [*self.views, *self.helpers]

    def stop(self) -> None:
        """End each query after its current batch, and each start at once. Safe to call from a signal handler."""
        self._stop.set()

    def run(self, look: Callable[[list[Progress]], None], *, session: SparkSession | None = None) -> list[Progress]:
        """Run everything until all queries have ended. `look` is called on every round.

        A given `session` is not stopped afterwards. Without one, a session is started and stopped here.
        """
        with remembered_death(self._deployment.locks, self._all), ExitStack() as held:
            for view in self.views:
                held.enter_context(only_runner(self._deployment.locks, view.name))
            self.helpers = [one for one in self.helpers if self._is_ours(one, held)]
            look(self.progress)
            if session is None:
                session = build_session(
                    self._profile.spark,
                    application=self._deployment.application,
                    log_file=self._deployment.log_file,
                    lake=self._needs_delta,
                )
                held.callback(session.stop)
                held.callback(close_changelogs)
            for one in self._all:
                one.prepare(session)  # all first: an error must come before anything starts
            for view in self.views:  # a rebuild in another process may run the same build
                held.enter_context(only_runner(self._deployment.locks, build_lock(view)))
            for one in self._all:
                if one.name in self._options.fresh:
                    set_aside(session, one.checkpoint)
            self._deployment.publish()
            self._watch(session, look)
        return self.progress

    @property
    def _needs_delta(self) -> bool:
        """True if there is a lake or an archive. A repair reads the archive even if another application feeds it."""
        lakes = any(isinstance(one, RunningLake) for one in self.helpers)
        return lakes or any(topic.archive for topic in self._topics().values())

    def _is_ours(self, helper: Running, held: ExitStack) -> bool:
        """Return whether this process runs the helper. If another process has its lock, that one runs it."""
        try:
            held.enter_context(only_runner(self._deployment.locks, helper.name))
        except RunError:
            return False
        return True

    def _watch(self, session: SparkSession, look: Callable[[list[Progress]], None]) -> None:
        with Pulse(self.views), Crew(session, self._stop, until_caught_up=self._options.until_caught_up) as crew:
            for one in self._all:
                crew.take(one, after=self._before(one))
            crew.watch(lambda: look(self.progress))

    def _before(self, one: Running) -> list[Running]:
        """The queries that must end before `one` starts.

        With `until_caught_up`, a lake starts after its view has ended, so that it includes all that the view adds.
        """
        if not self._options.until_caught_up:
            return []
        return [view for view in self.views if lake_name(view.name) == one.name]

    def _intakes(self) -> Iterator[RunningIntake]:
        for topic in self._topics().values():
            late = None if topic.compacted else self._profile.topic_name(late_topic(topic.name))
            names = IntakeTopics(self._profile.topic_name(rejects_topic(topic.name)), late)
            yield RunningIntake(
                topic,
                self._deployment.source((topic,), frozenset(fields_of(topic.event)), who=topic.name, at=topic.source),
                names,
                keyed=self._catalog.keys_of(topic),
                checkpoints=self._deployment.checkpoints,
                log_file=str(self._deployment.log_file),
                admin=self._engines.admin,
                registry=self._engines.registry,
            )

    def _topics(self) -> dict[str, Topic[Any]]:
        """The topics that need an intake: those that the views read, and in a run of all views every archived topic."""
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
                        next(view for view in self.views if view.name == name),
                        self._engines.kafka,
                        changelog,
                        partitions=self._engines.admin.partitions_of(changelog),
                        table=f"{self._deployment.lake}/{name}",
                        receipts=receipts_table(self._deployment.lake, name),
                        checkpoints=self._deployment.checkpoints,
                        every_s=sink.every_s,
                        log_file=str(self._deployment.log_file),
                    )

    def _check_companions(self) -> None:
        """Refuse to start unless all topics exist that Leftfold keeps in addition to the declared ones."""
        names = [self._profile.topic_name(name) for name in companions_of(self._catalog)]
        there = self._engines.admin.partitions(names)
        for name in names:
            if name not in there:
                raise RunError(
                    "not-applied",
                    f"topic {name} does not exist",
                    why="receipts, and what is late, rejected or re-driven, are kept in topics of their own",
                    fix="leftfold apply",
                )


def build_lock(view: RunningView) -> str:
    """The name of the lock for one definition of a view: a rebuild may run another definition next to the live view."""
    return f"{view.name}@{view.definition.fingerprint}"


@contextmanager
def only_runner(locks: Path, view: str) -> Iterator[None]:
    """Hold the lock of a view, or refuse: two runs of one view on one checkpoint would undo each other's commits."""
    private.directory(locks)
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
