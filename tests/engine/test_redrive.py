"""Bad records: each counted, each named; and after they were corrected, as if they had been good from the start.

`make engine` sends 30,000 records; `make rejects` 1,000,000.
"""

from __future__ import annotations

import json
import os
import random
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import redis

import leftfold
from leftfold import clock
from leftfold.kafka.rejects import RecordPosition
from leftfold.run import redrive, watermark
from leftfold.run.progress import Progress
from tests.engine import oracle, projects
from tests.engine.conftest import Cluster
from tests.engine.driving import run_all
from tests.engine.effects import VIEW, payments
from tests.engine.log import avro_long, delete_before, read_topic

FULL = os.environ.get("LEFTFOLD_REJECTS") == "full"
RECORDS = 1_000_000 if FULL else 30_000
SEED = int(os.environ.get("LEFTFOLD_SEED", str(random.SystemRandom().randrange(10**6))))
# The producer's time is the log's: a test can let hours pass, and two topics hold the same records at the same times.
STREAMS = projects.PAYMENTS.replace('lateness="10m"', 'lateness="10m", log_time="producer"')
START = datetime.now(UTC) - timedelta(hours=6)
LENGTHS = (2**31 - 1, 2**31, 2**60)


def spoilt(value: bytes, chance: random.Random, *, is_late: bool) -> bytes:
    """Undecodable, in one of the ways that are met. A late one stays what it is, so a recomputation meets its id."""
    way = 3 if is_late else chance.randrange(4)
    if way == 0:
        return value[: chance.randrange(6, 12)]
    if way == 1:
        return value[:5] + avro_long(1) + avro_long(chance.choice(LENGTHS)) + b"x"  # a text that claims to be that long
    if way == 2:
        return b"\x01" + value[1:]
    return value[:1] + (9_999).to_bytes(4) + value[5:]


class Sent:
    """The same payments in two topics: in one of them a hundredth cannot be decoded. Two in a hundred are late."""

    def __init__(self, cluster: Cluster, root: Path) -> None:
        chance = random.Random(SEED)
        self.good, self.bad = (
            projects.make(root / name, cluster.endpoints, f"{name}{uuid.uuid4().hex[:8]}", STREAMS)
            for name in ("good", "bad")
        )
        self.late, self.spoilt = 0, {}
        for app in (self.good, self.bad):
            projects.apply(app)
        with self.good.producer("payments") as good, self.bad.producer("payments") as bad:
            for number, record in enumerate(payments(RECORDS, chance)):
                logged = START + timedelta(hours=3) * (number / RECORDS)
                is_late, is_spoilt = chance.random() < 0.02, chance.random() < 0.01
                behind = chance.uniform(700, 3_000) if is_late else chance.uniform(0, 300)
                record["at"] = logged - timedelta(seconds=behind)
                key, value = good.key_of(record), good.encode(record)
                good.send_encoded(key, value, log_time=logged)
                if is_spoilt:
                    self.spoilt[number] = record
                    value = spoilt(value, chance, is_late=is_late)
                else:
                    self.late += is_late
                bad.send_encoded(key, value, log_time=logged)

    def pass_hours(self) -> None:
        """A record of each partition, three hours later: all tiles before are closed."""
        for app in (self.good, self.bad):
            with app.producer("payments") as producer:
                for number in range(200):
                    moment = START + timedelta(hours=5, minutes=30)
                    record = {"id": RECORDS + number, "account": f"z{number}", "amount": 1.0, "points": 1, "note": None}
                    producer.send_dict({**record, "at": moment}, log_time=moment)


def run_view(app: leftfold.App, spark: Any) -> Progress:
    """With the intake."""
    return run_all(app, spark)[0]


def tiles_of(app: leftfold.App, build: str | None) -> dict[tuple[str, str], tuple[int, list[Any]]]:
    return oracle.read_store(app.online.url.get_secret_value(), f"lf:{app.profile.namespace}:row:{VIEW}:{build}:")


@pytest.mark.nightly
@pytest.mark.timeout(3_000 if FULL else 900)
def test_corrected_records_are_as_good_as_good_ones(
    cluster: Cluster, tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watermark, "CLOCK_SLACK", 1_000_000)
    sent = Sent(cluster, tmp_path)
    good, bad = run_view(sent.good, spark), run_view(sent.bad, spark)
    counts = bad.records()
    assert counts == {
        "accepted": RECORDS - sent.late - len(sent.spoilt),
        "late": sent.late,
        "future": 0,
        "rejected": len(sent.spoilt),
    }
    rejects = sent.bad.rejects("payments")
    topic = sent.bad.profile.topic_name("payments")
    schemas = sent.bad.log[1].versions(f"{topic}-value")
    where = {
        RecordPosition(logged.partition, logged.offset): logged
        for logged in read_topic(cluster.endpoints.bootstrap, topic, schemas)
    }
    assert {e.position for e in rejects.entries()} == {p for p, logged in where.items() if logged.record is None}
    assert len(rejects.entries(late=True)) == sent.late

    originals = positions_in(sent.good, cluster)
    events = {p: as_json(originals[p]) for p, logged in where.items() if logged.record is None}
    done = rejects.correct(events)
    late_originals = [p for p, why in done.refused if why.startswith("late")]
    assert len(done.sent) + len(late_originals) == len(sent.spoilt), done.refused[:3]
    assert sum(not e.redriven for e in rejects.entries()) == len(late_originals)

    early = run_view(sent.bad, spark)
    assert early.pending > 0, "tiles of the last hour cannot have been closed"
    sent.pass_hours()
    good, bad = run_view(sent.good, spark), run_view(sent.bad, spark)
    bad = run_view(sent.bad, spark)  # closed by what the run before has read
    assert bad.pending == 0
    expected, found = tiles_of(sent.good, good.build), tiles_of(sent.bad, bad.build)
    wrong = oracle.differences(expected, found)
    assert not wrong, f"{len(wrong)} of {len(expected)} tiles differ: {wrong[:3]}"
    print(
        f"seed {SEED}: {RECORDS:,} records, {len(sent.spoilt):,} undecodable, {sent.late:,} late: "
        f"{counts['accepted']:,} + {counts['late']:,} + {counts['rejected']:,}; each named with its offset; "
        f"{len(done.sent):,} corrected and re-driven ({len(late_originals)} would have been late): 0 rejects left, "
        f"0 of {len(expected):,} tiles differ from a run in which they had been good"
    )


class Corrected:
    """A project with one record that cannot be decoded, to be re-driven."""

    def __init__(self, cluster: Cluster, root: Path, streams: str) -> None:
        self.app = projects.make(root, cluster.endpoints, f"c{uuid.uuid4().hex[:8]}", streams)
        self.topic = self.app.profile.topic_name("payments")
        projects.apply(self.app)

    def send(self, at: datetime, number: int, *, bad: bool = False, log_time: datetime | None = None) -> None:
        record = {"id": number, "account": "a1", "amount": 1.0, "points": 1, "note": None, "at": at}
        with self.app.producer("payments") as producer:
            value = producer.encode(record)
            producer.send_encoded(b"a1", b"\x01" + value[1:] if bad else value, log_time=log_time)

    def correct(self, at: datetime) -> None:
        rejects = self.app.rejects("payments")
        (entry,) = rejects.entries()
        record = {"id": 7, "account": "a1", "amount": 5.0, "points": 1, "note": None, "at": at}
        assert len(rejects.correct({entry.position: as_json(record)}).sent) == 1


def test_a_clock_that_is_ahead_closes_no_tile(
    cluster: Cluster, tmp_path: Path, spark: Any, near_clocks: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records of the tile still come: the stream would write over a correction."""
    project = Corrected(cluster, tmp_path, projects.PAYMENTS)
    now = datetime.now(UTC)
    project.send(now, 1)
    project.send(now, 2, bad=True)
    run_view(project.app, spark)
    project.correct(now)
    monkeypatch.setattr(clock, "now_us", lambda: int((now.timestamp() + 8 * 86_400) * 1e6))
    assert run_view(project.app, spark).pending == 1


def test_a_correction_beyond_history_is_counted(cluster: Cluster, tmp_path: Path, spark: Any) -> None:
    project = Corrected(cluster, tmp_path, STREAMS)
    project.send(START, 1, log_time=START)
    project.send(START, 2, bad=True, log_time=START)
    run_view(project.app, spark)
    later = START + timedelta(hours=4)
    project.send(later, 3, log_time=later)
    (busy,) = [p for p, end in project.app.log[0].end_offsets(project.topic, 6).items() if end]
    delete_before(cluster.endpoints.bootstrap, project.topic, {busy: 1})
    before = tiles_of(project.app, run_view(project.app, spark).build)
    project.correct(START)
    done = run_view(project.app, spark)
    assert (done.pending, done.beyond) == (0, 1)
    assert tiles_of(project.app, done.build) == before
    again = run_view(project.app, spark)
    assert again.beyond == 1, "kept with the receipts"


@pytest.mark.parametrize("thinned", [True, False])
def test_older_tiles_beside_a_thinned_one_are_recomputed_too(
    cluster: Cluster, tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch, thinned: bool
) -> None:
    """What the store left out of them may be gone from the tile that a correction changes."""
    project = Corrected(cluster, tmp_path, STREAMS)
    for hours in range(3):
        moment = START + timedelta(hours=hours)
        project.send(moment, hours, bad=hours == 1, log_time=moment)
    run_view(project.app, spark)
    later = START + timedelta(hours=4)
    project.send(later, 3, log_time=later)
    run_view(project.app, spark)
    if thinned:
        monkeypatch.setattr(redrive, "_thinned", lambda _, closed: (closed, closed - 10 * 86_400_000_000))
    project.correct(START + timedelta(hours=1))
    done = run_view(project.app, spark)
    assert (done.pending, done.beyond) == (0, 0)
    store = redis.Redis.from_url(project.app.online.url.get_secret_value())
    row: Any = store.hgetall(f"lf:{project.app.profile.namespace}:row:{VIEW}:{done.build}:a1")
    tiles = [json.loads(value) for name, value in row.items() if name.startswith(b"3600:")]
    batches = {int(tile[0]): int(tile[1]) for tile in tiles}
    assert len(batches) == 4
    first, corrected, third, newest = (batches[index] for index in sorted(batches))
    assert corrected == newest == max(batches.values())
    assert (first == newest, third == newest) == (thinned, thinned)


def positions_in(app: leftfold.App, cluster: Cluster) -> dict[RecordPosition, dict[str, Any]]:
    topic = app.profile.topic_name("payments")
    schemas = app.log[1].versions(f"{topic}-value")
    return {
        RecordPosition(logged.partition, logged.offset): logged.record
        for logged in read_topic(cluster.endpoints.bootstrap, topic, schemas)
        if logged.record is not None
    }


def as_json(record: dict[str, Any]) -> str:
    return json.dumps({**record, "at": record["at"].isoformat()})
