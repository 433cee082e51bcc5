"""Consumers against Python frameworks: records a second, and records lost or doubled when the process is killed.

All read the same Avro topic and do the same work in the handler. Each framework runs in a process of its own, from a
virtualenv of its own, with the settings that its documentation advises for the delivery in question.
"""

from __future__ import annotations

import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource  # type: ignore[attr-defined]

import leftfold
from bench.engines import project
from bench.environments import python_with
from bench.pairs import note
from leftfold.declare.schema import avro_schema
from leftfold.kafka.decode import avro_decoder

HERE = Path(__file__).parent
PARTITIONS = 6
SESSION_MS = 6_000  # the least that brokers allow members of classic groups
LINE = 8  # bytes of a note
MOST_S = 20.0  # of a run that is timed; a slow side reads only a part of the records
AT_ONCE = 4  # sides that are killed at the same time: what is wrong then does not depend on their speed
STALLED_S = 90.0  # without a record for so long, a process is given up
SEED = 20261118
STREAMS = """\
import json
import os
import time
from datetime import datetime

import leftfold as lf


class Click(lf.Event):
    number: int
    user_id: str
    item_id: str
    price: float
    at: datetime


clicks = lf.Topic("clicks", Click, key=Click.user_id, time=Click.at, partitions=6)
copies = lf.Topic("copies", Click, key=Click.user_id, time=Click.at, partitions=6)
quix_copies = lf.Topic("quix_copies", Click, key=Click.user_id, time=Click.at, partitions=6)
faust_copies = lf.Topic("faust_copies", Click, key=Click.user_id, time=Click.at, partitions=6)
SETTINGS = json.loads(os.environ.get("PEERS", "{}"))
notes = os.open(SETTINGS["notes"], os.O_WRONLY | os.O_APPEND | os.O_CREAT) if SETTINGS else -1
state = {"seen": 0, "cpu": 0.0, "wall": 0.0}


def handle(number: int) -> None:
    if not SETTINGS["measured"]:
        os.write(notes, b"%07d\\n" % number)
        return
    if state["seen"] == 0:
        state["cpu"], state["wall"] = time.process_time(), time.monotonic()
    state["seen"] += 1
    over = state["seen"] % 100 == 0 and time.monotonic() - state["wall"] > SETTINGS["most_s"]
    if over or state["seen"] == SETTINGS["records"]:
        cpu, wall = time.process_time() - state["cpu"], time.monotonic() - state["wall"]
        os.write(notes, json.dumps({"records": state["seen"], "cpu": cpu, "wall": wall}).encode())
        os._exit(0)


@lf.consumer(clicks, start="beginning")
def each(click: Click) -> None:
    handle(click.number)


@lf.consumer(clicks, start="beginning", batch=lf.Batch(500))
def batches(clicks: list[Click]) -> None:
    for click in clicks:
        handle(click.number)


@lf.consumer(clicks, start="beginning", delivery="exactly_once", to=copies)
def once(click: Click) -> Click:
    handle(click.number)
    return click
"""


@dataclass(frozen=True)
class Side:
    """A way to consume the topic: a program of a framework, or one of our consumers."""

    name: str
    program: str  # a file in programs/, or "" if it is ours
    against: str  # our consumer that does the same
    batch: bool = False
    copies: str | None = None  # exactly once: the topic that it writes to


OURS = (
    Side("leftfold", "", "each"),
    Side("leftfold, batches", "", "batches"),
    Side("leftfold, exactly once", "", "once", copies="copies"),
)
PEERS = (
    Side("aiokafka", "asyncio_kafka", "each"),
    Side("faststream", "fast_stream", "each"),
    Side("faststream, batches", "fast_stream", "batches", batch=True),
    Side("faust", "streaming_faust", "each"),
    Side("faust, exactly once", "streaming_faust", "once", copies="faust_copies"),
    Side("quixstreams", "quix", "each"),
    Side("quixstreams, exactly once", "quix", "once", copies="quix_copies"),
    Side("sentry-arroyo", "sentry_arroyo", "each"),
)


@dataclass
class Measured:
    """The results of one side."""

    side: Side
    records: int
    per_cpu_s: list[float] = field(default_factory=list)  # records a CPU second, of each run
    per_s: list[float] = field(default_factory=list)
    kills: int = 0
    lost: int | None = None
    doubled: int | None = None
    errors: list[str] = field(default_factory=list)

    reached = True  # reported, and not judged

    def as_json(self) -> dict[str, Any]:
        return {
            "records_per_cpu_s": _middle(self.per_cpu_s),
            "records_per_s": _middle(self.per_s),
            "runs": len(self.per_cpu_s),
            "kills": self.kills,
            "lost": self.lost,
            "doubled": self.doubled,
            "errors": self.errors,
        }

    def __str__(self) -> str:
        shown = self.as_json()
        speed = (
            f"{shown['records_per_cpu_s']:,} records a CPU second, {shown['records_per_s']:,} a second"
            if self.per_cpu_s
            else ""
        )
        wrong = f"{self.kills} kills: {self.lost:,} lost, {self.doubled:,} doubled" if self.lost is not None else ""
        return "; ".join(part for part in (speed, wrong, *self.errors) if part)


def _middle(rates: list[float]) -> int | None:
    return round(statistics.median(rates)) if rates else None


def measure(pairs: int, *, records: int, kills: int) -> dict[str, Measured]:
    python = python_with(HERE / "requirements.txt")
    results = {side.name: Measured(side, records) for side in (*OURS, *PEERS)}
    with tempfile.TemporaryDirectory(prefix="leftfold-bench-") as directory, project(Path(directory), STREAMS) as app:
        app.send("clicks", _clicks(records))
        for number in range(pairs):
            sides = (*OURS, *PEERS) if number % 2 == 0 else (*reversed(PEERS), *reversed(OURS))
            for side in sides:
                _time(app, python, results[side.name])
        sound = [result for result in results.values() if not result.errors] if kills else []
        with ThreadPoolExecutor(AT_ONCE) as pool:  # most of their time is spent waiting for the end of a session
            list(pool.map(lambda result: _kill(app, python, result, kills), sound))
    return results


def _clicks(records: int) -> Iterator[dict[str, Any]]:
    chance, at = random.Random(SEED), datetime.now(UTC)
    for number in range(records):
        user, item = f"u{chance.randrange(10_000)}", f"i{chance.randrange(1_000)}"
        yield {"number": number, "user_id": user, "item_id": item, "price": number / 4, "at": at}


class Running:
    """A process of one side. It writes to `notes`, and its errors to a file beside it."""

    def __init__(self, app: leftfold.App, python: Path, result: Measured, group: str, *, measured: bool) -> None:
        side, self.notes = result.side, app.root / f"{group}.notes"
        self.errors = app.root / f"{group}.errors"
        settings = {
            "bootstrap": app.kafka.bootstrap,
            "topic": "clicks",
            "copies": side.copies,
            "group": group,
            "schema": json.loads(avro_schema(app.catalog.topic("clicks").event)),
            "records": result.records,
            "measured": measured,
            "batch": side.batch,
            "notes": str(self.notes),
            "session_ms": SESSION_MS,
            "most_s": MOST_S,
        }
        if side.program:
            command = [str(python), str(HERE / "programs" / f"{side.program}.py"), json.dumps(settings)]
        else:
            command = [
                str(Path(sys.executable).with_name("leftfold")),
                "consume",
                "--json",
                "--consumers",
                side.against,
            ]
        others = {name: value for name, value in os.environ.items() if name != "PYTHONPATH" or not side.program}
        with self.errors.open("ab") as errors:
            self.process = subprocess.Popen(
                command,
                cwd=app.root,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                env={**others, "PEERS": json.dumps(settings)},
                start_new_session=True,
            )

    def written(self) -> int:
        return self.notes.stat().st_size if self.notes.exists() else 0

    def await_bytes(self, least: int) -> bool:
        """Wait until so many bytes are in the notes. Return False if the process has ended, or writes no more."""
        seen, since = self.written(), time.monotonic()
        while self.written() < least:
            if self.process.poll() is not None or time.monotonic() - since > STALLED_S:
                return self.written() >= least
            if self.written() > seen:
                seen, since = self.written(), time.monotonic()
            time.sleep(0.01)
        return True

    def kill(self) -> None:
        """Send SIGKILL to the process and to those that it has started."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def explain(self) -> str:
        lines = [line for line in self.errors.read_text(errors="replace").splitlines() if line.strip()]
        return lines[-1][:300] if lines else f"exit code {self.process.returncode}"


def _time(app: leftfold.App, python: Path, result: Measured) -> None:
    """Measure one run over all records, from the first call of the handler to the last."""
    if result.errors:
        return
    group = _group(app, result.side)
    running = Running(app, python, result, group, measured=True)
    try:
        if not running.await_bytes(1):
            result.errors.append(f"read no record: {running.explain()}")
            return
    finally:
        running.kill()
    measured = json.loads(running.notes.read_text())
    running.notes.unlink()
    result.per_cpu_s.append(measured["records"] / measured["cpu"])
    result.per_s.append(measured["records"] / measured["wall"])
    note(f"{result.side.name}: {measured['records']:,} records, {measured['cpu']:.2f} CPU s, {measured['wall']:.2f} s")


def _group(app: leftfold.App, side: Side) -> str:
    """Return the name of the group. A peer's is new; one of our consumers is set back to the beginning."""
    if side.program:
        return f"{side.program}-{uuid.uuid4().hex[:8]}"
    group = leftfold.settings.group_id(app.profile.namespace, side.against)
    position = app.position(side.against)
    while any(status.group == group and status.members for status in app.groups("clicks")):
        time.sleep(0.5)  # a process that was killed is a member until its session ends
    if any(p.position for p in position.show()):
        position.set(position.moves("beginning"))
    entries = [
        ConfigEntry(name, str(value), incremental_operation=AlterConfigOpType.SET)
        for name, value in (("consumer.session.timeout.ms", SESSION_MS), ("consumer.heartbeat.interval.ms", 2_000))
    ]
    resource = ConfigResource(ConfigResource.Type.GROUP, group, incremental_configs=entries)
    app.log[0].each(app.log[0].client.incremental_alter_configs([resource]))
    return group


def _kill(app: leftfold.App, python: Path, result: Measured, kills: int) -> None:
    """Kill the process at random moments while it reads, and count the records that are wrong in the end."""
    group, chance, side = _group(app, result.side), random.Random(SEED), result.side
    before = _copied(app, side)
    for number in range(kills):
        running = Running(app, python, result, group, measured=False)
        share = (number + chance.uniform(0.2, 1)) / (kills + 1)
        try:
            reached = running.await_bytes(max(running.written() + LINE, round(share * result.records) * LINE))
        finally:
            running.kill()
        if not reached:
            result.errors.append(f"stopped reading after {number} kills: {running.explain()}")
            return
        result.kills += 1
    running = Running(app, python, result, group, measured=False)
    try:
        _await_end(app, running, result, before)
    finally:
        running.kill()
    handled = _copied(app, side) - before if side.copies else _noted(running.notes)
    running.notes.unlink()
    result.lost = result.records - len(handled)
    result.doubled = handled.total() - len(handled)
    note(f"{side.name}: {result.kills} kills, {result.lost:,} lost, {result.doubled:,} doubled")


def _await_end(app: leftfold.App, running: Running, result: Measured, before: Counter[int]) -> None:
    """Wait until all records have had their effect, or nothing more happens."""
    seen, since = 0, time.monotonic()
    while seen < result.records and time.monotonic() - since < STALLED_S:
        time.sleep(1)
        now = len(_copied(app, result.side) - before if result.side.copies else _noted(running.notes))
        if now > seen:
            seen, since = now, time.monotonic()
    time.sleep(2)  # what it would double now, it may


def _noted(notes: Path) -> Counter[int]:
    return Counter(map(int, notes.read_bytes().split())) if notes.exists() else Counter()


def _copied(app: leftfold.App, side: Side) -> Counter[int]:
    """Count the copies of each record that read-committed readers see; nothing if the side writes to no topic."""
    found: Counter[int] = Counter()
    if side.copies is None:
        return found
    settings = {"group.id": "none", "isolation.level": "read_committed", "enable.auto.commit": False}
    reader = Consumer({"bootstrap.servers": app.kafka.bootstrap, **settings, "enable.partition.eof": True})
    reader.assign([TopicPartition(side.copies, partition, 0) for partition in range(PARTITIONS)])
    decode = avro_decoder(app.catalog.topic("clicks").event, {"number"}, app.log[1].schema)
    ended: set[int] = set()
    while len(ended) < PARTITIONS:
        for message in reader.consume(1_000, timeout=0.5):
            if (error := message.error()) is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                ended.add(message.partition() or 0)
                continue
            fields = decode(message.value())
            assert fields is not None
            found[fields["number"]] += 1
    reader.close()
    return found
