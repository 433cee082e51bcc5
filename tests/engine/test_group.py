"""Groups on real brokers: pauses, members that leave or miss a change, and coordinators that stand still or die."""

from __future__ import annotations

import contextlib
import os
import random
import select
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from leftfold.errors import LogError
from leftfold.kafka import assignment_check
from leftfold.kafka.group import GroupEvents, LogPartition, Member, Position
from leftfold.kafka.group_offsets import group_offsets, set_group_offsets
from leftfold.kafka.lag_group import LagGroup
from tests.engine import consumers, projects
from tests.engine.conftest import Cluster


class FromTheStart(GroupEvents):
    """Reads each partition from its start whenever it is assigned."""

    def __init__(self) -> None:
        self.parts: set[LogPartition] = set()

    def assigned(self, parts: list[LogPartition]) -> dict[LogPartition, int]:
        self.parts |= set(parts)
        return dict.fromkeys(parts, 0)

    def revoked(self, parts: list[LogPartition]) -> None:
        self.parts -= set(parts)

    lost = revoked


def test_a_partition_that_was_paused_comes_back(cluster: Cluster, tmp_path: Path) -> None:
    app = consumers.make(tmp_path, cluster.endpoints, f"g{uuid.uuid4().hex[:8]}", "")
    consumers.send(app, range(300))
    topic, group = app.profile.topic_name("orders"), f"g{uuid.uuid4().hex}"
    events, others, seen = FromTheStart(), FromTheStart(), set[int | None]()
    member = Member(app.kafka, group, [topic], events)

    def polled() -> list[int | None]:
        """Poll once, and return the partitions of the records that came."""
        return [m.partition() for m in member.poll(1_000, 0.1) if m.error() is None]

    def assigned(number: int) -> bool:
        polled()
        return len(events.parts) == number

    projects.await_true(lambda: assigned(6), timeout=240, what="all partitions")
    member.pause()
    other = Member(app.kafka, group, [topic], others)

    def is_shared() -> bool:
        other.poll(1_000, 0.1)
        return assigned(3) and len(others.parts) == 3

    projects.await_true(is_shared, timeout=240, what="half of them to move")
    member.resume()
    other.close()
    projects.await_true(lambda: assigned(6), timeout=240, what="all partitions again")
    consumers.send(app, range(300))

    def has_read_all() -> bool:
        seen.update(polled())
        return len(seen) == 6

    projects.await_true(has_read_all, timeout=240, what="records of all partitions")
    member.pause()
    polled()  # what was fetched before
    consumers.send(app, range(300))
    assert [polled() for _ in range(10)] == [[]] * 10
    member.close()


LEAVING = """
import sys

import leftfold
from leftfold.kafka.group import Member, Position
from tests.engine.test_group import FromTheStart


class Committing(FromTheStart):
    def revoked(self, parts):
        print("committed" if member.commit({part: Position(0, "") for part in parts}) else "refused", flush=True)
        super().revoked(parts)


app = leftfold.open(sys.argv[1])
events = Committing()
member = Member(app.kafka, sys.argv[2], [app.profile.topic_name("orders")], events)
while len(events.parts) != int(sys.argv[3]):
    member.poll(1_000, 0.1)
print("ready", flush=True)
sys.stdin.readline()
member.close()
print("has left", flush=True)
"""


@pytest.mark.parametrize(("before", "after"), [(3, 6), (6, 3)])
def test_a_member_leaves_before_it_hears_of_a_change(cluster: Cluster, tmp_path: Path, before: int, after: int) -> None:
    """The broker has given it more partitions, or fewer, and it leaves before it polls, as at a SIGTERM."""
    app = consumers.make(tmp_path, cluster.endpoints, f"g{uuid.uuid4().hex[:8]}", "")
    topic, group, others = app.profile.topic_name("orders"), f"g{uuid.uuid4().hex}", FromTheStart()

    def targets() -> set[int]:
        """How many partitions each member is to have."""
        members = app.log[0].asked(lambda: app.log[0].client.describe_consumer_groups([group]))[group].members
        return {len(m.target_assignment.topic_partitions) for m in members if m.target_assignment is not None}

    with contextlib.ExitStack() as stack:
        others_first = Member(app.kafka, group, [topic], others) if before == 3 else None
        # A process of its own: a client that never answers would hold the interpreter, and this test with it.
        command = [sys.executable, "-c", LEAVING, str(tmp_path), group, str(before)]
        leaving = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        stack.enter_context(leaving)
        stack.callback(leaving.kill)
        said = leaving.stdout
        assert said is not None

        def is_ready() -> bool:
            if others_first is not None:
                others_first.poll(1_000, 0.1)
            return bool(select.select([said], [], [], 0)[0])

        projects.await_true(is_ready, timeout=240, what="both members")
        if others_first is not None:
            others_first.close()
        else:
            stack.enter_context(contextlib.closing(Member(app.kafka, group, [topic], others)))
        projects.await_true(lambda: targets() == {after}, timeout=240, what="the change")
        time.sleep(3)  # three heartbeats: by one of them the member hears of it, and nothing shows that before a poll
        told, _ = leaving.communicate("leave\n", timeout=60)
    assert set(told.splitlines()) == {"ready", "committed", "has left"}


def test_a_member_that_missed_a_change_joins_again(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The coordinator stands still while a member joins, so that the answer with the change comes too late."""
    monkeypatch.setattr(assignment_check, "_EVERY_S", 1.0)
    app = consumers.make(tmp_path, cluster.endpoints, f"g{uuid.uuid4().hex[:8]}", "")
    chance = random.Random(1)
    missed = 0
    while missed < 2:
        group, events, others = f"g{uuid.uuid4().hex}", FromTheStart(), FromTheStart()
        first = Member(app.kafka, group, [app.profile.topic_name("orders")], events)

        def has_all(first: Member = first, events: FromTheStart = events) -> bool:
            first.poll(1_000, 0.1)
            return len(events.parts) == 6

        projects.await_true(has_all, timeout=240, what="all partitions")
        admin = AdminClient({"bootstrap.servers": app.kafka.bootstrap})
        coordinator = admin.describe_consumer_groups([group])[group].result(60).coordinator.id
        second = Member(app.kafka, group, [app.profile.topic_name("orders")], others)
        poll_for(chance.uniform(0.4, 1.1), first, second)
        broker = cluster.endpoints.processes[f"broker-{coordinator}"].pid
        os.kill(broker, signal.SIGSTOP)
        try:
            poll_for(2.0, first, second)
        finally:
            os.kill(broker, signal.SIGCONT)

        def is_shared(
            members: tuple[Member, ...] = (first, second), of: tuple[FromTheStart, ...] = (events, others)
        ) -> bool:
            poll_for(0.1, *members)
            return [len(one.parts) for one in of] == [3, 3]

        projects.await_true(is_shared, timeout=240, what="half of them to move")
        missed += first.rejoined + second.rejoined
        first.close()
        second.close()


def poll_for(seconds: float, *members: Member) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for member in members:
            member.poll(1_000, 0.02)


def test_groups_after_their_coordinator_has_died(cluster: Cluster, tmp_path: Path) -> None:
    """A group is shown, a view's position is shown as a group, and a position is set, by clients that asked before."""
    app = consumers.make(tmp_path, cluster.endpoints, f"g{uuid.uuid4().hex[:8]}", "")
    group, events = f"g{uuid.uuid4().hex}", FromTheStart()
    member = Member(app.kafka, group, [app.profile.topic_name("orders")], events)

    def has_all() -> bool:
        member.poll(1_000, 0.1)
        return len(events.parts) == 6

    projects.await_true(has_all, timeout=240, what="all partitions")
    topic, first = app.profile.topic_name("orders"), LogPartition(app.profile.topic_name("orders"), 0)
    view, empty = f"v{group}", f"e{group}"  # a group without members, and one that is only set
    lag = LagGroup(app.kafka, view)

    def published(offset: int) -> bool:
        lag.publish({topic: {0: offset}})
        at = group_offsets(app.kafka, view, [first]).get(first)
        return at is not None and at.offset == offset and lag.failure is None

    def is_set() -> bool:
        try:
            set_group_offsets(app.kafka, empty, {first: Position(2, "")})
        except LogError:  # it has waited for a new coordinator, but not long enough for a busy machine
            return False
        return True

    def shown() -> dict[str, int]:
        member.poll(1_000, 0.1)  # it may have to join again
        return {g.group: g.members for g in app.groups("orders")}

    set_group_offsets(app.kafka, empty, {first: Position(1, "")})
    projects.await_true(lambda: published(1), timeout=240, what="the position of a view")
    assert shown() == {group: 1, view: 0, empty: 0}
    for one in (group, view, empty):
        admin = AdminClient({"bootstrap.servers": app.kafka.bootstrap})
        coordinator = admin.describe_consumer_groups([one])[one].result(60).coordinator.id
        os.kill(cluster.endpoints.processes[f"broker-{coordinator}"].pid, signal.SIGKILL)
        cluster.cluster.up(cluster.root)
        projects.await_true(is_set, timeout=240, what="a position to be set")
        projects.await_true(lambda: published(2), timeout=240, what="the position of a view")
        projects.await_true(lambda: shown() == {group: 1, view: 0, empty: 0}, timeout=240, what="all groups")
    lag.close()
    member.close()


@pytest.mark.nightly
def test_groups_are_shown_while_a_broker_is_away(cluster: Cluster, tmp_path: Path) -> None:
    app = consumers.make(tmp_path, cluster.endpoints, f"g{uuid.uuid4().hex[:8]}", "")
    first, group = LogPartition(app.profile.topic_name("orders"), 0), f"g{uuid.uuid4().hex}"
    set_group_offsets(app.kafka, group, {first: Position(0, "")})
    assert [g.group for g in app.groups("orders")] == [group]
    os.kill(cluster.endpoints.processes["broker-1"].pid, signal.SIGKILL)
    killed = time.monotonic()
    app.groups("orders")  # at once, while other brokers still name the dead one
    assert time.monotonic() < killed + 60  # about 10 s; without limits it waits for the dead broker for 120 s
    projects.await_true(lambda: [g.group for g in app.groups("orders")] == [group], timeout=240, what="the group")
    cluster.cluster.up(cluster.root)
