"""Rebuild (backfill): run a view's definition over all of history, into a build next to the one that readers follow.

One batch scan up to frozen end offsets makes the closed tiles. A stream that starts early enough makes the open ones;
`spark.cutover` explains how the two meet. Nothing here moves readers. The process may die at any line:

- Before the scan is done, the frozen offsets are stored next to the checkpoint's place. The next rebuild scans them
  again into the same build, and writes the same rows with the same values.
- After the scan, the checkpoint appears in one rename, without a batch yet. Any run continues from there.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from leftfold import clock
from leftfold.errors import RunError
from leftfold.fold.build_id import BuildId
from leftfold.kafka.changelog import close as close_changelogs
from leftfold.rebuild.cut import freeze, still_there, uncut
from leftfold.run import redrive
from leftfold.run.crew import Crew, Pulse
from leftfold.run.deaths import remembered_death
from leftfold.run.deployment import Deployment
from leftfold.run.progress import HistoryProgress, Progress
from leftfold.run.supervisor import build_lock, only_runner
from leftfold.spark.checkpoint import create, drop_frozen, frozen_in, set_aside, standing
from leftfold.spark.checkpoint import freeze as write_frozen
from leftfold.spark.cutover import FrozenHistory, Past
from leftfold.spark.history.records import over_history
from leftfold.spark.history.scan import Scan, ScanStoppedError, bounded, scanned
from leftfold.spark.session import build_session
from leftfold.store.standings import Standing, Standings

if TYPE_CHECKING:
    from leftfold.spark.session import DataFrame, SparkSession

# The steps at which a test can stop a rebuild, in order.
STEPS = ("frozen", "scanned", "created")


@dataclass(frozen=True)
class RebuildOptions:
    view: str
    since: int | None  # read only what was logged from this moment on (µs); None: all of history
    restart: bool  # start from the beginning, and set aside what an earlier rebuild did
    until_caught_up: bool
    cores: int  # the most cores that it uses


class Rebuild:
    def __init__(
        self,
        deployment: Deployment,
        standings: Standings,
        options: RebuildOptions,
        *,
        log_file: Path,
    ) -> None:
        self.view = deployment.view(options.view, staged=True)
        self.at_step: Callable[[str], None] = lambda step: None
        self._standings = standings
        self._spark = deployment.profile.spark
        self._locks = deployment.locks
        self._options = options
        self._log_file = log_file
        self._stop = threading.Event()

    @property
    def progress(self) -> Progress:
        return self.view.progress

    def stop(self) -> None:
        """End after the current batch, or abandon the scan. Safe to call from a signal handler."""
        self._stop.set()

    def run(self, look: Callable[[Progress], None], *, session: SparkSession | None = None) -> Progress:
        """Run until stopped, caught up or failed. Return the progress. A `session` that is given is left running."""
        view = self.view
        with remembered_death(self._locks, [view]), ExitStack() as held:
            held.callback(view.close)
            held.enter_context(Pulse([view]))
            if view.known_fingerprint is not None:  # refuse before Spark starts, where that is possible
                self._refuse_known(self._standings.of(view.name), view.known_fingerprint)
            look(self.progress)
            if session is None:
                name = f"leftfold rebuild {view.name}"
                session = build_session(
                    bounded(self._spark, self._options.cores),
                    application=name,
                    log_file=self._log_file,
                    lake=any(view.source.archives),  # they are Delta tables
                )
                held.callback(session.stop)
                held.callback(close_changelogs)
            view.prepare(session)
            held.enter_context(only_runner(self._locks, build_lock(view)))
            if self._make_checkpoint(session, look):
                crew = held.enter_context(Crew(session, self._stop, until_caught_up=self._options.until_caught_up))
                crew.take(view)
                crew.watch(lambda: look(self.progress))
        return self.progress

    # The build -------------------------------------------------------------------------------------------------

    def _make_checkpoint(self, session: SparkSession, look: Callable[[Progress], None]) -> bool:
        """Make sure that there is a checkpoint to continue from. Return False if that was stopped."""
        view, state = self.view, standing(session, self.view.checkpoint)
        builds = self._standings.of(view.name)
        self._refuse_known(builds, view.definition.fingerprint)
        mine = None if state is None else str(BuildId.of(view.definition.fingerprint, state.id))
        if mine is not None and mine == builds.staged and not self._options.restart:
            return True
        if (reason := uncut(view.definition)) is not None:
            self._refuse_from(reason)
        set_aside(session, view.checkpoint)
        frozen = self._frozen(session) if reason is None else None
        if frozen is not None:
            return self._scan(session, frozen, look)
        # There is nothing to scan. The build is staged before its checkpoint appears: else a run could take it over.
        drop_frozen(session, view.checkpoint)
        id = str(uuid.uuid4())
        view.reserve(id)
        create(session, view.checkpoint, id)
        return True

    def _refuse_known(self, builds: Standing, fingerprint: str) -> None:
        if builds.followed is not None and BuildId.parse(builds.followed).fingerprint == fingerprint:
            raise RunError(
                "rebuild-unchanged",
                f"readers of {self.view.name} follow {builds.followed}, which has this definition already",
                why="a build is a definition and what it was made of; the same again would share its checkpoint",
                fix=f"change its definition first; leftfold run --fresh {self.view.name} reads the log again as it is",
            )
        prior = builds.previous
        if prior is not None and prior.until > clock.now_us() and BuildId.parse(prior.build).fingerprint == fingerprint:
            raise RunError(
                "rebuild-kept",
                f"{prior.build}, which readers of {self.view.name} have left, has this definition and is still kept",
                why="it can take them back as it is, and a rebuild would share its checkpoint",
                fix=f"leftfold rollback {self.view.name}",
            )

    def _refuse_from(self, reason: str) -> None:
        if self._options.since is not None:
            raise RunError(
                "rebuild-from",
                f"{self.view.name} cannot be rebuilt with --from",
                why=f"{reason}, so its rebuild has to read the log from the start",
                fix=f"leftfold rebuild {self.view.name}, without --from",
            )

    def _frozen(self, session: SparkSession) -> FrozenHistory | None:
        """Return the frozen offsets to scan, or None if there is nothing to scan.

        They are those of a rebuild that died, if they can still be read; else those of what archive and log hold now.
        """
        view, options = self.view, self._options
        begun = None if options.restart else frozen_in(session, view.checkpoint)
        admin, source = view.admin, view.source
        if begun is not None and begun.since == options.since and still_there(session, admin, source, begun):
            return begun
        frozen = freeze(session, admin, source, view.tiles.definition, options.since)
        if frozen is not None:
            write_frozen(session, view.checkpoint, frozen)
            self.at_step("frozen")
        return frozen

    def _scan(self, session: SparkSession, frozen: FrozenHistory, look: Callable[[Progress], None]) -> bool:
        """Write all closed tiles as the rows of batch 0, then create the checkpoint that the stream continues from.

        Return False if the scan was stopped.
        """
        view = self.view
        self.progress.state = "reading history"
        while True:
            scan = Scan(session, view.source, frozen)
            try:
                past = self._scanned(scan, frozen, look)
            except ScanStoppedError:
                self.progress.state = "stopped"
                return False
            except RunError as error:
                if not view.learn(str(error.__cause__)):  # a schema that appeared after the start
                    raise
            else:
                break
        self.at_step("scanned")
        create(session, view.checkpoint, frozen.id, past)
        self.at_step("created")
        self.progress.history = HistoryProgress(scan.total, scan.total, scan.seconds)
        return True

    def _scanned(self, scan: Scan, frozen: FrozenHistory, look: Callable[[Progress], None]) -> Past:
        return scan.run(
            lambda own: over_history(lambda: self.view.write_history(frozen, self._rows(own, frozen))),
            lambda: self._look(scan, look),
        )

    def _look(self, scan: Scan, look: Callable[[Progress], None]) -> bool:
        """Report the progress of the scan, from time to time. Return whether the scan is to continue."""
        self.progress.history = HistoryProgress(scan.done, scan.total, scan.seconds)
        look(self.progress)
        return not self._stop.is_set()

    def _rows(self, own: SparkSession, frozen: FrozenHistory) -> DataFrame:
        view = self.view
        again = redrive.everything(own, view.source, view.admin, view.redrive_topic, since=frozen.firsts)
        return scanned(own, view.source, view.tiles, frozen, again)
