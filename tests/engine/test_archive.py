"""The archive on real engines: every offset once, whatever dies; read as one with a log that is being deleted."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import redis
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

import leftfold
from leftfold.declare import batches
from leftfold.errors import LeftfoldError
from leftfold.run.intake import STEPS, RunningIntake
from leftfold.run.progress import Progress
from leftfold.spark import source
from leftfold.spark.history import archive, imports
from leftfold.spark.history.recompute import recomputed
from leftfold.spark.history.records import over_history, read_history, starts_since
from tests.engine import oracle, projects
from tests.engine.conftest import Cluster
from tests.engine.crashes import DiedError
from tests.engine.driving import run_until_caught_up
from tests.engine.effects import payments
from tests.engine.log import delete_before

pytestmark = pytest.mark.timeout(900)

STREAMS = projects.PAYMENTS.replace('lateness="10m")', 'lateness="10m", archive=True)').replace(
    "partitions=6", "partitions=3"
)
PARTITIONS = 3
Record = tuple[int, int, int, bytes | None, bytes | None, tuple[Any, ...]]


class Archived:
    """A project with one archived topic, driven in one warm JVM."""

    def __init__(self, cluster: Cluster, spark: Any, root: Path, streams: str = STREAMS) -> None:
        self.bootstrap = cluster.endpoints.bootstrap
        self.redis_url = cluster.endpoints.redis_url
        self.spark = spark
        self.root = root
        self.app = projects.make(root, cluster.endpoints, f"ar{uuid.uuid4().hex[:8]}", streams)
        projects.apply(self.app)
        self._chance = random.Random(7)
        self._sent = 0

    def declare(self, streams: str) -> None:
        (self.root / "streams.py").write_text(streams)
        self.app = leftfold.open(self.root)

    @property
    def topic(self) -> str:
        return self.app.profile.topic_name("payments")

    @property
    def table(self) -> str:
        return f"{self.app.lake}/archive/payments"

    @property
    def checkpoint(self) -> Path:
        return Path(self.app.checkpoints) / "payments.intake"

    def send(self, count: int) -> None:
        """Events, and now and then bytes that are none."""
        with self.app.producer("payments") as producer:
            for record in payments(count, self._chance, self._sent):
                if self._chance.random() < 0.02:
                    producer.send_encoded(str(record["account"]).encode(), b"no event")
                else:
                    producer.send_dict(record)
        self._sent += count

    def intake(self) -> RunningIntake:
        (intake,) = (h for h in self.app.supervisor().helpers if isinstance(h, RunningIntake))
        return intake

    def take_in(self, intake: RunningIntake | None = None) -> Progress:
        intake = intake or self.intake()
        intake.start(self.spark, until_caught_up=True)
        intake.wait()
        return intake.progress

    def delete_before(self, offsets: dict[int, int]) -> None:
        delete_before(self.bootstrap, self.topic, offsets)

    def logged(self) -> list[Record]:
        return list(read_log(self.bootstrap, self.topic))

    def archived(self) -> list[Record]:
        return [
            (
                row.partition,
                row.offset,
                round(row.log_time.timestamp() * 1_000),
                None if row.key is None else bytes(row.key),
                None if row.value is None else bytes(row.value),
                tuple((h.key, bytes(h.value)) for h in row.headers or ()),
            )
            for row in self.spark.read.format("delta").load(self.table).collect()
        ]

    def whole_log(self) -> oracle.Log:
        return oracle.read_log(self.bootstrap, self.topic, self.app.log[1].versions(f"{self.topic}-value"))

    def flush(self) -> None:
        client = redis.Redis.from_url(self.redis_url)
        for key in client.scan_iter(f"lf:{self.app.profile.namespace}:*"):
            client.delete(key)

    def source(self) -> source.Source:
        return self.intake()._source


def read_log(bootstrap: str, topic: str) -> Iterator[Record]:
    """By a plain consumer, from the first offset to the end of every partition."""
    settings = {"group.id": uuid.uuid4().hex, "auto.offset.reset": "earliest", "enable.partition.eof": True}
    consumer = Consumer({"bootstrap.servers": bootstrap, **settings})
    consumer.assign([TopicPartition(topic, p, 0) for p in range(PARTITIONS)])
    ended = 0
    while ended < PARTITIONS:
        for message in consumer.consume(10_000, timeout=0.5):
            if message.error() is not None:
                ended += 1
                continue
            partition, offset = message.partition(), message.offset()
            assert partition is not None
            assert offset is not None
            headers: Any = message.headers() or ()
            yield partition, offset, message.timestamp()[1], message.key(), message.value(), tuple(headers)
    consumer.close()


def expect_all(project: Archived, logged: list[Record]) -> None:
    found = Counter(project.archived())
    assert found == Counter(logged), (len(logged), found.total())


@pytest.fixture
def project(cluster: Cluster, spark: Any, tmp_path: Path) -> Archived:
    return Archived(cluster, spark, tmp_path / "archived")


@pytest.mark.nightly
def test_equals_the_log_wherever_the_intake_dies(
    cluster: Cluster, spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Declared when its intake has read some of the topic already: the archive has that, too."""
    monkeypatch.setattr(batches, "OFFSETS_PER_PARTITION", 150)
    project = Archived(cluster, spark, tmp_path / "late", STREAMS.replace(", archive=True", ""))
    project.send(300)
    assert project.take_in().error is None
    project.declare(STREAMS)
    for step in STEPS:
        project.send(500)
        intake = project.intake()
        died: list[str] = []

        def die(at: str, number: int, step: str = step, died: list[str] = died) -> None:
            if at == step:
                died.append(at)
                raise DiedError

        intake.at_step = die
        intake.start(project.spark, until_caught_up=True)
        projects.await_true(partial(bool, died), timeout=240, what=f"a death at {step}")
        intake.stop()
        intake.wait()
    assert project.take_in().error is None
    expect_all(project, project.logged())
    rejects = project.app.rejects("payments").entries()
    assert rejects
    # A checkpoint that is gone, and one of an old backup: both go on from the table's end.
    backup = project.root / "backup"
    shutil.copytree(project.checkpoint, backup)
    shutil.rmtree(project.checkpoint)
    project.send(400)
    assert project.take_in().error is None
    shutil.rmtree(project.checkpoint)
    backup.rename(project.checkpoint)
    project.send(400)
    assert project.take_in().error is None
    expect_all(project, project.logged())


# The seam ------------------------------------------------------------------------------------------------------------


def positions(project: Archived, begins: dict[int, int], ends: dict[int, int]) -> Counter[tuple[int, int]]:
    """Of history, read as whoever needs it would: again, if the log was deleted under it."""

    def read() -> list[Any]:
        frame = read_history(project.spark, project.source(), {project.topic: begins}, {project.topic: ends})
        rows: list[Any] = frame.select("slot", "offset", "event.id").collect()
        return rows

    return Counter((row.slot, row.offset) for row in over_history(read))


def test_a_read_whose_head_is_deleted_fails_and_is_done_again(project: Archived) -> None:
    project.send(1_500)
    ends = project.app.log[0].end_offsets(project.topic, PARTITIONS)
    logged = {(p, o) for p, o, *_ in project.logged()}
    tries: list[int] = []

    def read() -> Counter[tuple[int, int]]:
        frame = read_history(project.spark, project.source(), {project.topic: {}}, {project.topic: ends})
        tries.append(1)
        if len(tries) == 1:  # settled: all of it is to come from the log
            assert project.take_in().error is None
            project.delete_before({0: ends[0] // 2, 1: ends[1]})
        return Counter((row.slot, row.offset) for row in frame.select("slot", "offset", "event.id").collect())

    assert over_history(read) == Counter(logged)
    assert len(tries) == 2
    expect_another_topic_refused(project)


def expect_another_topic_refused(project: Archived) -> None:
    """Under the archived offsets it has other records."""
    name = project.topic
    admin = AdminClient({"bootstrap.servers": project.bootstrap})  # it must outlive what it is asked for
    admin.delete_topics([name])[name].result()
    projects.await_true(lambda: name not in project.app.log[0].partitions([name]), timeout=240, what="deletion")
    projects.apply(project.app)
    project.send(200)
    stopped = project.take_in().error
    _, refusal = read_or_refused(partial(positions, project, {}, {0: 10, 1: 10, 2: 10}))
    assert stopped is not None
    assert refusal is not None
    assert stopped.code == refusal.code == "archive-of-another-topic"


def read_or_refused(read: Callable[[], Any]) -> tuple[Any, LeftfoldError | None]:
    try:
        return read(), None
    except LeftfoldError as refusal:
        return None, refusal


def test_the_head_is_deleted_while_history_is_read(project: Archived) -> None:
    """At random moments, up to random offsets: every offset once, or a refusal that names the gap."""
    times = 20 if os.environ.get("LEFTFOLD_ARCHIVE") == "full" else 5
    chance = random.Random(3)
    refused = 0
    begins = dict.fromkeys(range(PARTITIONS), 0)  # after the last gap
    seen: set[tuple[int, int]] = set()
    for number in range(times):
        project.send(2_000)
        assert project.take_in().error is None
        project.send(1_000)
        seen |= {(p, o) for p, o, *_ in project.logged()}
        ends = project.app.log[0].end_offsets(project.topic, PARTITIONS)
        archived = archive.position(project.spark, project.table).ends
        beyond = number % 4 == 1  # also what only the log has
        upto = {p: chance.randint(archived[p] // 2, end if beyond else archived[p]) for p, end in ends.items()}
        deletion = threading.Timer(chance.uniform(0, 2.5), project.delete_before, [upto])
        deletion.start()
        found, refusal = read_or_refused(partial(positions, project, begins, ends))
        deletion.join()
        gone = {p: (archived[p], after) for p, after in upto.items() if after > archived[p]}
        if refusal is not None:
            refused += 1
            assert refusal.code == "history-gap"
            told = set(re.findall(r"/(\d+ [\d,]+–[\d,]*\d)", refusal.what))
            assert told
            assert told <= {f"{p} {first:,}–{after - 1:,}" for p, (first, after) in gone.items()}
        else:
            assert set(found.values()) == {1}
            assert set(found) == {(p, o) for p, o in seen if begins[p] <= o < ends[p]}
        if gone:
            let_go(project, gone)
            begins |= {p: after for p, (_, after) in gone.items()}
    assert refused < times
    print(f"{times} deletions: {times - refused} times every offset once, {refused} times refused with the gap")


def let_go(project: Archived, gone: dict[int, tuple[int, int]]) -> None:
    """The intake names what it lost, and a person lets it go on."""
    stopped = project.take_in().error
    assert stopped is not None
    assert stopped.code == "archive-gap"
    for p, (first, after) in gone.items():
        assert f"{project.topic}/{p} {first:,}–{after - 1:,}" in stopped.what
        assert f" {p}:{first}-{after - 1}" in stopped.fix
    archives = project.app.archive(session=project.spark)
    _, refusal = read_or_refused(lambda: archives.skip("payments", {p: (a, b + 1) for p, (a, b) in gone.items()}))
    assert refusal is not None
    assert refusal.code == "not-the-gap"
    archives.skip("payments", gone)
    assert project.take_in().error is None


# What reads it -------------------------------------------------------------------------------------------------------


@pytest.mark.nightly
def test_a_flushed_store_is_repaired_from_the_archive(project: Archived) -> None:
    project.send(3_000)
    supervisor = project.app.supervisor(until_caught_up=True)
    supervisor.run(lambda _: None, session=project.spark)
    assert all(p.error is None for p in supervisor.progress), supervisor.progress
    log = project.whole_log()
    ends = project.app.log[0].end_offsets(project.topic, PARTITIONS)
    project.delete_before({0: ends[0], 1: ends[1] // 2, 2: 0})
    project.flush()
    (again,) = run_until_caught_up(project.app, project.spark)
    assert again.error is None
    assert again.repairs == 1
    prefix = f"lf:{project.app.profile.namespace}:row:account_activity:{again.build}:"
    assert oracle.check_tiles(log, project.redis_url, prefix) > 100
    # Without the archive it is refused: the log alone lacks what the build was made of.
    shutil.move(project.table, f"{project.table}.away")
    project.flush()
    (refused,) = run_until_caught_up(project.app, project.spark)
    assert refused.error is not None
    assert refused.error.code == "repair-needs-history"


IMPORTED = (
    STREAMS
    + """

class Recent(lf.Features, of=payments, by=Payment.account):
    recent = lf.last_n(Payment.id, "7d", n=4)
"""
)


def past_payments(count: int, chance: random.Random, upto: datetime) -> list[dict[str, Any]]:
    """Of two days, out of order, some late, each at a moment of its own; three of one key share one."""
    moments = chance.sample(range(1, 2 * 86_400 * 1_000), count)
    made = []
    for number, back in enumerate(moments):
        delay = chance.choice([5, 590, 900]) if chance.random() < 0.1 else chance.uniform(0, 2)
        logged = upto - timedelta(milliseconds=back)
        made.append(
            {
                "number": 10_000 + number,
                "who": f"a{int(chance.paretovariate(0.7)) % 300}",
                "amount": round(chance.lognormvariate(3.5, 1.2), 2),
                "points": chance.randrange(-3, 20),
                "note": None if chance.random() < 0.3 else f"p{number}",
                "happened": logged - timedelta(seconds=delay),
                "received": logged,
            }
        )
    same = upto - timedelta(hours=1)
    one = {**made[0], "who": "tied", "happened": same}
    return made + [{**one, "number": n, "received": same + timedelta(seconds=n)} for n in (1, 2, 3)]


@pytest.mark.nightly
def test_an_imported_table_is_the_past(cluster: Cluster, spark: Any, tmp_path: Path) -> None:
    project = Archived(cluster, spark, tmp_path / "imported", IMPORTED)
    now = datetime.now(UTC)
    past = past_payments(4_000, random.Random(11), now - timedelta(minutes=20))
    columns = {"id": "number", "account": "who", "at": "happened"}
    table = str(tmp_path / "old")
    pq.write_to_dataset(pa.Table.from_pylist(past), table)
    archives = project.app.archive(session=spark)
    _, misfit = read_or_refused(lambda: archives.import_table(table, "payments", columns={}, time="received"))
    assert misfit is not None
    assert misfit.code == "import-misfit"

    mapped = [part for field, column in columns.items() for part in ("--column", f"{field}={column}")]
    arguments = ["archive", "import", table, "--topic", "payments", *mapped, "--time", "received", "--json"]
    done = subprocess.run(
        [projects.LEFTFOLD, *arguments], cwd=project.root, capture_output=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(done.stdout)
    assert (told["records"], told["new"], told["seam"]["log_from"]) == (len(past), True, None)

    again = archives.import_table(table, "payments", columns=columns, time="received")
    assert not again.new
    until = round((now - timedelta(days=1)).timestamp() * 1e6)
    _, other = read_or_refused(
        partial(archives.import_table, table, "payments", columns=columns, time="received", until=until)
    )
    assert other is not None
    assert other.code == "already-imported"
    held = imports.past(spark, project.table, archive.held(spark, project.table, project.topic).version)
    imports.append_past(held, project.table, 0)  # of one that began before the first was done
    assert spark.read.format("delta").load(project.table).where("offset < 0").count() == len(past)
    spark.sql(f"DELETE FROM delta.`{project.table}` WHERE offset < 0")
    assert archives.import_table(table, "payments", columns=columns, time="received").new

    project.send(2_000)
    with project.app.producer("payments") as producer:
        producer.send_dict({**tied(4), "at": now - timedelta(minutes=1)})
    assert project.take_in().error is None
    expect_past(project, past)
    (shown,) = archives.show()
    assert shown.records == len(past) + 2_001
    assert not shown.gap.ranges
    assert shown.behind == 0


def tied(number: int) -> dict[str, Any]:
    return {"id": number, "account": "tied", "amount": 1.0, "points": 1, "note": None}


def expect_past(project: Archived, past: list[dict[str, Any]]) -> None:
    """All of history through each view, as a batch, against the oracle over the same records."""
    log = project.whole_log()
    for number, record in enumerate(past):
        event = {**record, "id": record["number"], "account": record["who"], "at": record["happened"]}
        log.add(event, round(record["received"].timestamp() * 1_000), -1, number)
    for view in project.app.supervisor().views:
        view.prepare(project.spark)
        starts, lacking = starts_since(project.spark, view._source, project.app.log[0], None)
        assert not lacking
        assert all(start < 0 for start in starts[project.topic].values())
        ends = {project.topic: project.app.log[0].end_offsets(project.topic, PARTITIONS)}
        rows = recomputed(read_history(project.spark, view._source, starts, ends), view._job, 0).collect()
        values = [(row.entity, row.name, json.loads(row.value)) for row in rows if row.entity is not None]
        found: dict[tuple[str, str], tuple[int, list[Any]]] = {}
        for entity, name, (index, _, *partials) in values:
            if (entity, name) not in found or found[entity, name][0] < index:
                found[entity, name] = (index, partials)
        if view.name == "recent":
            ids = [partials[0] for (entity, _), (_, partials) in found.items() if entity == "tied"]
            assert sorted(ids, key=len) == [[4], [3, 2, 1]]  # the same event time: by log time, newest first
        else:
            wrong = oracle.differences(log.slots(), found)
            assert not wrong, f"{len(wrong)} of {len(found)} tiles differ: {wrong[:3]}"


# Files ---------------------------------------------------------------------------------------------------------------


@pytest.mark.nightly
def test_what_is_imported_beside_a_compaction_stays_and_stays_once(spark: Any, tmp_path: Path) -> None:
    """Where Delta skips no files by statistics: of what a transaction writes back it then reads the newest version."""
    table, imported, ended = str(tmp_path / "table"), [0], threading.Event()
    archive.make(spark, table)

    def import_on() -> None:
        while not ended.is_set():
            imports.append_past(ten_records(spark, 10 * imported[0]), table, imported[0])
            imported[0] += 1

    setting = "spark.databricks.delta.stats.skipping"
    spark.conf.set(setting, "false")
    importer = threading.Thread(target=import_on)
    importer.start()
    try:
        projects.await_true(lambda: imported[0] > 1, timeout=240, what="two imports")
        for _ in range(20):
            (day,) = archive.days(spark, table)
            archive.compact(spark, table, day)
            if overtaken(spark, table) > 1:
                break
    finally:
        ended.set()
        importer.join()
        spark.conf.unset(setting)
    assert overtaken(spark, table) > 1, "no import was committed while a compaction was under way"
    found = Counter(row.offset for row in spark.read.format("delta").load(table).collect())
    assert found == Counter(range(10 * imported[0]))


def ten_records(spark: Any, first: int) -> Any:
    """Rows of an archive, all of one date."""
    return spark.range(first, first + 10).selectExpr(
        *("'t' as topic_id", "0 as partition", "id as offset", "timestamp'2026-01-05 12:00:00' as log_time"),
        *("true as by_broker", "crc32(cast(id as string)) as key_crc", "cast(cast(id as string) as binary) as key"),
        *("cast('v' as binary) as value", "cast(null as array<struct<key:string,value:binary>>) as headers"),
        "date'2026-01-05' as log_date",
    )


def overtaken(spark: Any, table: str) -> int:
    """How many compactions others committed beside."""
    history = spark.sql(f"DESCRIBE HISTORY delta.`{table}`").where("isolationLevel = 'SnapshotIsolation'")
    return int(history.where("readVersion < version - 1").count())


@pytest.mark.nightly
def test_closed_dates_are_compacted_and_pruned(
    cluster: Cluster, spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "OFFSETS_PER_PARTITION", 120)
    monkeypatch.setattr(archive, "_RECORDS_PER_FILE", 30)
    monkeypatch.setattr(archive, "FILE_BYTES", 15_000)
    stamped = STREAMS.replace("archive=True", 'archive=True, log_time="producer"')
    project = Archived(cluster, spark, tmp_path / "dated", stamped)
    midnight = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    days = [midnight - timedelta(days=back) for back in (2, 1, 0)]
    chance = random.Random(5)
    with project.app.producer("payments") as producer:
        for day in days:
            for record in payments(900, chance):
                moment = day + timedelta(seconds=chance.uniform(0, 60))
                producer.send_dict({**record, "at": moment}, log_time=moment)
    assert project.take_in().error is None
    before, logged = Counter(project.archived()), project.logged()
    assert before == Counter(logged)
    loose = {day.date: day.files for day in archive.days(spark, project.table)}
    for number in range(3):  # each start of an intake compacts one date
        with project.app.producer("payments") as producer:
            producer.send_dict({**tied(number), "at": datetime.now(UTC)}, log_time=datetime.now(UTC))
        assert project.take_in().error is None
    expect_all(project, project.logged())
    now = {day.date: day.files for day in archive.days(spark, project.table)}
    closed = [day.date() for day in days[:2]]
    assert all(1 < now[date] < loose[date] for date in closed), (loose, now)

    held = archive.held(spark, project.table, project.topic)
    everything = list(held.ranges)
    some_key = chance.choice([key for _, _, _, key, *_ in logged if key])
    all_files, all_rows = scanned(archive.read_archive(spark, held, everything))
    since, until = (round(day.timestamp() * 1e6) for day in days[:2])
    by_time, timed = scanned(archive.read_archive(spark, held, everything, since=since, until=until))
    by_key, keyed = scanned(archive.read_archive(spark, held, everything, since=since, until=until, key=some_key))
    assert all_rows == Counter((p, o) for p, o, *_ in project.logged())
    assert timed == Counter((p, o) for p, o, ms, *_ in logged if since <= ms * 1_000 < until)
    assert keyed == Counter((p, o) for p, o, ms, key, *_ in logged if since <= ms * 1_000 < until and key == some_key)
    assert by_key < by_time < all_files, (by_key, by_time, all_files)
    print(f"files read: {all_files} of all, {by_time} of one date, {by_key} of one key on it")


def scanned(frame: Any) -> tuple[int, Counter[tuple[int, int]]]:
    """How many files a read opened, and what it gave."""
    rows = Counter((row.partition, row.offset) for row in frame.collect())
    return sum(_files(frame._jdf.queryExecution().executedPlan())), rows


def _files(plan: Any) -> Iterator[int]:
    metrics = plan.metrics()
    if metrics.contains("numFiles"):
        yield int(metrics.get("numFiles").get().value())
    for number in range(plan.children().size()):
        yield from _files(plan.children().apply(number))
