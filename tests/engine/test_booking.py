"""Consumers that book into a real Postgres: rows and position are one, whatever fails in between."""

from __future__ import annotations

import os
import signal
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
from confluent_kafka import Producer

import leftfold
from leftfold.consume.crew import ConsumerCrew
from leftfold.errors import LeftfoldError
from leftfold.local import cluster as local_cluster
from tests.engine import consumers, projects
from tests.engine.conftest import Cluster

pytestmark = pytest.mark.timeout(600)

BOOK = """

@lf.consumer(
    orders, start="beginning", delivery="exactly_once", into=lf.Sql("env:LEDGER_URL"), parallel=2,
    retry=lf.Retry(attempts=3, first="20ms"), most_dead=lf.MostDead(share=0.1), {options}
)
def book(order: Order, record: lf.Record, db: lf.SqlConnection) -> None:
    {before}
    db.execute("insert into ledger (number, place) values (%s, %s)", (order.number, record.id))
    {after}
"""


@pytest.fixture
def make(
    cluster: Cluster, postgres: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., leftfold.App]:
    """Makes a project whose consumer books into a schema of its own."""
    schema = f"b{uuid.uuid4().hex[:8]}"
    url = f"{postgres}&options=-csearch_path%3D{schema}"
    monkeypatch.setenv("LEDGER_URL", url)
    with psycopg.connect(postgres, autocommit=True) as admin:
        admin.execute(f"create schema {schema}")
        # No unique key: a record that is booked twice is to be seen, not refused.
        admin.execute(f"create table {schema}.ledger (number bigint, place text)")

    def made(before: str = "pass", after: str = "pass", options: str = "") -> leftfold.App:
        declared = BOOK.format(before=before, after=after, options=options)
        return consumers.make(tmp_path / "project", cluster.endpoints, schema, declared)

    return made


def booked() -> Counter[int]:
    with psycopg.connect(os.environ["LEDGER_URL"]) as connection:
        return Counter(number for (number,) in connection.execute("select number from ledger"))


def positions() -> dict[tuple[str, int], int]:
    with psycopg.connect(os.environ["LEDGER_URL"]) as connection:
        rows = connection.execute("select topic_id, partition, next from leftfold_positions").fetchall()
    return {(topic_id, partition): offset for topic_id, partition, offset in rows}


def undecodable(app: leftfold.App, number: int) -> None:
    producer = Producer({"bootstrap.servers": app.kafka.bootstrap})
    for n in range(number):
        producer.produce(app.profile.topic_name("orders"), b"no order", key=b"k%d" % n)
    assert producer.flush(30) == 0


def done(progress: list[Any]) -> Any:
    (one,) = progress
    if one.error is not None:
        raise one.error
    return one


def error_of(progress: list[Any]) -> LeftfoldError:
    (one,) = progress
    assert one.error is not None
    return one.error  # type: ignore[no-any-return]


def once(numbers: range, *, but: Callable[[int], bool] = lambda _: False) -> Counter[int]:
    return Counter(n for n in numbers if not but(n))


FAILS = """
    if order.number % 100 == 33:
        raise lf.Unprocessable("33 is not booked")
    if order.number % 100 == 44:
        db.execute("select 1 / 0")
    if order.number % 100 == 55:
        try:
            db.execute("select 1 / 0")
        except Exception:
            return
    if order.number % 100 == 66 and record.attempt == 1:
        raise OSError("once")
    if order.number % 100 == 77:
        with db.transaction():
            db.execute("insert into ledger values (-1, 'kept')")
"""


def test_every_record_once_among_dead_letters(make: Callable[..., leftfold.App]) -> None:
    app = make(before=FAILS.strip())
    consumers.send(app, range(1_000))
    undecodable(app, 7)
    consumers.send(app, range(1_000, 2_000))
    undecodable(app, 3)
    ended = done(app.consume(until_caught_up=True))
    expected = once(range(2_000), but=lambda n: n % 100 in (33, 44, 55))
    assert booked() == expected + Counter({-1: 20})
    assert (ended.state, ended.handled, ended.dead, ended.lag) == ("caught up", 1_940, 70, 0)
    reasons = Counter(letter.reason.partition(":")[0] for letter in app.dead("book").letters())
    assert reasons["Unprocessable"] == reasons["DivisionByZero"] == reasons["StatementFailed"] == 20
    assert sum(reasons.values()) == 70
    assert [p.lag for p in app.position("book").show()] == [0] * 12, "past dead letters, also where nothing follows"
    assert sum(positions().values()) == 2_010
    assert done(app.consume(until_caught_up=True)).handled == 0


def test_a_database_that_restarts_under_load(make: Callable[..., leftfold.App], cluster: Cluster) -> None:
    app = make()
    crew = app.crew("book")
    with running(crew):
        consumers.send(app, range(1_000))
        projects.await_true(lambda: sum(booked().values()) > 0, timeout=240, what="some bookings")
        restart(cluster)
        consumers.send(app, range(1_000, 2_000))
        stop(cluster)
        consumers.send(app, range(2_000, 3_000))
        projects.await_true(lambda: crew.progress[0].waiting, timeout=240, what="it to wait")
        assert crew.progress[0].shown == "waiting"
        local_cluster.up(cluster.root)
        for start in range(3_000, 5_000, 1_000):
            consumers.send(app, range(start, start + 1_000))
            restart(cluster)
        projects.await_true(lambda: sum(booked().values()) >= 5_000, timeout=240, what="all bookings")
    assert booked() == once(range(5_000))
    assert crew.progress[0].dead == 0
    assert crew.progress[0].error is None


def stop(cluster: Cluster) -> None:
    """End the database at once: what is under way is lost, and it recovers at its next start."""
    os.kill(cluster.endpoints.processes["postgres"].pid, signal.SIGQUIT)
    projects.await_true(lambda: not cluster.endpoints.alive("postgres"), timeout=240, what="the end of Postgres")


def restart(cluster: Cluster) -> None:
    stop(cluster)
    local_cluster.up(cluster.root)


class running:
    """Runs a crew in a thread, and stops it in the end."""

    def __init__(self, crew: ConsumerCrew) -> None:
        self._crew = crew
        self._thread = threading.Thread(target=crew.run)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._crew.stop()
        self._thread.join(60)
        assert not self._thread.is_alive()


def test_a_handler_that_commits_is_found(make: Callable[..., leftfold.App]) -> None:
    app = make(before='if order.number == 17: db.execute("commit"); db.execute("begin")')
    consumers.send(app, range(100), customers=1)
    assert error_of(app.consume(until_caught_up=True)).code == "handler-committed"


def test_the_database_decides(make: Callable[..., leftfold.App]) -> None:
    app = make()
    consumers.send(app, range(500))
    done(app.consume(until_caught_up=True))
    admin = app.log[0].client
    group = leftfold.settings.group_id(app.profile.namespace, "book")
    admin.delete_consumer_groups([group])[group].result()
    consumers.send(app, range(500, 600))
    assert done(app.consume(until_caught_up=True)).handled == 100, "brokers have forgotten the position"
    assert booked() == once(range(600))

    position = app.position("book")
    position.set(position.moves("beginning"))
    assert set(positions().values()) == {0}
    assert done(app.consume(until_caught_up=True)).handled == 600
    assert set(booked().values()) == {2}, "asked for, and so booked once more"

    with psycopg.connect(os.environ["LEDGER_URL"]) as connection:
        connection.execute("delete from leftfold_positions")
    assert error_of(app.consume(until_caught_up=True)).code == "position-forgotten"


SLOW = """
    if order.number == 50 and record.attempt < 3:
        time.sleep(30)
"""


def test_a_call_that_takes_too_long(make: Callable[..., leftfold.App]) -> None:
    app = make(before="import time\n" + SLOW, options='timeout="500ms"')
    consumers.send(app, range(100), customers=1)
    began = time.monotonic()
    ended = done(app.consume(until_caught_up=True))
    assert (ended.handled, ended.dead) == (100, 0)
    assert ended.abandoned >= 2
    assert booked() == once(range(100))
    assert time.monotonic() - began < 25, "the session of the abandoned call does not hold the partition"


def test_a_constraint_that_is_checked_at_the_commit(make: Callable[..., leftfold.App]) -> None:
    app = make()
    with psycopg.connect(os.environ["LEDGER_URL"]) as connection:
        connection.execute("create table known (number bigint primary key)")
        connection.execute("insert into known select n from generate_series(0, 99) as n where n <> 42")
        connection.execute("alter table ledger add foreign key (number) references known deferrable initially deferred")
    consumers.send(app, range(100), customers=1)
    ended = done(app.consume(until_caught_up=True))
    assert (ended.handled, ended.dead) == (99, 1)
    assert booked() == once(range(100), but=lambda n: n == 42)


def test_a_database_that_is_not_there(make: Callable[..., leftfold.App], monkeypatch: pytest.MonkeyPatch) -> None:
    app = make()
    monkeypatch.setenv("LEDGER_URL", "postgresql://127.0.0.1:1/none")
    assert error_of(app.consume(until_caught_up=True)).code == "database-away"
