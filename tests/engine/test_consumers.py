"""Consumers on real brokers: deliveries, order, failures, dead letters, rebalances, refusals."""

from __future__ import annotations

import json
import os
import subprocess
import time
import uuid
from collections import defaultdict
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

import leftfold
from leftfold.consume.crew import ConsumerCrew
from leftfold.errors import LogError
from tests.engine import consumers, projects
from tests.engine.conftest import Cluster

pytestmark = pytest.mark.timeout(600)
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)

NOTE = """

@lf.consumer(orders, start="beginning"{options})
def note(order: Order, record: lf.Record) -> None:
    with open(os.environ["NOTES"], "a") as notes:
        notes.write(f"{{order.number}} {{record.id}} {{record.attempt}} {{record.redriven}}\\n")
"""


@pytest.fixture
def make(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], leftfold.App]:
    def made(declared: str) -> leftfold.App:
        monkeypatch.setenv("NOTES", str(tmp_path / "notes"))
        return consumers.make(tmp_path / "project", cluster.endpoints, f"c{uuid.uuid4().hex[:8]}", declared)

    return made


def notes(app: leftfold.App) -> list[list[str]]:
    path = app.root.parent / "notes"
    return [line.split() for line in path.read_text().splitlines()] if path.exists() else []


def numbers(app: leftfold.App) -> list[int]:
    return [int(words[0]) for words in notes(app)]


def done(progress: list[Any]) -> Any:
    (one,) = progress
    if one.error is not None:
        raise one.error
    return one


@pytest.mark.parametrize("delivery", ["at_least_once", "at_most_once"])
def test_each_record_once_without_a_crash(make: Callable[[str], leftfold.App], delivery: str) -> None:
    app = make(NOTE.format(options=f', delivery="{delivery}"'))
    consumers.send(app, range(500))
    ended = done(app.consume("note", until_caught_up=True))
    assert (ended.state, ended.handled, ended.dead, ended.lag) == ("caught up", 500, 0, 0)
    assert sorted(numbers(app)) == list(range(500))
    consumers.send(app, range(500, 600))
    assert done(app.consume(until_caught_up=True)).handled == 100
    assert sorted(numbers(app)) == list(range(600))
    assert [p.lag for p in app.position("note").show()] == [0] * 12


def test_now_begins_at_the_end_and_stays_there(make: Callable[[str], leftfold.App]) -> None:
    app = make(NOTE.format(options="").replace('"beginning"', '"now"'))
    consumers.send(app, range(100))
    assert done(app.consume(until_caught_up=True)).handled == 0
    consumers.send(app, range(100, 150))
    assert done(app.consume(until_caught_up=True)).handled == 50, "the first run has fixed where it begins"
    assert sorted(numbers(app)) == list(range(100, 150))


ORDER = """
import threading, time
seen = {{}}
overlaps = []
running = set()

@lf.consumer(orders, start="beginning", parallel=16{options})
def keep_order(order: Order) -> None:
    if order.customer in running:
        overlaps.append(order.customer)
    running.add(order.customer)
    time.sleep(0.001)
    running.discard(order.customer)
    seen.setdefault(order.customer, []).append(order.number)
"""


def test_order_of_a_key_with_sixteen_threads(make: Callable[[str], leftfold.App]) -> None:
    app = make(ORDER.format(options=""))
    consumers.send(app, range(3_000))
    assert done(app.consume(until_caught_up=True)).handled == 3_000
    of = app.catalog.consumer("keep_order").function.__globals__
    expected = defaultdict(list)
    for number in range(3_000):
        expected[consumers.order(number)["customer"]].append(number)
    assert of["overlaps"] == []
    assert of["seen"] == expected


BATCHES = """
sizes = []
orders_seen = []

@lf.consumer(orders, start="beginning", batch=lf.Batch(100, within="50ms"), retry=lf.Retry(attempts=2, first="10ms"))
async def batches(batch, records) -> None:
    sizes.append(len(batch))
    assert len({r.partition for r in records}) == 1
    if any(o.number == 77 for o in batch):
        raise ValueError("77 is not liked")
    orders_seen.extend(o.number for o in batch)
"""


def test_batches_and_the_one_bad_record_in_them(make: Callable[[str], leftfold.App]) -> None:
    app = make(BATCHES)
    consumers.send(app, range(2_000))
    ended = done(app.consume(until_caught_up=True))
    of = app.catalog.consumer("batches").function.__globals__
    assert (ended.handled, ended.dead) == (1_999, 1)
    assert sorted(of["orders_seen"]) == [n for n in range(2_000) if n != 77]
    assert 10 < max(of["sizes"]) <= 100
    (letter,) = app.dead("batches").letters()
    assert letter.reason == "ValueError: 77 is not liked"


FRAGILE = """
from pathlib import Path
tries = {}

@lf.consumer(orders, start="beginning", retry=lf.Retry(attempts=3, first="20ms"), most_dead=lf.MostDead(share=0.1))
def fragile(order: Order, record: lf.Record) -> None:
    tries[order.number] = tries.get(order.number, 0) + 1
    if order.number % 100 == 50 and not Path(os.environ["NOTES"] + ".mended").exists():
        raise ValueError(f"cannot take {order.number}")
    if order.number % 100 == 60:
        raise lf.Unprocessable("never")
    if order.number % 100 == 70 and tries[order.number] == 1:
        raise OSError("once")
    if order.number % 100 == 80 and tries[order.number] == 1:
        raise lf.NotNow("30ms")
    with open(os.environ["NOTES"], "a") as notes:
        notes.write(f"{order.number} {record.id} {record.attempt} {record.redriven}\\n")
"""


def test_failures_dead_letters_and_re_drives(make: Callable[[str], leftfold.App]) -> None:
    app = make(FRAGILE)
    consumers.send(app, range(1_000))
    undecodable(app, 5)
    ended = done(app.consume(until_caught_up=True))
    assert (ended.handled, ended.dead) == (980, 25)
    letters = app.dead("fragile").letters()
    by_outcome = defaultdict(set)
    for letter in letters:
        by_outcome[letter.outcome, letter.attempts].add(letter.reason)
    assert by_outcome.keys() == {("rejected", 0), ("failed", 3), ("failed", 1)}
    assert by_outcome["failed", 1] == {"Unprocessable: never"}
    assert sorted(numbers(app)) == [n for n in range(1_000) if n % 100 not in (50, 60)]
    assert {words[0]: words[2] for words in notes(app) if int(words[0]) % 100 in (70, 80)} == {
        **{str(n): "2" for n in range(70, 1_000, 100)},
        **{str(n): "1" for n in range(80, 1_000, 100)},
    }

    Path(f"{app.root.parent}/notes.mended").touch()
    wanted = [letter for letter in letters if letter.outcome == "failed"]
    assert app.dead("fragile").redrive(wanted) == 20
    assert len(app.dead("fragile").letters()) == 5
    ended = done(app.consume(until_caught_up=True))
    assert (ended.handled, ended.dead) == (10, 10)
    again = [words for words in notes(app) if int(words[0]) % 100 == 50]
    assert {(words[2], words[3]) for words in again} == {("4", "True")}
    assert {words[1] for words in again} == {str(letter.place) for letter in wanted if "take" in letter.reason}
    assert {letter.attempts for letter in app.dead("fragile").letters()} == {0, 2}
    assert app.dead("fragile").drop(app.dead("fragile").letters()) == 15
    assert app.dead("fragile").letters() == []


def undecodable(app: leftfold.App, records: int) -> None:
    producer = Producer({"bootstrap.servers": app.kafka.bootstrap})
    for number in range(records):
        producer.produce(app.profile.topic_name("orders"), b"no event", b"c1", headers={"n": str(number).encode()})
    assert producer.flush(30) == 0


BILLED = """

class Bill(lf.Event):
    number: int
    customer: str
    at: datetime


bills = lf.Topic("bills", Bill, key=Bill.customer, time=Bill.at, partitions=3)


@lf.consumer(orders, start="beginning", delivery="exactly_once", to=bills, parallel=4, most_dead=lf.MostDead(share=0.1))
{kind} bill(order: Order, record: lf.Record):
    if order.number % 100 == 33:
        raise lf.Unprocessable("33 is not billed")
    if order.number % 100 == 44:
        return None
    one = Bill(number=order.number, customer=order.customer, at=order.at)
    return [one, one] if order.number % 100 == 55 else one
"""


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_exactly_once_from_topic_to_topic(make: Callable[[str], leftfold.App], kind: str) -> None:
    app = make(BILLED.format(kind=kind))
    consumers.send(app, range(3_000))
    ended = done(app.consume(until_caught_up=True))
    assert (ended.state, ended.handled, ended.dead, ended.lag) == ("caught up", 2_970, 30, 0)
    bills = [r.fields["number"] for r in app.read("bills", start=LONG_AGO, most=None) if r.fields]
    expected = [n for n in range(3_000) if n % 100 not in (33, 44)] + [n for n in range(3_000) if n % 100 == 55]
    assert sorted(bills) == sorted(expected)
    by_key = defaultdict(list)
    for record in app.read("bills", start=LONG_AGO, most=None):
        assert record.fields is not None
        by_key[record.fields["customer"]].append(record.fields["number"])
    assert all(numbers == sorted(numbers) for numbers in by_key.values()), "bills of a customer are in order"
    assert len(app.dead("bill").letters()) == 30
    assert done(app.consume(until_caught_up=True)).handled == 0


STRICT = """

@lf.consumer(orders, start="beginning", retry=lf.Retry(attempts=1){options})
def strict(order: Order) -> None:
    if order.number >= 300:
        raise lf.Unprocessable("too large")
"""


@pytest.mark.parametrize(
    ("options", "code"),
    [(', failure="stop"', "handler-failed"), (", most_dead=lf.MostDead(run=5)", "too-many-dead")],
)
def test_it_stops_before_it_passes_over_a_record(make: Callable[[str], leftfold.App], options: str, code: str) -> None:
    app = make(STRICT.format(options=options))
    consumers.send(app, range(600), customers=1)
    (ended,) = app.consume(until_caught_up=True)
    assert ended.error is not None
    assert ended.error.code == code
    dead = {letter.place.offset for letter in app.dead("strict").letters()}
    (position,) = [p for p in app.position("strict").show() if p.position]
    assert position.position == 300 + len(dead)


AWAY_S = 60 if os.environ.get("LEFTFOLD_OUTAGE") else 6  # the longer one by make outage
OUTAGE = """
import time
began = []

@lf.consumer(orders, start="beginning", retry=lf.Retry(attempts=3, first="20ms"))
def calls_a_service(order: Order) -> None:
    began.append(time.monotonic())
    if began[-1] - began[0] < {away}:
        raise ConnectionError("the service is away")
"""


def test_an_outage_writes_no_dead_letter(make: Callable[[str], leftfold.App]) -> None:
    app = make(OUTAGE.format(away=AWAY_S))
    consumers.send(app, range(2_000))
    started = time.monotonic()
    ended = done(app.consume(until_caught_up=True))
    assert (ended.handled, ended.dead) == (2_000, 0)
    calls = len(app.catalog.consumer("calls_a_service").function.__globals__["began"])
    assert calls < 2_000 + 100, "what is away is not called again and again"
    assert time.monotonic() - started < 2 * AWAY_S + 20, "twice the outage, and the start of a group"


def test_two_members_share_and_one_that_leaves_hands_over(make: Callable[[str], leftfold.App]) -> None:
    app = make(NOTE.format(options=""))
    consumers.send(app, range(1_000))
    with consumers.consuming(app.root) as first, consumers.consuming(app.root) as second:
        projects.await_true(lambda: len(notes(app)) >= 1_000, timeout=240, what="the first thousand")
        for start in range(1_000, 5_000, 500):
            consumers.send(app, range(start, start + 500))
            if start == 2_500:
                assert first.terminate() == 0, first.explain()
        projects.await_true(lambda: len(notes(app)) >= 5_000, timeout=240, what="all of them")
        assert second.terminate() == 0, second.explain()
    assert sorted(numbers(app)) == list(range(5_000)), "0 lost and 0 doubled at a graceful leave"


def test_a_killed_member_loses_nothing(make: Callable[[str], leftfold.App]) -> None:
    app = make(NOTE.format(options=""))
    consumers.send(app, range(3_000))
    with consumers.consuming(app.root) as first:
        projects.await_true(lambda: len(notes(app)) >= 200, timeout=240, what="some")
        first.kill()
    consumers.ended(app.root)
    handled = numbers(app)
    assert set(handled) == set(range(3_000))
    assert len(handled) - 3_000 <= 2_000, "no more than was in flight or not committed"


def test_pause_and_resume(make: Callable[[str], leftfold.App]) -> None:
    app = make(NOTE.format(options=""))
    app.pause("note")
    consumers.send(app, range(100))
    with consumers.consuming(app.root) as running:
        time.sleep(4)  # nothing happens, so there is nothing to await
        assert notes(app) == []
        app.resume("note")
        projects.await_true(lambda: len(notes(app)) == 100, timeout=240, what="records after the pause")
        app.pause("note")
        time.sleep(2)
        consumers.send(app, range(100, 150))
        time.sleep(2)
        assert len(notes(app)) == 100
        assert running.terminate() == 0
    app.resume("note")


def refusal(app: leftfold.App) -> Any:
    (ended,) = app.consume(until_caught_up=True)
    assert ended.error is not None
    return ended.error


def test_a_forgotten_position_is_refused(make: Callable[[str], leftfold.App]) -> None:
    app = make(NOTE.format(options=""))
    consumers.send(app, range(100))
    done(app.consume(until_caught_up=True))
    (group,) = [g.group for g in app.groups("orders") if g.view is None]
    app.log[0].answer(app.log[0].client.delete_consumer_groups([group])[group])
    assert refusal(app).code == "position-forgotten"
    assert len(notes(app)) == 100
    app.position("note").set(app.position("note").moves("now"))
    assert done(app.consume(until_caught_up=True)).handled == 0


def test_a_topic_made_again_is_refused(make: Callable[[str], leftfold.App]) -> None:
    app = make(NOTE.format(options=""))
    consumers.send(app, range(100))
    done(app.consume(until_caught_up=True))
    name = app.profile.topic_name("orders")
    app.log[0].delete(name, app.log[0].topic_ids([name])[name])
    projects.apply(app)
    consumers.send(app, range(10))
    assert refusal(app).code == "topic-recreated"
    app.position("note").set(app.position("note").moves("beginning"))
    assert done(app.consume(until_caught_up=True)).handled == 10


def test_a_head_that_is_gone_is_refused(make: Callable[[str], leftfold.App]) -> None:
    from confluent_kafka import TopicPartition

    app = make(NOTE.format(options=""))
    consumers.send(app, range(100))
    done(app.consume(until_caught_up=True))
    consumers.send(app, range(100, 200), customers=1)
    name = app.profile.topic_name("orders")
    ends = app.log[0].end_offsets(name, 6)
    cut = [TopicPartition(name, p, end) for p, end in ends.items()]
    for answer in app.log[0].client.delete_records(cut).values():
        app.log[0].answer(answer)
    error = refusal(app)
    assert error.code == "log-overtaken"
    assert error.details["to"] - error.details["from"] == 100


def test_the_command_line(make: Callable[[str], leftfold.App]) -> None:
    app = make(FRAGILE)
    consumers.send(app, range(200))

    def run(*words: str, code: int = 0) -> Any:
        command = [projects.LEFTFOLD, *words, "--json"]
        told = subprocess.run(command, cwd=app.root, capture_output=True, text=True, timeout=120, check=False)
        assert told.returncode == code, told.stdout + told.stderr
        return json.loads(told.stdout.splitlines()[-1])

    assert run("consume", "--until-caught-up")["consumers"][0]["dead"] == 4
    listed = run("dead", "list", "fragile")
    assert (listed["total"], listed["counts"]["Unprocessable: never"]) == (4, 2)
    shown = run("dead", "show", "fragile", listed["letters"][0]["position"])
    assert shown["attempts"] in (1, 3)
    assert run("dead", "redrive", "fragile", listed["letters"][0]["position"])["redriven"] == 1
    assert run("dead", "drop", "fragile", "--all", "--yes")["dropped"] == 3
    assert run("dead", "show", "fragile", "x/0/1", code=1)["error"]["code"] == "unknown-position"
    assert sum(p["lag"] for p in run("position", "show", "fragile")["partitions"]) == 1
    moves = run("position", "set", "fragile", "--start", "beginning", "--yes")["moves"]
    assert -sum(move["skipped"] for move in moves) == 200
    assert run("consume", "--consumers", "nobody", code=1)["error"]["code"] == "unknown-consumer"


def test_positions_cannot_be_set_under_members(make: Callable[[str], leftfold.App]) -> None:
    app = make(NOTE.format(options=""))
    consumers.send(app, range(10))
    with consumers.consuming(app.root):
        projects.await_true(lambda: len(notes(app)) == 10, timeout=240, what="records")
        position = app.position("note")
        with pytest.raises(LogError) as refused:
            position.set(position.moves("beginning"))
        assert refused.value.code == "group-has-members"


def test_a_crew_can_be_stopped(make: Callable[[str], leftfold.App]) -> None:
    app = make(NOTE.format(options=""))
    consumers.send(app, range(10))
    crew: ConsumerCrew = app.crew()

    def look(progress: list[Any]) -> None:
        if progress[0].handled == 10:
            crew.stop()

    (ended,) = crew.run(look)
    assert (ended.state, ended.error) == ("stopped", None)
