"""What each delivery loses and doubles when a member dies, step by step, on real brokers.

Each step: three members read one topic, and one of them dies there; then another one is started, which dies there too.
`make deliveries` has 20 deaths at each step, and 200,000 records; here some steps have one death.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from confluent_kafka import Consumer, TopicPartition

from leftfold.kafka.decode import avro_decoder
from tests.engine import consumers, projects
from tests.engine.conftest import Cluster
from tests.engine.dying_consumer import ALL, DIED, STEPS

FULL = bool(os.environ.get("LEFTFOLD_DELIVERIES"))
DEATHS = 20 if FULL else 1
RECORDS = 300 if FULL else 400  # for each death, at least
ZOMBIES = 50 if FULL else 1
IN_CI = {
    "at_most_once": ("position committed", "handler done"),
    "at_least_once": ("handler half done", "handler done", "commit sent"),
    "exactly_once": ("settled", "records written", "commit sent"),
    "exactly_once_sql": ("position moved", "commit sent"),
}
SEED = 20261117
IN_FLIGHT = 300
UNCOMMITTED = 1_000  # records between two commits, at most
MEMBERS = 3

HANDLERS = """
import os
out = os.open(os.environ["NOTES"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def at_step(name: str) -> None:
    pass


@lf.consumer(
    orders, start="beginning", delivery="{delivery}", in_flight={in_flight},
    most_dead=lf.MostDead(share=1.0, run=10_000), {options}
)
def effect({parameters}):
    {half}
    at_step("handler half done")
    if order.number % 97 == 0:
        raise lf.Unprocessable(f"{{order.number}} is a multiple of 97")
    {effect}
    at_step("handler done")
    return {returned}
"""
EFFECT = 'os.write(out, b"%d\\n" % order.number)  # one write: it is there as a whole, or not at all'
LEDGER = """
create schema {schema};
create table {schema}.ledger (number bigint, half integer)
"""
HALVES = "select number from ledger group by number having sum(half) <> 0"
BILLS = """

class Bill(lf.Event):
    number: int
    customer: str
    at: datetime


bills = lf.Topic("bills", Bill, key=Bill.customer, time=Bill.at, partitions=6)
"""

pytestmark = pytest.mark.timeout(7_200 if FULL else 600)


class Group:
    """Members of one consumer group, each a process."""

    def __init__(self, cluster: Cluster, root: Path, delivery: str, postgres: str) -> None:
        self.delivery = delivery
        once, sql = delivery == "exactly_once", delivery == "exactly_once_sql"
        namespace = f"d{uuid.uuid4().hex[:8]}"
        insert = 'db.execute("insert into ledger values (%s, {})", (order.number,))'
        if sql:
            with psycopg.connect(postgres) as connection:
                connection.execute(LEDGER.format(schema=namespace).encode())
            os.environ["LEDGER_URL"] = f"{postgres}&options=-csearch_path%3D{namespace}"
        declared = (BILLS if once else "") + HANDLERS.format(
            delivery=delivery.removesuffix("_sql"),
            parameters="order: Order, db: lf.SqlConnection" if sql else "order: Order",
            half=insert.format(-1) if sql else "pass",
            in_flight=IN_FLIGHT,
            options="to=bills" if once else 'into=lf.Sql("env:LEDGER_URL")' if sql else "",
            effect="pass" if once else insert.format(1) if sql else EFFECT,
            returned="Bill(number=order.number, customer=order.customer, at=order.at)" if once else "None",
        )
        self._bills: Counter[int] = Counter()
        self._reader: Consumer | None = None  # of the bills
        self._decode: Any = None
        self.notes = root / "notes"
        os.environ["NOTES"] = str(self.notes)
        self.app = consumers.make(root / "project", cluster.endpoints, namespace, declared)
        self._errors = (root / "errors").open("ab")
        consumers.shorten_sessions(self.app, "effect")

    @contextmanager
    def member(self, step: str = "", count: int = 1) -> Iterator[subprocess.Popen[bytes]]:
        command = [
            consumers.PYTHON,
            "-m",
            "tests.engine.dying_consumer",
            str(self.app.root),
            step,
            str(count),
            "effect",
        ]
        process = subprocess.Popen(command, stderr=self._errors, stdout=self._errors, cwd=Path(__file__).parents[2])
        try:
            yield process
        finally:
            process.kill()
            process.wait()

    def handled(self) -> Counter[int]:
        """How often each order has had its effect: a line in a file, a bill that readers see, or a row."""
        if self.delivery == "exactly_once_sql":
            with psycopg.connect(os.environ["LEDGER_URL"]) as connection:
                assert connection.execute(HALVES).fetchall() == [], "half an effect"
                return Counter(number for (number,) in connection.execute("select number from ledger where half = 1"))
        if self.delivery != "exactly_once":
            return consumers.noted(self.notes)
        if self._reader is None:
            name = self.app.profile.topic_name("bills")
            settings = {
                "group.id": "none",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "log_level": 0,
            }
            self._reader = Consumer({"bootstrap.servers": self.app.kafka.bootstrap, **settings})
            self._reader.assign([TopicPartition(name, p, 0) for p in range(6)])
        schema, decode = self.app.log[1].schema, self._decode
        while messages := self._reader.consume(1_000, timeout=0.3):
            for message in messages:
                assert message.error() is None, message.error()
                decode = decode or avro_decoder(self.app.catalog.topic("bills").event, {"number"}, schema)
                fields = decode(message.value())
                assert fields is not None
                self._bills[fields["number"]] += 1
        self._decode = decode
        return self._bills.copy()

    def dead(self) -> set[int]:
        """The numbers of the orders that are dead letters, by the reasons that the handler gave."""
        return {int(letter.reason.split()[1]) for letter in self.app.dead("effect").letters()}

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()

    def lag(self) -> int:
        return sum(p.lag or 0 if p.position is not None else p.end for p in self.app.position("effect").show())

    def await_caught_up(self) -> None:
        projects.await_true(lambda: self.lag() == 0, timeout=180, what="the group to catch up")


@pytest.fixture(params=ALL)
def group(cluster: Cluster, postgres: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Group]:
    made = Group(cluster, tmp_path, request.param, postgres)
    yield made
    made.close()


def test_a_death_at_each_step(group: Group, capsys: pytest.CaptureFixture[str]) -> None:
    rnd = random.Random(SEED)
    at_most_once, at_least_once = group.delivery == "at_most_once", group.delivery == "at_least_once"
    steps = [step for step, deliveries in STEPS.items() if group.delivery in deliveries]
    if not FULL:
        steps = [step for step in steps if step in IN_CI[group.delivery]]
    table: dict[str, tuple[int, int, int]] = {}
    sent = 0
    for step in steps:
        before, first, dead, died = group.handled(), sent, group.dead(), 0
        with ExitStack() as members:
            others = [members.enter_context(group.member()) for _ in range(MEMBERS - 1)]
            for _ in range(DEATHS):
                with group.member(step, count_at(step, rnd)) as victim:
                    sent = sent_until_dead(group, victim, sent)
                    died += victim.wait() == DIED
            group.await_caught_up()
            for other in others:
                other.send_signal(signal.SIGTERM)
        if group.delivery == "exactly_once":
            await_visible(group, range(first, sent), dead)
        after = group.handled()
        after.subtract(before)
        buried = group.dead() - dead
        lost = sum(after[number] == 0 and number not in buried for number in range(first, sent))
        doubled = sum(max(0, after[number] - 1) for number in range(first, sent))
        table[step] = died, lost, doubled
        with capsys.disabled():
            shown = f"{died} deaths, {sent - first:,} records, {lost} lost, {doubled} doubled"
            print(f"\n{group.delivery}, {step}: {shown}", end="", flush=True)
        assert died == DEATHS, f"only {died} of {DEATHS} members died after: {step}"
        assert doubled <= (died * (UNCOMMITTED + IN_FLIGHT) if at_least_once else 0), step
        # A survivor that is late with its heartbeats is thrown out of the group, and drops what it holds, too.
        assert lost <= ((died + MEMBERS - 1) * IN_FLIGHT if at_most_once else 0), step
    # Else the deaths did not happen where they should.
    assert (sum(lost for _, lost, _ in table.values()) > 0) == at_most_once
    assert (sum(doubled for _, _, doubled in table.values()) > 0) == at_least_once


def sent_until_dead(group: Group, victim: subprocess.Popen[bytes], sent: int) -> int:
    """Send records until a member has come to its step and died. Returns how many were sent in all."""
    until, deadline = sent + RECORDS, time.monotonic() + 120
    while (victim.poll() is None or sent < until) and time.monotonic() < deadline:
        consumers.send(group.app, range(sent, sent + 50))
        sent += 50
    if victim.poll() is None:
        victim.kill()
    return sent


def count_at(step: str, rnd: random.Random) -> int:
    """How often the step is passed before the death: steps of single records more often than those of slices."""
    if step == "dead letter acknowledged":
        return 1
    return rnd.randint(1, 60) if step.startswith("handler") else rnd.randint(1, 3)


def await_visible(group: Group, numbers: range, dead: set[int]) -> None:
    """Wait until read-committed readers see all effects, for longer than the open transaction of a dead process lasts.

    A position is visible a moment before the records of its transaction are.
    """
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and set(numbers) - group.handled().keys() - (group.dead() - dead):
        time.sleep(0.2)


def await_more(group: Group, handled: int) -> None:
    projects.await_true(lambda: sum(group.handled().values()) > handled, timeout=240, what="a record to be handled")


def test_a_member_that_was_overtaken(group: Group) -> None:
    """A member is stopped for longer than its session. Woken up, it moves no position that others have moved."""
    sent = 0
    for _ in range(ZOMBIES):
        before, first = group.handled(), sent
        sent += 400
        with group.member() as zombie, group.member():
            consumers.send(group.app, range(first, first + 200))
            await_more(group, sum(before.values()))
            zombie.send_signal(signal.SIGSTOP)
            consumers.send(group.app, range(first + 200, sent))
            group.await_caught_up()
            positions = {(p.topic, p.partition): p.position for p in group.app.position("effect").show()}
            zombie.send_signal(signal.SIGCONT)
            time.sleep(1.5)  # it finds out at its next heartbeat; that nothing happens cannot be awaited
            now = {(p.topic, p.partition): p.position for p in group.app.position("effect").show()}
            assert all((now[part] or 0) >= (at or 0) for part, at in positions.items()), "a position went back"
            zombie.send_signal(signal.SIGTERM)
            assert zombie.wait(300) == 0
        if group.delivery == "exactly_once":
            await_visible(group, range(first, sent), set())
        after = group.handled()
        after.subtract(before)
        missing = [n for n in range(first, sent) if after[n] == 0 and n % 97]
        assert group.delivery == "at_most_once" or missing == []
        assert group.delivery == "at_least_once" or max(after[n] for n in range(first, sent)) <= 1
