"""Skew on real engines: values that were served are computed again, and 40 falsified ones are named.

Predictions are made by requests and by a stream while a view runs, over a promote, over a Redis that is emptied and
repaired, with late and re-driven records. `make engine` makes some thousand predictions, `make skew` 100,000 or more
over two promotes on a Spark cluster, of which an executor is killed under each view and one under the comparison.
"""

from __future__ import annotations

import json
import math
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import redis

import leftfold
from leftfold.declare.companions import definitions_topic
from leftfold.errors import LeftfoldError
from leftfold.kafka.definition_log import DefinitionLog
from leftfold.kafka.receipt_log import ReceiptLog
from leftfold.kafka.rejects import RecordPosition
from leftfold.rebuild.rebuild import Rebuild
from leftfold.run.receipt_store import ReceiptStore
from leftfold.run.receipts import Applied
from leftfold.settings import Spark
from leftfold.spark.session import build_session
from tests.engine import projects
from tests.engine.conftest import Cluster
from tests.engine.log import Logged, read_topic
from tests.engine.rebuilds import LATENESS_US, VIEW, Project, looked
from tests.engine.test_parity import live
from tests.engine.test_promote import caught_up
from tests.engine.test_standalone import WORKERS, executors

LONG = os.environ.get("LEFTFOLD_SKEW", "")
FULL = bool(LONG)
PREDICTIONS = {"": 1_000, "full": 100_000}[LONG] if LONG in ("", "full") else int(LONG)
LIMITS = (100, 50, 75) if FULL else (100, 50)  # each next one is promoted over the one before
RATE, KEYS_AT_ONCE, PAUSE_S = (600, 200, 0.02) if FULL else (60, 10, 0.3)
SEED = int(os.environ.get("LEFTFOLD_SEED", str(random.SystemRandom().randrange(10**6))))
FAULTS = 40

# test_skew_classes.py has every class and reason.
pytestmark = [
    pytest.mark.usefixtures("near_clocks"),
    pytest.mark.timeout(3_600 if FULL else 1_200),
]

STREAMS = """\
from collections.abc import Sequence
from datetime import datetime

import leftfold as lf


class Payment(lf.Event):
    id: int
    account: str
    amount: float
    note: str | None = None
    at: datetime


payments = lf.Topic("payments", Payment, key=Payment.account, time=Payment.at, partitions=6, lateness="3s")


class AccountActivity(lf.Features, of=payments, by=Payment.account):
    big_12s = lf.count("12s", where=Payment.amount > LIMIT)
    amount_2m = lf.sum(Payment.amount, "2m")
    mean_12s = lf.mean(Payment.amount, "12s")
    note_2m = lf.last(Payment.note, "2m")
    recent_2m = lf.last_n(Payment.note, "2m", n=3)
    notes_2m = lf.distinct(Payment.note, "2m")
    each_2m = lf.sum(Payment.amount, "2m") / lf.count("2m")


class FraudInput(lf.Vector):
    big_12s = AccountActivity.big_12s
    amount_2m = AccountActivity.amount_2m.default(0.0)
    mean_12s = AccountActivity.mean_12s
    note_2m = AccountActivity.note_2m
    recent_2m = AccountActivity.recent_2m
    notes_2m = AccountActivity.notes_2m
    each_2m = AccountActivity.each_2m
    amount = lf.request(float)


class FraudScore(lf.Prediction, of=FraudInput):
    score: float


fraud_scores = lf.Predictions("fraud_scores", FraudScore, partitions=3)


def load() -> lf.Model[float]:
    return lf.Model(0.01, version="7")


@lf.scorer(FraudInput, to=fraud_scores, model=load, on=lf.each(payments, start="beginning"))
def fraud(model: float, rows: lf.Rows[FraudInput]) -> Sequence[float]:
    return [model * (row.big_12s or 0) for row in rows]
"""
# What the oracle below computes. An estimate of distinct values has no exact oracle.
ORACLE = ("big_12s", "amount_2m", "mean_12s", "note_2m", "recent_2m", "each_2m")
FEATURES = (*ORACLE, "notes_2m")
BUILD, BATCH = f"{VIEW}__build", f"{VIEW}__batch"


def limited(limit: int) -> str:
    return STREAMS.replace("LIMIT", str(limit))


class Scored(Project):
    """A project with a scorer, payments of skewed keys, and a thread that asks for scores."""

    asked = refused = 0

    def send(self, seconds: float, a_second: int = RATE) -> None:
        """Send payments. A fifth is out of order, some are late, a few cannot be decoded, a few are a moment ahead."""
        until = time.monotonic() + seconds
        chance = self._chance
        with self.app.producer("payments") as producer:
            while time.monotonic() < until:
                for number in range(self.sent, self.sent + a_second // 10):
                    fate = chance.random()
                    ahead = fate > 0.998
                    delay = chance.uniform(0, 3.3) if fate < 0.2 else -chance.uniform(0.1, 0.3) if ahead else 0.01
                    record = {
                        "id": number,
                        "account": f"b{number % 3}" if ahead else f"a{int(chance.paretovariate(0.7)) % 200}",
                        "amount": round(chance.lognormvariate(4.2, 1.0), 2),
                        "note": None if chance.random() < 0.3 else f"n{number}",
                        "at": datetime.now(UTC) - timedelta(seconds=delay),
                    }
                    value = producer.encode(record)
                    spoilt = chance.random() < 0.005
                    producer.send_encoded(producer.key_of(record), value[:7] if spoilt else value)
                self.sent += a_second // 10
                time.sleep(0.1)

    @contextmanager
    def scoring(self) -> Iterator[None]:
        """Ask for scores from a thread while the block runs. A store without its view refuses; that is no score."""
        done, chance = threading.Event(), random.Random(SEED + 1)
        app = leftfold.open(self.root)
        fraud = app.catalog.scorer("fraud")

        def go_on() -> None:
            while not done.is_set():
                accounts = [f"a{int(chance.paretovariate(0.7)) % 210}" for _ in range(KEYS_AT_ONCE)]
                try:
                    app.score_many(fraud, [{"account": account, "amount": 1.0} for account in accounts])
                    self.asked += len(accounts)
                except LeftfoldError:
                    self.refused += 1
                done.wait(PAUSE_S)

        thread = threading.Thread(target=go_on)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()
            app.close()

    def await_scores(self, more: int) -> None:
        wanted = self.asked + more
        projects.await_true(lambda: self.asked >= wanted, timeout=1_800, what=f"{wanted:,} scores")

    def predictions(self) -> list[dict[str, Any]]:
        """Return the accepted predictions in the log, each id once: the first."""
        topic = self.app.profile.topic_name("fraud_scores")
        schemas = self.app.log[1].versions(f"{topic}-value")
        logged = sorted(read_topic(self.endpoints.bootstrap, topic, schemas), key=lambda one: one.offset)
        first: dict[str, dict[str, Any]] = {}
        for one in logged:
            assert one.record is not None
            first.setdefault(one.record["prediction_id"], one.record)
        return list(first.values())

    def batches(self, build: str) -> dict[int, Applied]:
        log = ReceiptLog(self.app.kafka, self.app.profile.topic_name("leftfold.receipts"))
        known = [r.batches() for r in ReceiptStore(log, f"{VIEW}/{build}").every()]
        return {one.batch: one for some in known for one in some or ()}

    def empty_the_store(self) -> None:
        client = redis.Redis.from_url(self.endpoints.redis_url)
        keys = list(client.scan_iter(match=f"lf:{self.namespace}:*", count=10_000))
        assert keys
        client.delete(*keys)


@dataclass(frozen=True)
class Payments:
    """Accepted payments of an account as columns, by event time; of one time, by partition and offset."""

    event_us: Any
    partition: Any
    offset: Any
    log_us: Any
    amount: Any
    units: Any  # the amount in millionths
    note: Any

    @classmethod
    def of(cls, rows: list[tuple[int, int, int, int, float, str | None]]) -> Payments:
        columns = [[row[n] for row in sorted(rows, key=lambda row: row[:3])] for n in range(6)]
        units = [int(Decimal(repr(a)).quantize(Decimal("0.000001"), ROUND_HALF_UP).scaleb(6)) for a in columns[4]]
        kinds = (np.int64, np.int64, np.int64, np.int64, float, np.int64, object)
        return cls(*map(np.array, [*columns[:5], units, columns[5]], kinds))

    def __len__(self) -> int:
        return len(self.event_us)

    def only(self, which: Any) -> Payments:
        return Payments(*(getattr(self, name)[which] for name in self.__dataclass_fields__))

    def between(self, start: int, end: int) -> Payments:
        return self.only(slice(*np.searchsorted(self.event_us, (start, end))))

    def held(self, ends: dict[int, int]) -> Payments:
        """Those below the ends of their partitions."""
        every = np.unique(self.partition)
        limits = np.zeros(int(every.max(initial=0)) + 1, np.int64)
        limits[every] = [ends.get(int(p), 0) for p in every]
        return self.only(self.offset < limits[self.partition])


REACH_US = 150_000_000  # no window reaches further back, also if it begins a tile earlier


class Oracle:
    """The values of an account from the log itself, without Spark and without the code of the product."""

    def __init__(self, logged: list[Logged], corrected: dict[RecordPosition, dict[str, Any]]) -> None:
        paid: dict[str, list[Any]] = {}
        again: dict[str, list[Any]] = {}
        for one in logged:
            record = one.record or corrected.get(RecordPosition(one.partition, one.offset))
            if record is None:
                continue
            event_us = round(record["at"].timestamp() * 1_000_000)
            if not one.log_us - LATENESS_US <= event_us <= one.log_us + 60_000_000:
                continue
            row = (event_us, one.partition, one.offset, one.log_us, record["amount"], record.get("note"))
            (paid if one.record is not None else again).setdefault(record["account"], []).append(row)
        every = {account: [*paid.get(account, ()), *again.get(account, ())] for account in (*paid, *again)}
        self.paid = {account: Payments.of(rows) for account, rows in paid.items()}
        self.corrected = again.keys()
        self._every = {account: Payments.of(rows) for account, rows in every.items()}

    def known(self, account: str, at: int, ends: dict[int, int]) -> Payments:
        """The payments before a moment that a store held, as far back as values reach."""
        return self.paid.get(account, NONE).between(at - REACH_US, at).held(ends)

    def served(self, account: str, at: int, ends: dict[int, int], limit: int) -> dict[str, Any]:
        return values(self.known(account, at, ends), at, limit)

    def logged(self, account: str, at: int, limit: int) -> dict[str, Any]:
        every = self._every.get(account, NONE).between(at - REACH_US, at)
        return values(every.only(every.log_us < at), at, limit)


NONE = Payments.of([])


def values(known: Payments, at: int, limit: int, *, shift: int = 0) -> dict[str, Any]:
    """Return the values over these payments. With `shift`, windows begin so many tiles later."""

    def within(window: int, step: int) -> Payments:
        start = (at - window * 1_000_000) // (step * 1_000_000) * step * 1_000_000 + shift * step * 1_000_000
        return known.between(start, at)

    short, long = within(12, 1), within(120, 10)
    notes = newest(long.note)
    total = int(long.units.sum()) / 10**6 if len(long) else None
    return {
        "big_12s": int((short.amount > limit).sum()),
        "amount_2m": 0.0 if total is None else total,
        "mean_12s": int(short.units.sum()) / 10**6 / len(short) if len(short) else None,
        "note_2m": notes[0] if notes else None,
        "recent_2m": notes,
        "each_2m": None if total is None else total / len(long),
    }


def newest(notes: Any) -> list[str]:
    """The newest three notes that are not missing."""
    found: list[str] = []
    for note in reversed(notes):
        if note is not None:
            found.append(note)
            if len(found) == 3:
                break
    return found


def micros(moment: datetime) -> int:
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


@contextmanager
def rebuilding(app: leftfold.App, spark: Any) -> Iterator[Rebuild]:
    """A rebuild that follows the log from a thread until the block ends."""
    rebuild = app.rebuild(VIEW)
    thread = threading.Thread(target=rebuild.run, args=(looked,), kwargs={"session": spark})
    thread.start()
    try:
        yield rebuild
    finally:
        rebuild.stop()
        thread.join(180)
    assert not thread.is_alive()
    assert rebuild.progress.error is None, rebuild.progress.error


@pytest.fixture
def session(cluster: Cluster, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Any]:
    """The shared session; in the long version one with executors of their own, which can be killed."""
    if not FULL:
        yield request.getfixturevalue("spark")
        return
    address = cluster.cluster.up(cluster.root, spark_workers=WORKERS).spark_url
    assert address is not None
    settings = Spark(master=address, conf={"spark.cores.max": WORKERS})
    started = build_session(settings, application="skew", log_file=tmp_path / "spark.log")
    yield started
    started.stop()
    cluster.cluster.up(cluster.root, spark_workers=0)


def kill_an_executor(cluster: Cluster, log: Path) -> None:
    """Kill one, and wait until the driver has lost it and has another one."""
    lost = log.read_text().count("Lost executor")
    living = executors(cluster.endpoints)
    os.kill(living[0].pid, signal.SIGKILL)
    projects.await_true(lambda: log.read_text().count("Lost executor") > lost, timeout=240, what="a lost executor")
    projects.await_true(
        lambda: any(one not in living for one in executors(cluster.endpoints)), timeout=240, what="another executor"
    )


@pytest.fixture
def kill(cluster: Cluster, tmp_path: Path) -> Callable[[], None]:
    """Kills an executor, if there is one."""
    return partial(kill_an_executor, cluster, tmp_path / "spark.log") if FULL else lambda: None


def test_every_value_is_what_the_log_gives(
    cluster: Cluster, tmp_path: Path, session: Any, kill: Callable[[], None]
) -> None:
    project = Scored(cluster.endpoints, tmp_path / "p", limited(LIMITS[0]), seed=SEED)
    share = PREDICTIONS // (3 * len(LIMITS))
    limit_of: dict[str, int] = {}  # by fingerprint
    with ExitStack() as running:
        payments = running.enter_context(ExitStack())
        payments.enter_context(project.sending(RATE))
        first = running.enter_context(ExitStack())
        first.enter_context(live(project.app, session))
        projects.await_true(lambda: project.app.reader.ledger(VIEW) is not None, timeout=180, what="the first batch")
        limit_of[str(project.app.standings.of(VIEW).followed).partition("-")[0]] = LIMITS[0]
        running.enter_context(project.scoring())
        project.await_scores(share)
        kill()
        scored_by_stream(project)
        rejects = project.app.rejects("payments")
        projects.await_true(lambda: bool(rejects.entries()), timeout=240, what="a reject")
        before: Callable[[], None] = first.close
        for limit in LIMITS[1:]:
            changed = project.declared(limited(limit))
            rebuilt = ExitStack()
            rebuild = rebuilt.enter_context(rebuilding(changed, session))
            running.push(rebuilt)
            projects.await_true(partial(caught_up, changed), timeout=240, what="the rebuild")
            moved = changed.promote(VIEW)
            assert moved.followed == rebuild.progress.build
            limit_of[str(moved.followed).partition("-")[0]] = limit
            before()
            before = rebuilt.close
            kill()
            project.await_scores(share)
        corrected = correct(rejects)
        project.empty_the_store()
        projects.await_true(lambda: rebuild.progress.repairs > 0, timeout=240, what="the repair")
        project.await_scores(share)
        payments.close()  # records are re-driven while a view has nothing else to do
        projects.await_true(lambda: rebuild.view.build.redriven > 0, timeout=240, what="the re-driven records")
        project.await_scores(share)
        scored_by_stream(project)
    assert project.refused > 0, "nobody asked while the store was empty"
    began = time.monotonic()
    history = read_back(project, corrected, limit_of)
    faults = falsify(project, history)
    print(f"{len(history.predictions):,} predictions read back in {time.monotonic() - began:.0f} s", flush=True)
    began = time.monotonic()
    with ThreadPoolExecutor(1) as beside:
        killed = beside.submit(kill)
        found = changed.skew("fraud", most=1_000, session=session)
        killed.result()
    print(f"compared in {time.monotonic() - began:.0f} s", flush=True)
    check(project, found, history, faults)


def scored_by_stream(project: Scored) -> None:
    (one,) = project.app.consume("fraud", until_caught_up=True)
    assert one.error is None, one.error


def correct(rejects: Any) -> dict[RecordPosition, dict[str, Any]]:
    """Re-drive a few rejects, with another account each."""
    corrected: dict[RecordPosition, dict[str, Any]] = {}
    for number, entry in enumerate(rejects.entries()[-4:]):
        at = datetime.fromtimestamp(entry.log_us / 1e6, UTC) - timedelta(milliseconds=500)
        corrected[entry.position] = {
            "id": -number,
            "account": f"a{number + 7}",
            "amount": 5.0,
            "note": "again",
            "at": at,
        }
    texts = {p: json.dumps({**record, "at": record["at"].isoformat()}) for p, record in corrected.items()}
    done = rejects.correct(texts)
    assert len(done.sent) == len(corrected), done.refused
    return corrected


@dataclass(frozen=True)
class History:
    """The predictions as they are logged, and what the oracle says of them."""

    predictions: list[dict[str, Any]]
    oracle: Oracle
    batches: dict[str, dict[int, Applied]]  # by build
    limit_of: dict[str, int]

    def ends(self, build: str, batch: int) -> dict[int, int]:
        return self.batches[build][batch].ends["payments"] if batch >= 0 else {}

    def limit(self, build: str) -> int:
        return self.limit_of[build.partition("-")[0]]

    def served(self, one: dict[str, Any]) -> dict[str, Any]:
        ends = self.ends(one[BUILD], one[BATCH])
        return self.oracle.served(one["account"], micros(one["scored_at"]), ends, self.limit(one[BUILD]))

    def logged(self, one: dict[str, Any]) -> dict[str, Any]:
        return self.oracle.logged(one["account"], micros(one["scored_at"]), self.limit(one[BUILD]))


def read_back(project: Scored, corrected: dict[RecordPosition, dict[str, Any]], limit_of: dict[str, int]) -> History:
    predictions = project.predictions()
    builds = {one[BUILD] for one in predictions}
    assert len(builds) == len(LIMITS)
    batches = {build: project.batches(build) for build in builds}
    assert all(len(known) > 2 for known in batches.values()), "each build has several batches"
    name = project.app.profile.topic_name(definitions_topic())
    kept = DefinitionLog(project.app.kafka, name).definitions(VIEW)
    assert kept.keys() == {build.partition("-")[0] for build in builds} == limit_of.keys()
    return History(predictions, Oracle(project.logged(), corrected), batches, limit_of)


# Falsified predictions ------------------------------------------------------------------------------------------------


def falsify(project: Scored, history: History) -> dict[str, str]:
    """Log copies of predictions with something wrong in each, under ids of their own. Return what was done, by id."""
    chance = random.Random(SEED + 2)
    doubtful = {*history.oracle.corrected, "b0", "b1", "b2"}
    pool = [one for one in history.predictions if one["account"] not in doubtful and one["each_2m"] is not None]
    faults: dict[str, str] = {}
    written: list[dict[str, Any]] = []
    tries = Counter[str]()
    while len(faults) < FAULTS:
        kind = list(KINDS)[len(faults) % len(KINDS)]
        one = chance.choice(pool)
        wrong = KINDS[kind](history, one, chance)
        tries[kind] += 1
        assert tries[kind] < 5_000, f"no prediction can be falsified by {kind}"
        if wrong is not None:
            id_ = f"false-{len(faults)}"
            faults[id_] = kind
            written.append({**one, **wrong, "prediction_id": id_})
    # These name what nobody knows: they are told as not compared.
    written.append({**pool[0], BUILD: "ffffffffffff-00000000", "prediction_id": "unknown-build"})
    written.append({**pool[0], BATCH: 10**6, "prediction_id": "unknown-batch"})
    with project.app.producer("fraud_scores") as producer:
        for record in written:
            producer.send_dict(record)
    return faults


Fault = Callable[[History, dict[str, Any], random.Random], dict[str, Any] | None]


def one_more(_: History, one: dict[str, Any], __: random.Random) -> dict[str, Any] | None:
    return {"big_12s": one["big_12s"] + 1}


def last_bit(_: History, one: dict[str, Any], __: random.Random) -> dict[str, Any] | None:
    return {"amount_2m": math.nextafter(one["amount_2m"], math.inf)}


def forgotten(_: History, one: dict[str, Any], __: random.Random) -> dict[str, Any] | None:
    return None if one["note_2m"] is None else {"note_2m": None}


def reversed_list(_: History, one: dict[str, Any], __: random.Random) -> dict[str, Any] | None:
    return None if len(one["recent_2m"]) < 2 else {"recent_2m": one["recent_2m"][::-1]}


def another_estimate(_: History, one: dict[str, Any], __: random.Random) -> dict[str, Any] | None:
    return {"notes_2m": one["notes_2m"] + 1}


def swapped(_: History, one: dict[str, Any], __: random.Random) -> dict[str, Any] | None:
    a, b = one["mean_12s"], one["each_2m"]
    return None if a == b else {"mean_12s": b, "each_2m": a}


def another_batch(history: History, one: dict[str, Any], chance: random.Random) -> dict[str, Any] | None:
    batch = chance.choice([n for n in history.batches[one[BUILD]] if n != one[BATCH]])
    return _if_told(history, one, {BATCH: batch})


def another_build(history: History, one: dict[str, Any], chance: random.Random) -> dict[str, Any] | None:
    build = chance.choice([build for build in history.batches if build != one[BUILD]])
    if one[BATCH] not in history.batches[build]:
        return None
    return _if_told(history, one, {BUILD: build})


def _if_told(history: History, one: dict[str, Any], wrong: dict[str, Any]) -> dict[str, Any] | None:
    """Return the fault if it changes a value, and if the named batch has no payment of the account after the read.

    With such a payment, a value that differs may be that of a reader whose clock was behind: it is not compared.
    """
    named, at = {**one, **wrong}, micros(one["scored_at"])
    ends, before = (history.ends(named[BUILD], n) for n in (named[BATCH], named[BATCH] - 1))
    later = history.oracle.paid.get(one["account"], NONE).between(at, at + REACH_US)
    ahead = len(later.held(ends)) > len(later.held(before))
    return wrong if not ahead and history.served(named) != history.served(one) else None


def tile_off_by_one(history: History, one: dict[str, Any], chance: random.Random) -> dict[str, Any] | None:
    ends = history.ends(one[BUILD], one[BATCH])
    known = history.oracle.known(one["account"], micros(one["scored_at"]), ends)
    shifted = values(known, micros(one["scored_at"]), history.limit(one[BUILD]), shift=chance.choice((-1, 1)))
    return shifted if shifted != history.served(one) else None


def dropped_event(history: History, one: dict[str, Any], chance: random.Random) -> dict[str, Any] | None:
    ends = history.ends(one[BUILD], one[BATCH])
    known = history.oracle.known(one["account"], micros(one["scored_at"]), ends)
    if not len(known):
        return None
    gone = chance.randrange(len(known))
    less = values(known.only(np.arange(len(known)) != gone), micros(one["scored_at"]), history.limit(one[BUILD]))
    return less if less != history.served(one) else None


KINDS: dict[str, Fault] = {
    "one more": one_more,
    "the last bit of a float": last_bit,
    "a value that was forgotten": forgotten,
    "a list reversed": reversed_list,
    "another estimate": another_estimate,
    "two features swapped": swapped,
    "another batch": another_batch,
    "another build": another_build,
    "a tile off by one": tile_off_by_one,
    "an event that was dropped": dropped_event,
}


def check(project: Scored, found: Any, history: History, faults: dict[str, str]) -> None:
    named = {value.prediction_id for value in found.values}
    alarms = [value for value in found.values if value.prediction_id not in faults]
    assert alarms == [], f"seed {SEED}: {len(alarms)} false alarms: {alarms[:3]}"
    missed = {id_: kind for id_, kind in faults.items() if id_ not in named}
    assert missed == {}, f"seed {SEED}: {missed}, {[one.as_json() for one in found.not_compared]}"
    assert found.verdict == "differs"
    reasons = {one.reason: one for one in found.not_compared}
    assert set(reasons) <= {"re-driven", "ahead", "batch unknown", "definition gone"}, reasons
    assert reasons["definition gone"].example == "unknown-build"
    assert reasons["batch unknown"].predictions == 1
    # ≠ log by the oracle. A value that is not what its batch gives is a fault, or it has a reason.
    predictions = project.predictions()
    assert found.predictions == len(predictions)
    expected, excused = Counter[str](), Counter[str]()
    for one in predictions:
        if one["prediction_id"].startswith("unknown-"):
            continue
        served, logged = history.served(one), history.logged(one)
        for name in ORACLE:
            if one[name] != served[name] and one["prediction_id"] not in faults:
                excused[name] += 1
            elif one[name] != logged[name]:
                expected[name] += 1
    features = {one.feature: one for one in found.features}
    assert set(features) == set(FEATURES)
    for name in ORACLE:
        assert features[name].not_log == expected[name], f"seed {SEED}: {name}"
        assert features[name].compared == len(predictions) - 2 - excused[name], f"seed {SEED}: {name}"
    few = sum(reasons[name].predictions for name in ("re-driven", "ahead") if name in reasons)
    assert few <= len(predictions) / 20, f"seed {SEED}: {few} predictions are excused"
    print(
        f"seed {SEED}: {len(predictions):,} predictions of {len(history.batches)} builds, {project.refused} refused; "
        f"{len(faults)} of {len(faults)} faults named, 0 false alarms; {few} not compared; "
        f"≠ log {dict(expected)}"
    )
