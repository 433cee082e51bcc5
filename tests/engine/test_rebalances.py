"""Members of a group that come and go under load: the order of keys, duplicates, pauses, and who has work.

`make rebalances` has 100 joins and leaves, and 1 to 8 processes on 6 partitions; here it is a few.
"""

from __future__ import annotations

import os
import random
import threading
import time
import uuid
from collections import Counter, defaultdict
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path

import pytest

import leftfold
from tests.engine import consumers, projects
from tests.engine.conftest import Cluster

FULL = bool(os.environ.get("LEFTFOLD_REBALANCES"))
MOVES = 100 if FULL else 6
RATE = 500  # records a second
SEED = 20261117

NOTES = """
import os
import time
out = os.open(os.environ["NOTES"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)


@lf.consumer(orders, start="beginning", parallel=4)
def note(order: Order, record: lf.Record) -> None:
    line = f"{order.number} {order.customer} {record.partition} {time.time():.3f} {os.getpid()}\\n"
    os.write(out, line.encode())
"""

SLOW = """
import os
import time
out = os.open(os.environ["NOTES"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)


@lf.consumer(orders, start="beginning", order="partition")
def slow(order: Order) -> None:
    time.sleep(0.005)
    os.write(out, b"%d\\n" % order.number)
"""

pytestmark = pytest.mark.timeout(3_600 if FULL else 600)


def made(cluster: Cluster, root: Path, declared: str) -> leftfold.App:
    os.environ["NOTES"] = str(root / "notes")
    return consumers.make(root / "project", cluster.endpoints, f"r{uuid.uuid4().hex[:8]}", declared)


def handled(app: leftfold.App) -> list[list[str]]:
    path = app.root.parent / "notes"
    return [line.split() for line in path.read_text().splitlines()] if path.exists() else []


class Load:
    """Sends records at a steady rate in a thread of its own."""

    def __init__(self, app: leftfold.App) -> None:
        self.sent = 0
        self._app = app
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._send)
        self._thread.start()

    def _send(self) -> None:
        with self._app.producer("orders") as producer:
            while not self._stop.wait(0.1):
                for _ in range(RATE // 10):
                    producer.send_dict(consumers.order(self.sent, customers=500))
                    self.sent += 1

    def end(self) -> None:
        self._stop.set()
        self._thread.join()


def test_members_that_come_and_go(cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    app, rnd = made(cluster, tmp_path, NOTES), random.Random(SEED)
    load = Load(app)
    try:
        with ExitStack() as processes:
            members = [processes.enter_context(consumers.consuming(app.root)) for _ in range(2)]
            projects.await_true(lambda: len(handled(app)) > RATE, timeout=240, what="the first records")
            for _ in range(MOVES):
                if len(members) < 2 or (len(members) < 5 and rnd.random() < 0.5):
                    members.append(processes.enter_context(consumers.consuming(app.root)))
                    projects.await_true(lambda: len(spread(app, "note")) == len(members), timeout=240, what="a join")
                else:
                    left = members.pop(rnd.randrange(len(members)))
                    assert left.terminate() == 0, left.explain()
                before = len(handled(app))
                await_more(app, before + RATE)
            load.end()
            projects.await_true(lambda: len(handled(app)) >= load.sent, timeout=240, what="all records")
            for member in members:
                assert member.terminate() == 0, member.explain()
    finally:
        load.end()
    notes = handled(app)
    assert Counter(int(words[0]) for words in notes) == Counter(range(load.sent)), "0 lost, 0 doubled"
    by_key: dict[str, list[int]] = defaultdict(list)
    times: dict[str, list[float]] = defaultdict(list)
    for number, customer, partition, moment, _ in notes:
        by_key[customer].append(int(number))
        times[partition].append(float(moment))
    assert all(numbers == sorted(numbers) for numbers in by_key.values()), "the order of a key"
    pauses = sorted(later - earlier for moments in times.values() for earlier, later in pairwise(sorted(moments)))
    longest = [pause for pause in pauses if pause > 0.3]  # records of a partition come every 12 ms
    with capsys.disabled():
        p50, p99 = (longest[int(share * (len(longest) - 1))] for share in (0.5, 0.99)) if longest else (0.0, 0.0)
        shown = f"{len(longest)}, p50 {p50:.2f} s, p99 {p99:.2f} s, longest {max(longest, default=0.0):.2f} s"
        print(f"\n{MOVES} joins and leaves, {load.sent:,} records; pauses of a partition over 0.3 s: {shown}")


def spread(app: leftfold.App, consumer: str) -> list[int]:
    """How many partitions of the topic each member has, by the broker."""
    group = leftfold.settings.group_id(app.profile.namespace, consumer)
    described = app.log[0].asked(lambda: app.log[0].client.describe_consumer_groups([group]))[group]
    name = app.profile.topic_name("orders")
    parts = [[p for p in m.assignment.topic_partitions if p.topic == name] for m in described.members]
    return sorted(map(len, parts))


def await_more(app: leftfold.App, number: int) -> None:
    projects.await_true(lambda: len(handled(app)) >= number, timeout=240, what="more records")


def test_sixteen_partitions_over_three_members(cluster: Cluster, tmp_path: Path) -> None:
    root = tmp_path / "project"
    declared = consumers.ORDERS.replace("partitions=6", "partitions=16") + NOTES
    os.environ["NOTES"] = str(tmp_path / "notes")
    app = projects.make(root, cluster.endpoints, f"r{uuid.uuid4().hex[:8]}", declared)
    projects.apply(app)

    with consumers.consuming(root), consumers.consuming(root), consumers.consuming(root):
        projects.await_true(lambda: spread(app, "note") == [5, 5, 6], timeout=240, what="6, 5 and 5 partitions")


@pytest.mark.parametrize("processes", [1, 2, 3, 6, 8] if FULL else [8])
def test_no_more_members_than_partitions(
    cluster: Cluster, tmp_path: Path, processes: int, capsys: pytest.CaptureFixture[str]
) -> None:
    app, sent = made(cluster, tmp_path, SLOW), (6_000 if FULL else 600)
    with ExitStack() as members:
        running = [members.enter_context(consumers.consuming(app.root)) for _ in range(processes)]
        consumers.send(app, range(60), customers=1_000)
        projects.await_true(lambda: len(handled(app)) >= 60, timeout=240, what="the first records")
        one_each = sorted([6 // min(6, processes)] * min(6, processes) + [0] * max(0, processes - 6))
        projects.await_true(lambda: spread(app, "slow") == one_each, timeout=240, what="equal shares")
        started = time.monotonic()
        consumers.send(app, range(60, 60 + sent), customers=1_000)
        projects.await_true(lambda: len(handled(app)) >= 60 + sent, timeout=240, what="all records")
        rate = sent / (time.monotonic() - started)
        (group,) = [group for group in app.groups("orders") if group.group.endswith("slow")]
        for one in running:
            assert one.terminate() == 0, one.explain()
    with capsys.disabled():
        print(f"\n{processes} processes: {rate:,.0f} records/s, {group.idle} idle")
    assert group.idle == max(0, processes - 6)
