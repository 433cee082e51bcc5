"""Copying a declared topic to another: which copies are allowed, and which offsets they cover.

A copy is the way to a new number of partitions. The target holds the same records under the same keys, and keeps the
time at which each record was first logged.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from leftfold.declare.topic import Topic
from leftfold.errors import DeclarationError, RunError
from leftfold.kafka.admin import Admin
from leftfold.kafka.copy import Copier, CopySide, Watch
from leftfold.replay.replay import FrozenRanges, frozen
from leftfold.settings import Kafka, Profile, group_id


@dataclass(frozen=True)
class Copy:
    """A copy of one topic to another, ready to run. `App.copy` makes it."""

    source: CopySide
    target: CopySide
    span: FrozenRanges  # the starts hold for the first run only; a later run continues where the last one stopped
    follow: bool
    copier: Copier

    def run(
        self,
        stopped: Callable[[], bool] = lambda: False,
        watch: Watch = lambda _copied, _left: None,
    ) -> int:
        """Copy to the end, or until `stopped` returns True. Return the number of records copied."""
        ends = None if self.follow else self.span.ends
        return self.copier.run(self.span.starts, ends, stopped=stopped, watch=watch)


def copying(
    source: Topic[Any],
    target: Topic[Any],
    profile: Profile,
    kafka: Kafka,
    admin: Admin,
    *,
    start: int | None,
    end: int | None,
    follow: bool,
) -> Copy:
    check(source, target)
    names = [profile.topic_name(topic.name, external=topic.external) for topic in (source, target)]
    partitions, ids = admin.partitions(names), admin.topic_ids(names)
    for topic, name in zip((source, target), names, strict=True):
        if name not in partitions:
            raise RunError(
                "not-applied",
                f"topic {name} does not exist",
                why="a copy needs both topics",
                fix="ask the topic's owner to create it" if topic.external else "leftfold apply",
                source=topic.source,
            )
    here, there = (
        CopySide(name, partitions[name], ids[name], topic.log_time)
        for topic, name in zip((source, target), names, strict=True)
    )
    copier = Copier(kafka, admin, here, there, group_id(profile.namespace, f"copy/{here.name}/{there.name}"))
    span = frozen(admin, here.name, here.partitions, start=start, end=end)
    return Copy(here, there, span, follow, copier)


def check(source: Topic[Any], target: Topic[Any]) -> None:
    """Raise if the records would not mean the same in the target as in the source."""
    if target.log_time != "header" or target.name == source.name:
        raise DeclarationError(
            "copy-target",
            f"{source.name} cannot be copied to {target.name}",
            why="it is the same topic"
            if target.name == source.name
            else f"its log time is the {target.log_time}'s: every record would seem to be logged when it was copied",
            fix="name another topic"
            if target.name == source.name
            else f'declare {target.name} with log_time="header"; its records then keep their first log time',
            source=target.source,
        )
    sides: list[tuple[str, Any, Any]] = [
        ("event", source.event.__name__, target.event.__name__),
        ("key", ", ".join(k.name for k in source.key), ", ".join(k.name for k in target.key)),
        ("format", source.format, target.format),
    ]
    if target.compacted and not source.compacted:
        sides.append(("compacted", source.compacted, target.compacted))
    for option, has, wants in sides:
        if has != wants or (option == "event" and source.event is not target.event):
            raise DeclarationError(
                "copy-differs",
                f"{source.name} cannot be copied to {target.name}, which has {option}={wants}, not {has}",
                why="compaction would delete older records of each key"
                if option == "compacted"
                else "bytes and keys are copied as they are",
                fix=f"declare {target.name} with the {option} of {source.name}"
                if option != "compacted"
                else f"declare {target.name} without compacted=True",
                source=target.source,
            )
