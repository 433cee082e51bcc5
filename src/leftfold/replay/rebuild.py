"""A view's definition run over all of history into a build of its own, beside the one that readers follow.

Closed tiles are made by one batch scan up to frozen ends, open ones by a stream that starts early enough; `spark.past`
says how they meet. Nothing here moves readers. Any process may die at any line:

- before the scan is done, what was frozen stands beside the checkpoint's place; the next rebuild scans it again, into
  the same build, whose rows it writes once more with the same values;
- after it, the checkpoint appears in one rename, without a batch yet; any run goes on from there.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from leftfold import clock
from leftfold.errors import RunError
from leftfold.kafka.changelog import close as close_changelogs
from leftfold.replay.cut import can_be_cut, freeze, still_there
from leftfold.run import redrive
from leftfold.run.progress import History, Progress
from leftfold.run.supervisor import Supervisor, build_lock, only_runner
from leftfold.settings import Spark
from leftfold.spark.checkpoint import create, drop_frozen, frozen_in, set_aside, standing
from leftfold.spark.checkpoint import freeze as write_frozen
from leftfold.spark.history import over_history
from leftfold.spark.past import Frozen
from leftfold.spark.scanning import Scan, ScanStoppedError, bounded, scanned
from leftfold.spark.session import build_session
from leftfold.store.standings import Standing, Standings

if TYPE_CHECKING:
    from leftfold.spark.session import DataFrame, SparkSession

_LOOK_EVERY_S = 0.2
# The moments that a test can stop at, in their order.
STEPS = ("frozen", "scanned", "created")


@dataclass(frozen=True)
class RebuildOptions:
    view: str
    since: int | None  # only what was logged from then on, µs
    again: bool  # what an earlier rebuild has done is left aside
    until_caught_up: bool
    cores: int  # that it takes at most
    locks: Path


class Rebuild:
    def __init__(
        self,
        supervisor: Supervisor,
        standings: Standings,
        spark: Spark,
        options: RebuildOptions,
        *,
        log_file: Path,
    ) -> None:
        self.view = supervisor.view(options.view, staged=True)
        self.at_step: Callable[[str], None] = lambda step: None
        self._standings = standings
        self._spark = spark
        self._options = options
        self._log_file = log_file
        self._stop = threading.Event()

    @property
    def progress(self) -> Progress:
        return self.view.progress

    def stop(self) -> None:
        """End after the batch at hand, or drop the scan. Safe to call from a signal handler."""
        self._stop.set()

    def run(self, look: Callable[[Progress], None], *, session: SparkSession | None = None) -> Progress:
        """Until it is stopped, has caught up, or failed. A `session` that is given goes on after it."""
        view = self.view
        with ExitStack() as held:
            held.callback(view.close)
            if view.known_fingerprint is not None:  # what is refused is refused before Spark starts
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
            held.enter_context(only_runner(self._options.locks, build_lock(view)))
            if self._made(session, look):
                view.start(session, until_caught_up=self._options.until_caught_up)
                self._watch(look)
        return self.progress

    def _watch(self, look: Callable[[Progress], None]) -> None:
        while self.view.running:
            time.sleep(_LOOK_EVERY_S)
            if self._stop.is_set():
                self.view.stop()
            self.view.poll()
            look(self.progress)

    # The build -------------------------------------------------------------------------------------------------

    def _made(self, session: SparkSession, look: Callable[[Progress], None]) -> bool:
        """See that there is a checkpoint to go on with; False if that was stopped."""
        view, found = self.view, standing(session, self.view.checkpoint)
        builds = self._standings.of(view.name)
        self._refuse_known(builds, view.definition.fingerprint)
        mine = None if found is None else f"{view.definition.fingerprint}-{found.id[:8]}"
        if mine is not None and mine == builds.staged and not self._options.again:
            return True
        if not can_be_cut(view.definition):
            self._refuse_from()
        set_aside(session, view.checkpoint)
        frozen = self._frozen(session) if can_be_cut(view.definition) else None
        if frozen is not None:
            return self._scan(session, frozen, look)
        # There is nothing to scan. It is staged before a run could take it for its own.
        drop_frozen(session, view.checkpoint)
        id = str(uuid.uuid4())
        view.reserve(id)
        create(session, view.checkpoint, id)
        return True

    def _refuse_known(self, builds: Standing, fingerprint: str) -> None:
        mine = f"{fingerprint}-"
        if builds.followed is not None and builds.followed.startswith(mine):
            raise RunError(
                "rebuild-unchanged",
                f"readers of {self.view.name} follow {builds.followed}, which has this definition already",
                why="a build is a definition and what it was made of; the same again would share its checkpoint",
                fix=f"declare it otherwise first; leftfold run --fresh {self.view.name} reads the log again as it is",
            )
        kept = builds.previous
        if kept is not None and kept.build.startswith(mine) and kept.until > clock.now_us():
            raise RunError(
                "rebuild-kept",
                f"{kept.build}, which readers of {self.view.name} have left, has this definition and is still kept",
                why="it can take them back as it is, and a rebuild would share its checkpoint",
                fix=f"leftfold rollback {self.view.name}",
            )

    def _refuse_from(self) -> None:
        if self._options.since is not None:
            raise RunError(
                "rebuild-from",
                f"{self.view.name} cannot be rebuilt from a moment on",
                why="it is a table, a function, of everything that ever happened, or of a topic whose log times are no "
                "broker's: its stream reads the log from its start",
                fix=f"leave --from out: leftfold rebuild {self.view.name}",
            )

    def _frozen(self, session: SparkSession) -> Frozen | None:
        """What a rebuild that died had frozen, if it can still be read; else what is in the log now."""
        view, options = self.view, self._options
        begun = None if options.again else frozen_in(session, view.checkpoint)
        admin, source = view.admin, view.source
        if begun is not None and begun.since == options.since and still_there(session, admin, source, begun):
            return begun
        frozen = freeze(session, admin, source, view.tiles.definition, options.since)
        if frozen is not None:
            write_frozen(session, view.checkpoint, frozen)
            self.at_step("frozen")
        return frozen

    def _scan(self, session: SparkSession, frozen: Frozen, look: Callable[[Progress], None]) -> bool:
        """All closed tiles, as the rows of batch 0; then the checkpoint that the stream goes on with."""
        view = self.view
        self.progress.state = "reading history"
        scan = Scan(session, view.source, frozen)
        try:
            past = scan.run(
                lambda own: over_history(lambda: view.write_history(frozen, self._rows(own, frozen))),
                lambda: self._look(scan, look),
            )
        except ScanStoppedError:
            self.progress.state = "stopped"
            return False
        except RunError as error:
            if view.learn(str(error.__cause__)):  # a schema that appeared after the start
                return self._scan(session, frozen, look)
            raise
        self.at_step("scanned")
        create(session, view.checkpoint, frozen.id, past)
        self.at_step("created")
        self.progress.history = History(scan.total, scan.total, scan.seconds)
        return True

    def _look(self, scan: Scan, look: Callable[[Progress], None]) -> bool:
        """Now and then while it scans; whether it is to go on."""
        self.progress.history = History(scan.done, scan.total, scan.seconds)
        self.view.beat()
        look(self.progress)
        return not self._stop.is_set()

    def _rows(self, own: SparkSession, frozen: Frozen) -> DataFrame:
        view = self.view
        again = redrive.everything(own, view.source, view.admin, view.redrive_topic, since=frozen.firsts)
        return scanned(own, view.source, view.tiles, frozen, again)
