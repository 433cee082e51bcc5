"""Groups on real brokers: partitions that are given up while fetching is paused, and coordinators that die."""

from __future__ import annotations

import os
import signal
import uuid
from pathlib import Path

from confluent_kafka.admin import AdminClient

from leftfold.kafka.group import GroupEvents, LogPartition, Member
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


def test_a_group_is_shown_after_its_coordinator_has_died(cluster: Cluster, tmp_path: Path) -> None:
    app = consumers.make(tmp_path, cluster.endpoints, f"g{uuid.uuid4().hex[:8]}", "")
    group, events = f"g{uuid.uuid4().hex}", FromTheStart()
    member = Member(app.kafka, group, [app.profile.topic_name("orders")], events)

    def has_all() -> bool:
        member.poll(1_000, 0.1)
        return len(events.parts) == 6

    projects.await_true(has_all, timeout=120, what="all partitions")
    assert [(g.group, g.members) for g in app.groups("orders")] == [(group, 1)]
    admin = AdminClient({"bootstrap.servers": app.kafka.bootstrap})
    coordinator = f"broker-{admin.describe_consumer_groups([group])[group].result().coordinator.id}"
    os.kill(cluster.endpoints.processes[coordinator].pid, signal.SIGKILL)
    cluster.cluster.up(cluster.root)
    projects.await_true(
        lambda: [g.members for g in app.groups("orders") if g.group == group] == [1],
        timeout=60,
        what="the group to be shown",
    )
    member.close()
