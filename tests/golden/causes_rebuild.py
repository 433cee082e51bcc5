"""How to provoke errors of rebuilding a view, of comparing builds and of moving readers."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest import mock

from leftfold.fold.expressions import to_micros
from leftfold.rebuild import promote
from leftfold.rebuild.cut import check_stream
from leftfold.store.builds import remove_rows
from leftfold.store.layout import LedgerRow
from leftfold.store.standings import Previous, Standing, Standings
from tests.golden.causes import DEAD, NOON, VIEW, Cause, stand_in
from tests.golden.causes_store import built, deployment, store_lacks, view_ends
from tests.golden.causes_views import ITEMS, TABLE

OLD, NEW = "0123456789ab-00000000", "ba9876543210-00000000"
DAY = 86_400_000_000
BY_PRODUCER = 'clicks = lf.Topic("more", Click, key=Click.user_id, time=Click.at, log_time="producer")\n\n\n'
STOPPED = "org.apache.spark.SparkRuntimeException: [USER_RAISED_EXCEPTION] leftfold-history-not-closed SQLSTATE: P0001"


def standing(
    *, followed: str | None = OLD, staged: str | None = NEW, kept: str | None = None, waiting: str | None = None
) -> Any:
    """Of a store in which the staged build has read a tenth of what the other one has."""
    previous = Previous(kept, to_micros(NOON)) if kept else None
    read = {OLD: 50_000, NEW: 5_000}
    return stand_in(
        of=lambda view: Standing(view, followed, staged, previous),
        waiting_for=lambda *_: waiting,
        position=lambda _, build: (7, [LedgerRow("clicks", 0, "accepted", 1, 0, 0, read[build])]),
        manifest=lambda *_: None,
    )


def promoted(**builds: Any) -> Cause:
    def cause(_: Path) -> None:
        promote.promote("user_activity", standing(**builds), keep=DAY)

    return cause


def rolled_back(**builds: Any) -> Cause:
    def cause(_: Path) -> None:
        with mock.patch("leftfold.clock.now_us", return_value=to_micros(NOON) + DAY):
            promote.roll_back("user_activity", standing(**builds))

    return cause


def builds_moved(_: Path) -> None:
    standings = Standings(f"redis://{DEAD}/0", "")
    standings._store = stand_in(promote=lambda *_: False)
    standings.promote(Standing("user_activity", OLD, NEW, None), keep=DAY)


def build_needed(_: Path) -> None:
    store = mock.MagicMock()
    store.retire.return_value = "staged"
    store.__enter__.return_value = store
    with mock.patch("leftfold.store.builds.open_store", return_value=store):
        remove_rows(f"redis://{DEAD}/0", "", "user_activity", NEW)


def rebuilt(*, role: str) -> Cause:
    """Of a definition that a build has already."""

    def cause(tmp: Path) -> None:
        from leftfold.rebuild.rebuild import Rebuild, RebuildOptions

        mine = built(tmp)
        found = standing(followed=mine.id) if role == "followed" else standing(kept=mine.id)
        options = RebuildOptions("user_activity", None, restart=False, until_caught_up=True, cores=1)
        deployed = deployment(tmp, topics={"clicks": 6})
        rebuild = Rebuild(deployed, found, options, log_file=tmp / "spark.log")
        with mock.patch("leftfold.clock.now_us", return_value=to_micros(NOON) - DAY):
            rebuild._refuse_known(found.of("user_activity"), mine.definition.fingerprint)

    return cause


def rebuilt_from(view: str, *, streams: str) -> Cause:
    def cause(tmp: Path) -> None:
        from leftfold.rebuild.cut import uncut
        from leftfold.rebuild.rebuild import Rebuild, RebuildOptions

        options = RebuildOptions(view, to_micros(NOON), restart=False, until_caught_up=True, cores=1)
        deployed = deployment(tmp, topics={"clicks": 6, "items": 6, "more": 6}, streams=streams)
        reason = uncut(deployed.catalog.view(view).definition)
        assert reason is not None
        Rebuild(deployed, standing(), options, log_file=tmp / "spark.log")._refuse_from(reason)

    return cause


def rebuild_failed(_: Path) -> None:
    from pyspark.errors import PySparkException

    from leftfold.spark.history.scan import _explained

    raise _explained(
        PySparkException("Job aborted\nCaused by: java.io.IOException: No space left on device\n at a.b(C)")
    )


def checkpoint_not_made(tmp: Path) -> None:
    from leftfold.spark import checkpoint

    files = stand_in(create=lambda *_: stand_in(close=lambda: None), rename=lambda *_: False)
    jvm = mock.MagicMock()
    jvm.org.apache.hadoop.fs.Path.return_value.getFileSystem.return_value = files
    session = stand_in(sparkContext=stand_in(_jvm=jvm, _jsc=mock.MagicMock()))
    checkpoint.create(session, f"{tmp}/checkpoints/user_activity/0123456789ab", "id")


def compared(*, view: str = "user_activity", streams: str = VIEW, **builds: Any) -> Cause:
    def cause(tmp: Path) -> None:
        from leftfold.rebuild.compare import CompareOptions, Comparing

        deployed = deployment(tmp, topics={"clicks": 6, "items": 6, "more": 6}, streams=streams)
        found = standing(**builds)
        if view == "item":
            found.manifest = lambda *_: _manifest(tmp, streams)
        declared = deployed.catalog.view(view)
        Comparing(deployed, found, declared, CompareOptions(None, None, {}, 0.0, 5)).choice()

    return cause


def _manifest(tmp: Path, streams: str) -> str:
    from leftfold.store.layout import manifest

    return manifest(built(tmp, "item", streams))


def table_unreadable(_: Path) -> None:
    from pyspark.errors import AnalysisException

    from leftfold.spark.history import differences

    def parquet(location: str) -> Any:
        raise AnalysisException(f"[PATH_NOT_FOUND] Path does not exist: file:{location}. SQLSTATE: 42K03")

    session = stand_in(read=stand_in(parquet=parquet))
    with (
        mock.patch.object(differences, "absolute", side_effect=lambda _, location: location),
        mock.patch.object(differences, "exists", return_value=False),
    ):
        differences.table_at(session, "/lake/theirs", [], {})


def only_archived(_: Path) -> None:
    check_stream({"clicks": {0: 500, 1: 80}}, {"clicks": {0: 900, 1: 80}})


CAUSES: dict[str, Cause] = {
    "rebuild-needs-log": only_archived,
    "nothing-staged": promoted(staged=None),
    "not-caught-up": promoted(),
    "not-caught-up/history": promoted(waiting="its history is still being read"),
    "not-caught-up/compare": compared(),
    "nothing-kept": rolled_back(),
    "nothing-kept/expired": rolled_back(kept=NEW),
    "builds-moved": builds_moved,
    "build-needed": build_needed,
    "rebuild-unchanged": rebuilt(role="followed"),
    "rebuild-kept": rebuilt(role="kept"),
    "rebuild-failed": rebuild_failed,
    "rebuild-from": rebuilt_from("item", streams=ITEMS + TABLE + VIEW),
    "rebuild-from/lifetime": rebuilt_from("user_activity", streams=VIEW.replace('"1h"', "window=None")),
    "rebuild-from/producer": rebuilt_from("user_activity", streams=BY_PRODUCER + VIEW),
    "checkpoint-not-made": checkpoint_not_made,
    "history-lost": store_lacks("history"),
    "history-not-closed": view_ends(failure=STOPPED),
    "nothing-to-compare": compared(staged=None),
    "not-comparable": compared(view="item", streams=ITEMS + TABLE + VIEW),
    "table-unreadable": table_unreadable,
}
