"""A view on real engines: what is accepted, what is counted, what is read, and what is refused."""

from __future__ import annotations

import random
import signal
import struct
import subprocess
import sys
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import redis
from confluent_kafka import Producer

import leftfold
from leftfold.errors import LeftfoldError, StoreError
from leftfold.spark.checkpoint import set_aside
from leftfold.store.redis.client import connect
from leftfold.store.redis.names import Names
from tests.engine import oracle, projects
from tests.engine.conftest import Cluster
from tests.engine.driving import run_until_caught_up
from tests.engine.test_kills import payments

# A length prefix as Avro writes it (zigzag varint) that promises far more bytes than there are.
HUGE_LENGTHS = (b"\x80\x80\x80\x80\x10", b"\x80\x80\x80\x80\x80\x80\x80\x80\x20")


@pytest.fixture
def app(cluster: Cluster, tmp_path: Path) -> leftfold.App:
    made = projects.make(tmp_path / "project", cluster.endpoints, f"v{uuid.uuid4().hex[:8]}")
    projects.apply(made)
    return made


def send(app: leftfold.App, records: Iterator[dict[str, Any]] | list[dict[str, Any]]) -> None:
    with app.producer("payments") as producer:
        for record in records:
            producer.send_dict(record)


def payment(number: int, account: str, **changes: Any) -> dict[str, Any]:
    return {
        "id": number,
        "account": account,
        "amount": 10.0,
        "points": 1,
        "note": None,
        "at": datetime.now(UTC),
        **changes,
    }


def read_log(app: leftfold.App) -> oracle.Log:
    name = app.profile.topic_name("payments")
    return oracle.read_log(app.kafka.bootstrap, name, app.log[1].versions(f"{name}-value"))


def assert_store_equals_log(app: leftfold.App, build: str | None) -> oracle.Log:
    log = read_log(app)
    prefix = f"lf:{app.profile.namespace}:row:account_activity:{build}:"
    found = oracle.read_store(app.online.url.get_secret_value(), prefix)
    assert oracle.differences(log.slots(), found) == []
    return log


def test_bad_bytes_are_counted_and_stop_nothing(app: leftfold.App, spark: Any) -> None:
    send(app, payments(5_000, random.Random(1)))
    topic = app.profile.topic_name("payments")
    (schema_id,) = app.log[1].versions(f"{topic}-value")
    framed = struct.pack(">bI", 0, schema_id)
    good_start = b"\x02" + b"\x04a1" + struct.pack("<d", 1.0)  # id 1, account "a1", an amount, and then nothing
    bad: list[bytes | None] = [
        None,
        b"",
        b"\x00",
        b"not avro at all",
        framed,
        framed + good_start,
        *(framed + b"\x02" + length for length in HUGE_LENGTHS),
        framed
        + b"\x02"
        + b"\x04\xff\xfe"
        + struct.pack("<d", 1.0)
        + b"\x02\x00"
        + b"\x00",  # an account that is no UTF-8
        struct.pack(">bI", 0, 987_654_321) + b"\x02\x04a1",  # a schema id the registry never gave out
    ]
    raw = Producer({"bootstrap.servers": app.kafka.bootstrap})
    for value in bad:
        raw.produce(topic, value=value, key=b"a1")
    assert raw.flush(30) == 0

    (progress,) = run_until_caught_up(app, spark)

    assert progress.error is None
    log = assert_store_equals_log(app, progress.build)
    assert log.outcomes["rejected"] == len(bad)
    assert progress.records() == {**dict.fromkeys(("accepted", "late", "future"), 0), **log.outcomes}


def test_reads_equal_the_meaning(app: leftfold.App, spark: Any) -> None:
    """Online reads against F_w(k, t), straight from the events, for every account."""
    made = datetime.now(UTC)
    timely = (made - timedelta(seconds=560), made + timedelta(seconds=30))
    events = [e for e in payments(20_000, random.Random(2)) if timely[0] < e["at"] < timely[1]]
    send(app, events)
    run_until_caught_up(app, spark)
    view = app.catalog.view("account_activity").declared
    accounts = {e["account"] for e in events}
    for account in accounts:
        row = app.get(view, account=account)
        mine = [e for e in events if e["account"] == account]
        windows = {
            w: [e for e in mine if e["at"] >= floor(row.read_at - timedelta(hours=w), s)] for w, s in SPANS.items()
        }
        assert row.payments_1h == len(windows[1])
        assert row.big_1h == sum(e["amount"] > 100 and e["points"] >= 5 for e in windows[1])
        total = sum(round(e["amount"] * 100) for e in windows[24])
        assert round(row.amount_24h * 100, 6) == total
        assert row.points_24h == sum(e["points"] for e in windows[24])
        notes = [e["note"] for e in sorted(windows[168], key=lambda e: e["at"]) if e["note"] is not None]
        assert row.note_7d == (notes[-1] if notes else None)
        assert row.found
    nobody = app.get("account_activity", account="nobody")
    assert (nobody.found, nobody.payments_1h, nobody.amount_24h) == (False, 0, None)


def test_a_producer_whose_clock_is_ahead_moves_no_other_read(cluster: Cluster, spark: Any, tmp_path: Path) -> None:
    """It stamps the log too, so its records are accepted. Brokers refuse what is stamped an hour ahead, and no less."""
    stamped = projects.PAYMENTS.replace('lateness="10m"', 'lateness="10m", log_time="producer"')
    stamped = stamped.replace('payments_1h = lf.count("1h")', 'payments_15m = lf.count("15m")')
    app = projects.make(tmp_path / "stamped", cluster.endpoints, f"v{uuid.uuid4().hex[:8]}", stamped)
    projects.apply(app)
    now = datetime.now(UTC)
    with app.producer("payments") as producer:
        for number, (account, at) in enumerate((("right", now), ("ahead", now + timedelta(minutes=55)))):
            producer.send_dict(payment(number, account, at=at), log_time=at)

    def expect_right_now() -> None:
        row = app.get("account_activity", account="right")
        assert (row.payments_15m, row.found) == (1, True)
        assert row.read_at <= datetime.now(UTC) + timedelta(seconds=60)

    (first,) = run_until_caught_up(app, spark)
    assert first.records()["accepted"] == 2
    expect_right_now()
    client = redis.Redis.from_url(cluster.endpoints.redis_url)
    for key in client.scan_iter(f"lf:{app.profile.namespace}:*"):
        client.delete(key)
    (again,) = run_until_caught_up(app, spark)
    assert (again.error, again.repairs) == (None, 1)
    expect_right_now()


SPANS = {1: 300, 24: 3_600, 168: 3_600}  # window in hours -> step in seconds


def floor(moment: datetime, step_s: int) -> datetime:
    seconds = int(moment.timestamp())
    return datetime.fromtimestamp(seconds - seconds % step_s, UTC)


def test_several_schema_versions_and_one_that_appears_while_running(
    app: leftfold.App, spark: Any, cluster: Cluster
) -> None:
    """Old records, new records, and a version registered after the view had started: all are read into one shape."""
    send(app, [payment(n, "a1") for n in range(100)])
    newer_text = projects.PAYMENTS.replace("    at: datetime\n", "    at: datetime\n    shop: str | None = None\n", 1)
    newer = projects.make(app.root.with_name("newer"), cluster.endpoints, app.profile.namespace, newer_text)
    supervisor = app.supervisor(until_caught_up=True)  # knows only the first version
    projects.apply(newer)
    send(newer, [{**payment(n, "a1"), "shop": "s"} for n in range(100, 200)])
    (view,) = supervisor.views
    view.start(spark, until_caught_up=True)
    view.wait()
    assert view.progress.error is None
    assert view.progress.records()["accepted"] == 200
    assert app.get("account_activity", account="a1").payments_1h == 200
    # The field that nobody reads makes no new build.
    assert newer.catalog.view("account_activity").fingerprint == view.definition.fingerprint


def test_breaking_schema_is_refused_before_anything_changes(app: leftfold.App, cluster: Cluster) -> None:
    text = projects.PAYMENTS.replace("    points: int\n", "    points: str\n").replace(
        "Payment.points >= 5", "Payment.amount > 1"
    )
    text = "\n".join(line for line in text.splitlines() if "points_24h" not in line)
    broken = projects.make(app.root.with_name("broken"), cluster.endpoints, app.profile.namespace, text)
    plan = broken.plan()
    assert [p.code for p in plan.problems] == ["schema-incompatible"]
    with pytest.raises(LeftfoldError, match="breaks readers"):
        list(broken.apply(plan))


def test_composite_key_and_two_views_in_one_application(cluster: Cluster, tmp_path: Path, spark: Any) -> None:
    text = projects.PAYMENTS + (
        "\n\nclass AccountPoints(lf.Features, of=payments, by=(Payment.account, Payment.points)):\n"
        '    payments_1h = lf.count("1h")\n'
    )
    app = projects.make(tmp_path / "two", cluster.endpoints, f"t{uuid.uuid4().hex[:8]}", text)
    projects.apply(app)
    send(app, [payment(n, f"a:{n % 3}", points=n % 2) for n in range(600)])
    ended = run_until_caught_up(app, spark)
    assert [(p.view, p.state, p.records()["accepted"]) for p in ended] == [
        ("account_activity", "caught up", 600),
        ("account_points", "caught up", 600),
    ]
    assert app.get("account_points", account="a:1", points=1).payments_1h == 100
    assert app.get("account_points", account="a:1", points=7).found is False


AWKWARD = """\
from datetime import UTC, datetime

import leftfold as lf
from pydantic import Field


class Visit(lf.Event):
    entity: int
    partition: str
    offset: float = Field(ge=0)
    step: str = Field(max_length=3)
    value: bool
    records: datetime | None = None
    log_us: datetime


visits = lf.Topic("visits", Visit, key=Visit.partition, time=Visit.log_us, partitions=2)


class ByEntity(lf.Features, of=visits, by=Visit.entity):
    n = lf.count("1h", where=Visit.records > datetime(2026, 6, 1, tzinfo=UTC))
    offsets = lf.sum(Visit.offset, "1h", scale=2, where=Visit.step == "up")
    records = lf.last(Visit.records, "1h")
    outcome = lf.last(Visit.value, "1h")
    none = lf.count("1h", where=Visit.records == None)
"""


def test_any_field_name_any_kind_and_rules(cluster: Cluster, tmp_path: Path, spark: Any) -> None:
    """Names that the compiled query uses itself, datetimes that are not the event time, rules that Spark must apply."""
    app = projects.make(tmp_path / "awkward", cluster.endpoints, f"a{uuid.uuid4().hex[:8]}", AWKWARD)
    projects.apply(app)
    early, late, now = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 7, 1, 12, 30, tzinfo=UTC), datetime.now(UTC)
    usual = {
        "entity": 7,
        "partition": "p",
        "offset": 1.125,
        "step": "up",
        "value": True,
        "records": late,
        "log_us": now,
    }
    changes: list[dict[str, Any]] = [
        {},
        {"records": early, "step": "no"},
        {"records": None, "value": False},
        {"entity": -7},
        {"offset": -1.0},  # breaks ge=0; dicts are not checked by the producer
        {"step": "toolong"},  # breaks max_length=3
        {"offset": float("nan")},
    ]
    with app.producer("visits") as producer:
        for change in changes:
            producer.send_dict({**usual, **change})
    (progress,) = run_until_caught_up(app, spark)
    assert progress.records() == {"accepted": 4, "late": 0, "future": 0, "rejected": 3}
    row = app.get("by_entity", entity=7)
    assert row.values == {"n": 1, "offsets": 2.26, "records": early, "outcome": False, "none": 1}
    assert app.get("by_entity", entity=-7).values["n"] == 1


CHANGED = projects.PAYMENTS.replace(
    'payments_1h = lf.count("1h")', 'payments_1h = lf.count("1h")\n    all_24h = lf.count("24h")'
)


def test_changed_definition_builds_beside_and_takes_over(app: leftfold.App, cluster: Cluster, spark: Any) -> None:
    send(app, [payment(n, "a1") for n in range(50)])
    (first,) = run_until_caught_up(app, spark)
    changed = projects.make(app.root, cluster.endpoints, app.profile.namespace, CHANGED)
    with pytest.raises(StoreError) as refused:
        changed.get(changed.catalog.view("account_activity").declared, account="a1")
    assert refused.value.code == "feature-not-built"
    (second,) = run_until_caught_up(changed, spark)
    assert first.build != second.build
    # A process that knows only the old build follows the new one.
    assert app.get("account_activity", account="a1").all_24h == 50


@pytest.mark.parametrize("forgotten", [False, True], ids=["", "dies before it is staged"])
def test_outside_the_local_profile_a_changed_definition_waits_for_promote(
    cluster: Cluster, tmp_path: Path, spark: Any, forgotten: bool
) -> None:
    view, namespace = "account_activity", f"v{uuid.uuid4().hex[:8]}"
    app = projects.make(tmp_path, cluster.endpoints, namespace, profile="prod")
    projects.apply(app)
    send(app, [payment(n, "a1") for n in range(50)])
    (first,) = run_until_caught_up(app, spark)
    changed = projects.make(tmp_path, cluster.endpoints, namespace, CHANGED, profile="prod")
    (second,) = run_until_caught_up(changed, spark)
    assert second.error is None
    assert second.note is not None
    assert second.note.endswith(
        f"readers follow {first.build}, which is not updated meanwhile, until leftfold promote {view}"
    )
    if forgotten:  # as if the process had died after the checkpoint's first line, before it staged the build
        names, store = Names(namespace, view), connect(app.online.address)
        store.delete(names.staged, names.held)
    send(app, [payment(n, "a1") for n in range(50, 60)])
    (again,) = run_until_caught_up(changed, spark)
    standing = changed.standings.of(view)
    assert (standing.followed, standing.staged) == (first.build, second.build)
    assert again.build == second.build
    assert app.get(view, account="a1").payments_1h == 50
    changed.promote(view)
    assert changed.get(view, account="a1").all_24h == 60
    (last,) = run_until_caught_up(changed, spark)  # a run of what is followed keeps it
    assert changed.standings.of(view).followed == last.build == second.build


def test_a_changed_definition_takes_over_where_that_is_asked_for(cluster: Cluster, tmp_path: Path, spark: Any) -> None:
    namespace = f"v{uuid.uuid4().hex[:8]}"
    app = projects.make(tmp_path, cluster.endpoints, namespace, profile="prod")
    projects.apply(app)
    send(app, [payment(n, "a1") for n in range(5)])
    run_until_caught_up(app, spark)
    changed = projects.make(tmp_path, cluster.endpoints, namespace, CHANGED, profile="prod")
    for progress in changed.supervisor(until_caught_up=True, take_over=True).run(lambda _: None, session=spark):
        assert progress.error is None, progress.error
    assert changed.get("account_activity", account="a1").all_24h == 5


def test_fresh_is_a_new_build(app: leftfold.App, spark: Any) -> None:
    send(app, [payment(n, "a1") for n in range(50)])
    (first,) = run_until_caught_up(app, spark)
    (view,) = app.supervisor(until_caught_up=True).views
    view.prepare(spark)
    set_aside(spark, view.checkpoint)
    send(app, [payment(n, "a1") for n in range(50, 60)])
    (fresh,) = run_until_caught_up(app, spark)
    assert fresh.error is None
    assert fresh.build != first.build
    assert fresh.note is not None
    assert str(first.build) in fresh.note
    assert app.get("account_activity", account="a1").payments_1h == 60


def test_reading_needs_neither_declarations_nor_pyspark(app: leftfold.App, spark: Any, tmp_path: Path) -> None:
    send(app, [payment(n, "a1") for n in range(20)])
    run_until_caught_up(app, spark)
    reader = tmp_path / "another service"
    reader.mkdir()
    toml = (app.root / "leftfold.toml").read_text().replace('["streams.py"]', "[]")
    (reader / "leftfold.toml").write_text(toml)
    code = (
        "import sys; sys.modules['pyspark'] = sys.modules['confluent_kafka'] = None\n"
        "import leftfold as lf; print(lf.open().get('account_activity', account='a1').payments_1h)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=reader, capture_output=True, text=True, check=True)
    assert done.stdout == "20\n"


@pytest.mark.parametrize("how", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.nightly)])
def test_run_ends_cleanly_on_a_signal_and_goes_on(app: leftfold.App, how: signal.Signals) -> None:
    send(app, [payment(n, "a1") for n in range(1_000)])
    with projects.running(app.root) as run:
        run.await_batches(1)
        send(app, [payment(n, "a1") for n in range(1_000, 2_000)])
        assert run.terminate(how) == 0, run.explain()
        document = run.lines()[-1]
    assert document["views"][0]["state"] == "stopped"
    assert (app.root / ".leftfold" / "logs" / "spark.log").is_file()
    with projects.running(app.root, "--until-caught-up") as run:
        assert run.wait(300) == 0, run.explain()
    assert_store_equals_log(app, document["views"][0]["build"])


def test_two_runs_of_one_view_are_refused(app: leftfold.App, tmp_path: Path) -> None:
    import fcntl

    locks = app.state / "local" / "locks"
    locks.mkdir(parents=True)
    with (locks / "account_activity.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(LeftfoldError) as refused:
            app.supervisor(until_caught_up=True).run(lambda _: None)
    assert refused.value.code == "already-running"


def test_run_before_apply_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    app = projects.make(tmp_path / "early", cluster.endpoints, f"e{uuid.uuid4().hex[:8]}")
    with pytest.raises(LeftfoldError) as refused:
        app.supervisor()
    assert refused.value.code == "not-applied"
