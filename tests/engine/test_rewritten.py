"""A log that lost acknowledged records on every replica, and grew again past what a view had read.

`make engine` cuts once; `make rewritten` twenty times.
"""

from __future__ import annotations

import os
import random
import signal
from contextlib import suppress
from functools import reduce
from operator import attrgetter, xor
from pathlib import Path
from typing import Any

import pytest

from leftfold.errors import LogError
from leftfold.kafka.log_reader import LogReader
from leftfold.kafka.record_hash import record_hash
from leftfold.local import process
from tests.engine import projects
from tests.engine.conftest import Cluster
from tests.engine.effects import Project

FULL = os.environ.get("LEFTFOLD_REWRITTEN") == "full"
CUTS = 20 if FULL else 1
SEED = int(os.environ.get("LEFTFOLD_SEED", str(random.SystemRandom().randrange(10**6))))
BROKERS = ("broker-1", "broker-2", "broker-3")
READ, WRITTEN_ANEW = 3_000, 6_000


def cut(cluster: Cluster, topic: str, chance: random.Random) -> set[int]:
    """What a power cut of all brokers can do: the last bytes of some partitions are gone from all their replicas."""
    endpoints = cluster.endpoints
    for name in BROKERS:
        os.kill(endpoints.processes[name].pid, signal.SIGKILL)
    assert process.wait_until(lambda: not any(map(endpoints.alive, BROKERS)), timeout_s=20)
    chosen = set(chance.sample(range(6), chance.randrange(1, 7)))
    part = chance.choice([0.0, 0.3, 0.6, 0.9])
    for partition in chosen:
        segments = sorted(cluster.root.glob(f".leftfold/**/{topic}-{partition}/*.log"))
        assert len(segments) == len(BROKERS), segments
        for segment in segments:
            os.truncate(segment, int(segment.stat().st_size * part))
    cluster.cluster.up(cluster.root)
    return chosen


def ends_of(project: Project) -> dict[int, int]:
    """Once every partition has a leader."""
    admin, found = project.app.log[0], dict[int, int]()

    def led() -> bool:
        with suppress(LogError):
            admin.partitions([project.topic])  # a client asks who leads only when it is asked for topics
            found.update(admin.end_offsets(project.topic, 6))
        return len(found) == 6

    projects.await_true(led, timeout=240, what="leaders")
    return found


def check_hashes(project: Project, build: str | None) -> None:
    """What Spark has made of the records, against the hashes of the records in the log."""
    assert build is not None
    reader = LogReader(project.app.kafka)
    records = list(reader.read(project.topic, {p: (0, end) for p, end in ends_of(project).items()}))
    reader.close()
    content, newest = dict.fromkeys(range(6), 0), {}
    for record in records:
        found = record_hash(record.offset, record.log_us, record.key, record.value)
        content[record.partition] ^= found
        newest[record.partition] = found
    ledger = project.receipts(build)[-1].ledger
    for partition in range(6):
        mine = [row for row in ledger if row.partition == partition]
        assert reduce(xor, (row.content[0] for row in mine), 0) == content[partition]
        if mine:
            assert max(mine, key=attrgetter("newest_offset")).newest_hash == newest[partition]


def sent_in_pieces(project: Project, count: int) -> None:
    """In several record batches: a cut leaves some of them whole."""
    for _ in range(10):
        project.send(count // 10)


@pytest.mark.nightly
@pytest.mark.timeout(3_000 if FULL else 600)
def test_offsets_that_hold_other_records_now_are_refused(cluster: Cluster, tmp_path: Path, spark: Any) -> None:
    for number in range(CUTS):
        chance = random.Random(SEED + number)
        project = Project(cluster.endpoints, tmp_path / str(number), projects.PAYMENTS, seed=SEED)
        sent_in_pieces(project, READ)
        first = project.run(spark)
        project.check(first.build)
        check_hashes(project, first.build)
        ends = ends_of(project)
        chosen = cut(cluster, project.topic, chance)
        left = ends_of(project)
        assert {p for p in ends if left[p] < ends[p]} == chosen, f"seed {SEED + number}"
        if chance.random() < 0.8:  # else the log is still shorter than what was read
            sent_in_pieces(project, WRITTEN_ANEW)
        refused = project.run(spark)
        assert refused.error is not None, f"seed {SEED + number}: 'caught up', {refused.records()}"
        assert refused.error.code == "log-rewritten"
        named = [p for p in chosen if f"payments/{p} up to offset {ends[p] - 1}," in refused.error.what]
        assert named == [min(chosen)], refused.error.what
        sent_in_pieces(project, 500)
        anew = project.app.supervisor(fresh=[first.view], until_caught_up=True)
        anew.helpers = []
        (view,) = anew.run(lambda _: None, session=spark)
        assert view.error is None
        project.check(view.build)
    print(f"seed {SEED}: {CUTS} logs cut on all replicas and grown again: {CUTS} refused by partition and offset")
