"""How to provoke errors of the changelog and of the lake."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

from leftfold.kafka import changelog
from leftfold.settings import Kafka
from tests.golden.causes import DEAD, Cause, stand_in


def changelog_not_written(_: Path) -> None:
    dead = changelog.ChangelogTopic(Kafka(bootstrap=DEAD), "user_activity.changelog", "user_activity", "b1")
    with mock.patch.object(changelog, "_ANSWER_S", 0.2):
        changelog.write(dead, 0, 7, [("u42", "60:1", "[100,7,1]")])


def lake_taken_over(_: Path) -> None:
    from leftfold.spark.sinks.lake import continues

    continues("user_activity", {0: 120, 1: 80}, {0: 100, 1: 80}, {0: 110, 1: 80})


def lake_ahead(_: Path) -> None:
    from leftfold.spark.sinks import lake

    admin = stand_in(partitions_of=lambda _: 2, end_offsets=lambda *_: {0: 10, 1: 80})
    lake._starts(admin, "user_activity.changelog", "user_activity", {0: 120, 1: 80})


CAUSES: dict[str, Cause] = {
    "changelog-not-written": changelog_not_written,
    "lake-ahead": lake_ahead,
    "lake-taken-over": lake_taken_over,
}
