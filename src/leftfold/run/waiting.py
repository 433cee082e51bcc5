"""Waits until readers of a view follow a build that has read the log. It only looks: it starts and moves nothing."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace

from leftfold import clock
from leftfold.declare.catalog import DeclaredView
from leftfold.declare.free import View
from leftfold.errors import RunError
from leftfold.fold.build_id import BuildId
from leftfold.fold.durations import SECOND, text
from leftfold.kafka.admin import Admin
from leftfold.kafka.group import LogPartition
from leftfold.kafka.group_offsets import GroupOffsets
from leftfold.run.status import ViewStatus
from leftfold.settings import Kafka, Profile, group_id

# A look costs a few questions to the store and the brokers. A batch takes longer than this.
EVERY_S = 0.25


@dataclass(frozen=True)
class Goal:
    """The moment to wait for: everything in the log is applied, or a number of records is."""

    timeout: int  # µs
    records: int | None = None  # of all outcomes, over the life of the build; None waits for all of the log

    def __str__(self) -> str:
        return "caught up" if self.records is None else f"applied {self.records:,} records"


def await_view(
    view: DeclaredView, goal: Goal, look: Callable[[], ViewStatus], at_end: Callable[[], bool]
) -> ViewStatus:
    """Look four times a second until the goal is reached, and return the status at that moment.

    `at_end` tells whether the view has passed the end of the log. It is asked only when the lag stands still: the last
    offsets may hold no record, but the markers of transactions.
    """
    deadline = clock.monotonic() + goal.timeout / SECOND
    before: ViewStatus | None = None
    while True:
        status = look()
        if status.lag and goal.records is None and status == before and at_end():
            status = replace(look(), lag=0)  # a batch may have been applied between the look and the question
        reason = lacking(view, status, goal)
        if reason is None:
            return status
        if clock.monotonic() + EVERY_S > deadline:
            raise _too_late(view, status, goal, reason)
        before = status
        time.sleep(EVERY_S)


def lacking(view: DeclaredView, status: ViewStatus, goal: Goal) -> str | None:
    """Return why the goal is not reached; None if it is.

    A build of another definition does not count: it answers without what was just declared. The definition of a free
    view is known only to Spark, so any build of it counts.
    """
    if status.build is None:
        return "readers follow no build yet"
    build = BuildId.parse(status.build)
    if not isinstance(view.definition, View) and build.fingerprint != view.fingerprint:
        waits = f"; {status.staged} is staged" if status.staged else ""
        return f"readers follow {status.build}, which is not of the declared definition {view.fingerprint}{waits}"
    if goal.records is not None:
        applied = sum(status.records.values())
        return None if applied >= goal.records else f"it has applied {applied:,}"
    if status.lag is None:
        return "its topic does not exist"
    return f"it is {status.lag:,} record{'' if status.lag == 1 else 's'} behind" if status.lag else None


def at_end_of(view: DeclaredView, profile: Profile, kafka: Kafka, admin: Admin) -> Callable[[], bool]:
    """Return a function that tells whether the view's consumer group, which shows its position, is at the log's end."""

    def at_end() -> bool:
        names = [profile.topic_name(topic.name, external=topic.external) for topic in view.reading.topics]
        partitions = admin.partitions(names)
        if len(partitions) < len(names):
            return False
        with closing(GroupOffsets(kafka)) as groups:
            shown = groups.of(group_id(profile.namespace, view.name))
        ends = {
            LogPartition(name, p): end for name in names for p, end in admin.end_offsets(name, partitions[name]).items()
        }
        return all(place in shown and shown[place].offset >= end for place, end in ends.items() if end)

    return at_end


def _too_late(view: DeclaredView, status: ViewStatus, goal: Goal, reason: str) -> RunError:
    longer = f"leftfold wait {view.name} --timeout {text(2 * goal.timeout)}"
    fix = f"leftfold run --views {view.name} keeps it up to date; if it runs: {longer}"
    if status.staged is not None:
        fix = f"leftfold promote {view.name} moves readers to the staged build; or: {longer}"
    elif status.lag is None:
        fix = "leftfold apply creates the topic"
    return RunError(
        "wait-timed-out",
        f"{view.name} has not {goal} within {text(goal.timeout)}",
        why=reason,
        fix=fix,
        retriable=True,
    )
