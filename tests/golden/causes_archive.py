"""How to provoke errors of archives."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest import mock

from leftfold.offsets import Range, Ranges
from tests.golden.causes import EVENT, HEAD, TOPIC, VIEW, Cause, declares, project, stand_in

ARCHIVED = TOPIC.replace("time=Click.at", "time=Click.at, archive=True")
NOON = 1_768_000_000_000_000


def topic(tmp: Path) -> Any:
    return project(tmp, HEAD + EVENT + ARCHIVED).catalog.topic("clicks")


def checked(firsts: dict[int, int], logged: dict[int, int]) -> Cause:
    def cause(_: Path) -> None:
        from leftfold.run.intake import check_archive

        admin = stand_in(start_offsets=lambda *_: firsts, end_offsets=lambda *_: logged)
        check_archive("clicks", "prod.clicks", {0: 400, 1: 80}, admin, 2)

    return cause


def taken_over(_: Path) -> None:
    from leftfold.spark.history import archive

    found = archive.ArchivePosition(7, "id", {0: 120, 1: 80}, {}, "a")
    with mock.patch.object(archive, "position", return_value=found):
        to = archive.ArchivePosition(-1, "id", {0: 110, 1: 80}, {}, "b")
        archive.append_batch(
            stand_in(), stand_in(), "lake/archive/clicks", topic="clicks", to=to, starts={0: 100, 1: 80}, first=False
        )


def another_topic(_: Path) -> None:
    from leftfold.spark.history.records import check_topic

    check_topic("clicks", "Jk3vZx0dQ4uGv1R2c9qYfA", "p8Q2mW7sTtGk0aB5nXcVhQ")


def history_gap(*archives: str) -> Cause:
    def cause(_: Path) -> None:
        from leftfold.spark.history import records as history

        source = stand_in(topics=("clicks",), partitions=(2,), archives=archives, kafka=None)
        held = {"clicks": stand_in(ranges=Ranges.of([Range("clicks", 0, 0, 300)]))} if archives else {}
        admin = stand_in(start_offsets=lambda *_: {0: 500, 1: 0})
        with (
            mock.patch.object(history, "Admin", return_value=admin),
            mock.patch.object(history, "archives_of", return_value=held),
            mock.patch.object(history, "_LOOK_AGAIN_S", 0.0),
        ):
            history.read_history(stand_in(), source, {"clicks": {}}, {"clicks": {0: 900, 1: 900}})

    return cause


def archives(tmp: Path, declared: str = ARCHIVED, **admin: Any) -> Any:
    from leftfold.replay.archives import Archives

    app = project(tmp, HEAD + EVENT + declared)
    known = {"partitions": lambda names: dict.fromkeys(names, 2), "topic_ids": lambda names: dict.fromkeys(names, "id")}
    return Archives(
        app.catalog,
        app.profile,
        "lake",
        stand_in(),
        stand_in(**{**known, **admin}),
        stand_in(id_of=lambda *_: 7),
        tmp / "locks",
        stand_in(),
        stand_in(),
    )


def not_archived(tmp: Path) -> None:
    archives(tmp, TOPIC).show("clicks")


def topic_not_applied(tmp: Path) -> None:
    archives(tmp, partitions=lambda names: {}).show("clicks")


def not_the_gap(tmp: Path) -> None:
    from leftfold.spark.history import archive

    found = archive.ArchivePosition(7, "id", {0: 400, 1: 80}, {}, "a")
    with mock.patch.multiple(archive, position=lambda *_: found, exists=lambda *_: True):
        archives(tmp, start_offsets=lambda *_: {0: 500, 1: 80}).skip("clicks", {0: (400, 450)})


def importing(**found: Any) -> Cause:
    """An import into an archive that is not there, of a table of which this is found."""

    def cause(tmp: Path) -> None:
        from leftfold.replay import archives as module
        from leftfold.spark.history import archive, imports

        span = imports.Span(1_000, NOON - 7_200_000_000, NOON)
        digests = iter(range(2))
        seen: dict[str, Any] = dict.fromkeys(("opened", "as_records", "placed", "past"), lambda *_, **__: stand_in())
        seen |= {"span": lambda _: found.get("span", (span, 0)), "until": lambda rows, _: rows}
        seen["digest"] = lambda _: next(digests)
        with (
            mock.patch.multiple(imports, **seen),
            mock.patch.multiple(
                archive,
                make=lambda *_: None,
                imported=lambda *_: found.get("imported", {}),
                imports_of=lambda *_: 0,
            ),
            mock.patch.object(module, "version_of", return_value=3),
            mock.patch.object(module.Archives, "_first_logged", return_value=NOON - 3_600_000_000),
        ):
            archives(tmp).import_table("s3a://lake/old_clicks", "clicks", columns={}, time="received")

    return cause


def misfit(**columns: str) -> Cause:
    def cause(tmp: Path) -> None:
        from pyspark.sql import types as T

        from leftfold.spark.history import imports

        shape = T.StructType([T.StructField("received", T.TimestampType()), T.StructField("at", T.TimestampNTZType())])
        imports.as_records(stand_in(schema=shape), topic(tmp), 7, columns=columns, time="received", partitions=2)

    return cause


def unreadable(_: Path) -> None:
    from pyspark.errors import AnalysisException

    from leftfold.spark.history import imports

    def load(_: str) -> None:
        raise AnalysisException("[PATH_NOT_FOUND] Path does not exist: s3a://lake/old_clicks.")

    session = stand_in(read=stand_in(format=lambda _: stand_in(load=load)))
    with mock.patch.object(imports, "exists", return_value=False):
        imports.opened(session, "s3a://lake/old_clicks")


CAUSES: dict[str, Cause] = {
    "compacted-archive": declares(TOPIC.replace("time=Click.at", "time=Click.at, compacted=True, archive=True")),
    "reserved-name/archive": declares(
        VIEW.replace("class UserActivity", "class Archive").replace("user_id)", "user_id, to=[lf.Online(), lf.Lake()])")
    ),
    "archive-gap": checked({0: 500, 1: 80}, {0: 900, 1: 80}),
    "archive-ahead": checked({0: 0, 1: 0}, {0: 350, 1: 80}),
    "archive-taken-over": taken_over,
    "archive-of-another-topic": another_topic,
    "history-gap": history_gap("lake/archive/clicks"),
    "history-gap/log": history_gap(),
    "not-archived": not_archived,
    "not-applied/archive": topic_not_applied,
    "not-the-gap": not_the_gap,
    "already-imported": importing(imported={0: -500}),
    "import-overlaps": importing(),
    "import-empty": importing(span=(None, 0)),
    "import-nulls": importing(span=(None, 12)),
    "import-misfit": misfit(),
    "import-misfit/field": misfit(userid="u"),
    "import-unreadable": unreadable,
}
