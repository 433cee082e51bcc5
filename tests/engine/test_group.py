"""Groups on real brokers: partitions that are given up while fetching is paused, and coordinators that die."""

from __future__ import annotations

import os
import signal
import uuid
from pathlib import Path

from confluent_kafka.admin import AdminClient

from leftfold.errors import LogError
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

    projects.await_true(lambda: assigned(6), timeout=120, what="all partitions")
    member.pause()
    other = Member(app.kafka, group, [topic], others)

    def is_shared() -> bool:
        other.poll(1_000, 0.1)
        return assigned(3) and len(others.parts) == 3

    projects.await_true(is_shared, timeout=120, what="half of them to move")
    member.resume()
    other.close()
    projects.await_true(lambda: assigned(6), timeout=120, what="all partitions again")
    consumers.send(app, range(300))

    def has_read_all() -> bool:
        seen.update(polled())
        return len(seen) == 6

    projects.await_true(has_read_all, timeout=60, what="records of all partitions")
    member.pause()
    polled()  # what was fetched before
    consumers.send(app, range(300))
    assert [polled() for _ in range(10)] == [[]] * 10
    member.close()


def test_groups_after_their_coordinator_has_died(cluster: Cluster, tmp_path: Path) -> None:
    """A group is shown, a view's position is shown as a group, and a position is set, by clients that asked before."""
    app = consumers.make(tmp_path, cluster.endpoints, f"g{uuid.uuid4().hex[:8]}", "")
    group, events = f"g{uuid.uuid4().hex}", FromTheStart()
    member = Member(app.kafka, group, [app.profile.topic_name("orders")], events)

    def has_all() -> bool:
        member.poll(1_000, 0.1)
        return len(events.parts) == 6

    projects.await_true(has_all, timeout=120, what="all partitions")
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
    projects.await_true(lambda: published(1), timeout=60, what="the position of a view")
    assert shown() == {group: 1, view: 0, empty: 0}
    for one in (group, view, empty):
        admin = AdminClient({"bootstrap.servers": app.kafka.bootstrap})
        coordinator = admin.describe_consumer_groups([one])[one].result(60).coordinator.id
        os.kill(cluster.endpoints.processes[f"broker-{coordinator}"].pid, signal.SIGKILL)
        cluster.cluster.up(cluster.root)
        projects.await_true(is_set, timeout=120, what="a position to be set")
        projects.await_true(lambda: published(2), timeout=120, what="the position of a view")
        projects.await_true(lambda: shown() == {group: 1, view: 0, empty: 0}, timeout=120, what="all groups")
    lag.close()
    member.close()
