"""A Redis that goes back in time at every step of a batch: from a dump, emptied, by a replica that lagged.

The store is behind one address, as behind a proxy, and clients connect anew without a word. A view runs all the while;
after each fault every tile is compared with the log, until all are there, and at the end the changelog and the receipts
too. `make engine` does it 20 times, `make store-faults` 200 times. The seed is printed; LEFTFOLD_SEED repeats it.
"""

from __future__ import annotations

import itertools
import json
import os
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from leftfold.errors import StoreError
from leftfold.kafka.rejects import RecordPosition
from leftfold.local.endpoints import Endpoints
from leftfold.run import view as running_view
from leftfold.run import watermark
from leftfold.run.batch import STEPS
from leftfold.store.redis import rows
from leftfold.store.writer import BuildWriter
from tests.engine import oracle, projects, rebuilds
from tests.engine.conftest import Cluster
from tests.engine.driving import run_all, run_until_caught_up
from tests.engine.effects import BOTH, VIEW, Project, payments
from tests.engine.log import read_topic
from tests.engine.redis_faults import KINDS, Store, store_behind_an_address

FULL = os.environ.get("LEFTFOLD_STORE_FAULTS") == "full"
SEED = int(os.environ.get("LEFTFOLD_SEED", str(random.SystemRandom().randrange(10**6))))
REPETITIONS = 5 if FULL else 1
REPAIRS, REDRIVES, REBUILDS = (6, 8, 6) if FULL else (1, 1, 1)
# A step is reached when it is done; "half" is in the middle of what writers send.
POINTS = ("begun", "half", *STEPS[1:])
# What a store goes back to: to before some batch that is long done, to before this one, or to a part of this one.
MOMENTS = ("long before", "before", "begun", "half", "online rows")


@pytest.fixture(autouse=True)
def soon_looked_after(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running_view, "_LOOK_AFTER_S", 0.5)
    monkeypatch.setattr(rows, "TILES_PER_CALL", 20)  # of the driver: several calls also for its few rows


class Wide(Project):
    """Of many accounts: rows of a batch are several calls of each executor."""

    def send(self, count: int) -> None:
        with self.app.producer("payments") as producer:
            for number, record in enumerate(payments(count, self._chance, self.sent)):
                producer.send_dict({**record, "account": f"a{(self.sent + number) % 2_000}"})
        self.sent += count


def behind(endpoints: Endpoints, store: Store) -> Endpoints:
    return replace(endpoints, ports=replace(endpoints.ports, redis=store.port))


@dataclass(frozen=True)
class Case:
    kind: str
    point: str
    since: str
    by_executors: bool
    after: int = 0  # bytes, where the point or the moment is "half"
    lingers: bool = False  # connections to the old primary are there for a second more

    def __str__(self) -> str:
        rows = "executors" if self.by_executors else "the driver"
        kind = "failover with an old primary that lingers" if self.lingers else self.kind
        back = "" if self.kind == "flush" else f", back to {self.since!r}"
        return f"{kind} at {self.point!r}{back}, rows by {rows}"


def cases(kinds: Sequence[str], chance: random.Random) -> Iterator[Case]:
    """Each point for rows of either kind of writer; in `make engine` for one of them, the kinds of faults in turn."""
    for point, kind in zip(chance.sample(POINTS, len(POINTS)), itertools.cycle(kinds), strict=False):
        earlier = MOMENTS[: {"begun": 2, "half": 3, "online rows": 4}.get(point, 5)]
        writers = chance.sample((True, False), 2) if FULL else [chance.random() < 0.5]
        for by_executors in writers:
            lingers = kind == "failover" and chance.random() < 0.4
            yield Case(kind, point, chance.choice(earlier), by_executors, chance.choice([0, 8_000, 30_000]), lingers)


class Watched:
    """One view that runs on and on, over a store that does not."""

    def __init__(self, store: Store, project: Project) -> None:
        self.store, self.project = store, project
        (self.view,) = project.app.supervisor().views

    def follow(self, until: Callable[[], bool], what: str) -> None:
        """Do what a supervisor's loop does until something holds."""

        def holds() -> bool:
            self.view.poll()
            assert self.view.progress.state != "failed", f"{what}: {self.view.progress.error}"
            return until()

        projects.await_true(holds, timeout=240, what=what)

    def provoke(self, case: Case) -> None:
        """One batch, and the fault at its point."""
        view, store = self.view, self.store
        struck = list[str]()

        def strike() -> None:
            if not struck:
                struck.append(case.point)
                store.strike(case.kind, lingers=case.lingers)

        def reached(step: str, _: int) -> None:
            if struck:
                return
            if step == case.since:
                store.remember(case.kind)
            if step == case.point or (case.point == "half" and step == "online rows"):  # rows that were very few
                strike()

        if case.kind == "failover":
            store.follow()
        if case.since in ("long before", "before"):
            store.remember(case.kind)
        if case.since == "long before":
            self.settle(100, f"before {case}")
        if case.since == "half":
            store.front.strike_at(b"EVALSHA", case.after, lambda: store.remember(case.kind))
        if case.point == "half":
            store.front.strike_at(b"EVALSHA", case.after, strike)
        view._by_executors = case.by_executors
        view.at_step = reached
        self.project.send(2_000 if case.by_executors else 300)
        self.follow(lambda: bool(struck), f"{case}: its point")
        view.at_step = lambda *_: None
        self.settle(0, str(case))

    def settle(self, records: int, what: str) -> None:
        """Until the store holds what the log says, nothing more and nothing else, and readers find it."""
        if records:
            self.project.send(records)
        expected = self.project.log().slots()
        wrong = [""]

        def whole() -> bool:
            if self._counted() != self.project.sent or not self._followed():
                return False
            wrong[:] = oracle.differences(expected, oracle.read_store(self.store.url, self._name("row") + ":"))
            return not wrong

        try:
            self.follow(whole, what)
        except AssertionError as error:
            found = (
                f"{len(wrong)} of {len(expected)} tiles differ: {wrong[:2]}; {self._counted()} of {self.project.sent}"
            )
            pytest.fail(f"seed {SEED}, {what}: {error}; {found} records are counted", pytrace=False)

    def _counted(self) -> int:
        """Records that the store's own mark tells of."""
        mark = self.store.primary.client.hgetall(self._name("mark"))
        return sum(int(entry.partition(":")[0]) for name, entry in mark.items() if ":" in name)

    def _followed(self) -> bool:
        client, namespace = self.store.primary.client, self.project.app.profile.namespace
        build = client.get(f"lf:{namespace}:active:{VIEW}")
        return bool(build == self.view.progress.build and client.exists(self._name("build")))

    def _name(self, what: str) -> str:
        return f"lf:{self.project.app.profile.namespace}:{what}:{VIEW}:{self.view.progress.build}"

    def end(self) -> int:
        self.view.stop()
        self.view.wait()
        assert self.view.progress.error is None, self.view.progress.error
        return self.project.check(self.view.progress.build)


@contextmanager
def watched(cluster: Cluster, root: Path, spark: Any, seed: int) -> Iterator[Watched]:
    with store_behind_an_address(root / "redis") as store:
        project = Wide(behind(cluster.endpoints, store), root / "project", BOTH, seed=seed)
        one = Watched(store, project)
        one.view.start(spark, until_caught_up=False)
        try:
            yield one
        finally:
            one.view.stop()
            one.view.wait()


@pytest.mark.parametrize("kinds", [[kind] for kind in KINDS] if FULL else [KINDS], ids=" ".join)
@pytest.mark.timeout(7_200 if FULL else 900)
def test_a_store_that_goes_back_at_every_step(
    cluster: Cluster, tmp_path: Path, spark: Any, kinds: Sequence[str]
) -> None:
    chance = random.Random(SEED)
    strikes = bites = repairs = restarts = tiles = records = 0
    for repetition in range(REPETITIONS):  # a build of its own each: its first fault is in its first batch
        with watched(cluster, tmp_path / str(repetition), spark, SEED + repetition) as one:
            for case in cases(kinds, chance):
                one.provoke(case)
                print(f"{case}: whole again", flush=True)
            tiles += one.end()
            strikes, bites = strikes + one.store.strikes, bites + one.store.bites
            repairs, restarts = repairs + one.view.progress.repairs, restarts + one.view.progress.restarts
            records += one.project.sent
    print(
        f"seed {SEED}, {', '.join(kinds)}: {strikes} faults at {len(POINTS)} points of a batch, "
        f"{bites} of them lost writes, {restarts} restarts, {repairs} repairs, {records:,} records: "
        f"0 stale or missing of {tiles:,} tiles"
    )


@contextmanager
def before(method: str, how: Callable[[], None]) -> Iterator[None]:
    """Call `how` once, before the next call of this method of a build's writer."""
    original, done = getattr(BuildWriter, method), list[bool]()

    def first(self: BuildWriter, *arguments: Any, **options: Any) -> Any:
        if not done:
            done.append(True)
            how()
        return original(self, *arguments, **options)

    with patch.object(BuildWriter, method, first):
        yield
    assert done, f"{method} was not called"


@pytest.mark.timeout(3_600 if FULL else 900)
def test_a_store_that_goes_back_during_its_repair(cluster: Cluster, tmp_path: Path, spark: Any) -> None:
    """Emptied, and while it is filled again, gone once more: with some of the repair's rows, or with none."""
    chance = random.Random(SEED)
    kinds = itertools.islice(itertools.cycle(chance.sample(KINDS, len(KINDS))), REPAIRS)
    with watched(cluster, tmp_path, spark, SEED) as one:
        one.settle(500, "the first records")
        for kind in kinds:
            if kind == "failover":
                one.store.follow()
            one.store.primary.client.flushall()
            one.store.strikes += 1
            if chance.random() < 0.5:
                one.store.remember(kind)
            else:
                one.store.front.strike_at(b"EVALSHA", 8_000, partial(one.store.remember, kind))
            with before("restore", partial(one.store.strike, kind)):
                one.settle(0, f"{kind} during a repair")
            print(f"{kind} during a repair: whole again", flush=True)
        tiles = one.end()
        print(
            f"seed {SEED}: {one.store.strikes} faults around {REPAIRS} repairs: 0 stale or missing of {tiles:,} tiles"
        )


# The producer's time is the log's: a test can let hours pass.
CORRECTED = BOTH.replace('lateness="10m"', 'lateness="10m", log_time="producer"')
START = datetime.now(UTC) - timedelta(hours=6)


@pytest.mark.timeout(3_600 if FULL else 900)
def test_a_store_that_loses_only_what_was_re_driven(
    cluster: Cluster, tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its mark tells of every batch. Half of the times it loses the rows before it is told that they are re-driven."""
    monkeypatch.setattr(watermark, "CLOCK_SLACK", 1_000_000)
    with store_behind_an_address(tmp_path / "redis") as store:
        project = Project(behind(cluster.endpoints, store), tmp_path / "project", CORRECTED, seed=SEED)
        with project.app.producer("payments") as producer:
            for number in range(200 + REDRIVES):
                moment = START + timedelta(seconds=number) if number < 100 + REDRIVES else START + timedelta(hours=5)
                record = {"id": number, "account": f"a{number % 40}", "amount": 7.5, "points": 9, "at": moment}
                key, value = producer.key_of(record), producer.encode(record)
                producer.send_encoded(key, value[:8] if number < REDRIVES else value, log_time=moment)
        view, *_ = run_all(project.app, spark)
        prefix = f"lf:{project.app.profile.namespace}:row:{VIEW}:{view.build}:"
        schemas = project.app.log[1].versions(f"{project.topic}-value")
        logged = list(read_topic(cluster.endpoints.bootstrap, project.topic, schemas))
        spoilt = [RecordPosition(one.partition, one.offset) for one in logged if one.record is None]
        assert len(spoilt) == REDRIVES
        corrected: dict[RecordPosition, dict[str, Any]] = {}

        def check(what: str) -> int:
            log = oracle.Log()
            for one in logged:
                record = one.record or corrected.get(RecordPosition(one.partition, one.offset))
                if record is not None:
                    log.add({"note": None, **record}, one.log_us // 1_000, one.partition, one.offset)
            wrong = oracle.differences(log.slots(), oracle.read_store(store.url, prefix))
            assert not wrong, f"seed {SEED}, {what}: {len(wrong)} tiles differ: {wrong[:3]}"
            return len(log.slots())

        check("before anything is re-driven")
        for number, position in enumerate(spoilt):
            kind, at_once = ("dump", "failover")[number % 2], number % 4 >= 2
            moment = START + timedelta(seconds=number)
            corrected[position] = {"id": number, "account": f"a{number}", "amount": 1.5, "points": 2, "at": moment}
            event = json.dumps({**corrected[position], "at": moment.isoformat()})
            assert not project.app.rejects("payments").correct({position: event}).refused
            if kind == "failover":
                store.follow()
            store.remember(kind)
            with before("move_redriven", partial(store.strike, kind)) if at_once else nullcontext():
                (done,) = run_until_caught_up(project.app, spark)
            assert done.error is None, done.error
            assert done.pending == 0
            check("after a re-drive")
            if not at_once:
                store.strike(kind)
                (done,) = run_until_caught_up(project.app, spark)
                assert done.error is None, done.error
            assert done.repairs == 0
            tiles = check(f"{kind} after a re-drive")
            print(f"{kind} {'within' if at_once else 'after'} a re-drive: whole again", flush=True)
        print(f"seed {SEED}: {store.strikes} re-drives lost, {store.bites} bit: 0 stale or missing of {tiles:,} tiles")


@pytest.mark.nightly
@pytest.mark.timeout(3_600 if FULL else 900)
@pytest.mark.usefixtures("near_clocks")  # else no tile of the few seconds is closed, and history is empty
def test_a_store_that_loses_history_before_it_is_told_so(cluster: Cluster, tmp_path: Path, spark: Any) -> None:
    """A rebuild whose rows are gone before they count as written is refused, and done by the next."""
    kinds = itertools.islice(itertools.cycle(KINDS), REBUILDS)
    with store_behind_an_address(tmp_path / "redis") as store:
        project = rebuilds.Project(behind(cluster.endpoints, store), tmp_path / "p", seed=SEED)
        project.send(3)
        run_until_caught_up(project.app, spark)
        for number, kind in enumerate(kinds):
            if kind == "failover":
                store.follow()
            store.remember(kind)
            changed = project.declared(rebuilds.limited(50 + number))
            with before("tell_history", partial(store.strike, kind)), pytest.raises(StoreError) as lost:
                project.rebuild(changed).run(rebuilds.looked, session=spark)
            # Or its client had not noticed yet that the connection was gone. Neither counts as written.
            assert lost.value.code in ("store-went-back", "store-unreachable")
            done = project.rebuild(changed).run(rebuilds.looked, session=spark)
            assert done.error is None, done.error
            project.check(done.build, 50 + number)
            print(f"{kind} at the end of a history: whole again", flush=True)
        assert store.bites == REBUILDS, "a history that had no rows shows nothing"
        print(f"seed {SEED}: {store.strikes} histories lost, {store.bites} bit: 0 stale or missing tiles")
