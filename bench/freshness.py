"""Freshness: the time from `send` until a reader sees an event, at 1,000 events a second. Ours against the tuned job.

Every twentieth event has a user id that never occurred before. Its clock stops when the store first has a row for that
id. The view with all its stores (online, changelog and lake) is measured too, but not judged.
"""

from __future__ import annotations

import random
import statistics
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import redis

import leftfold
from bench import tuned
from bench.pairs import Case, note
from leftfold import clock
from leftfold.declare.batches import OFFSETS_PER_PARTITION
from leftfold.declare.schema import avro_schema
from leftfold.declare.sinks import Changelog, Lake, Online

PER_SECOND = 1_000
PROBE_EVERY = 20
WARM_UP_S, MEASURED_S = 8, 20
GOAL = 1.1
ALL_STORES_PAIRS = 2
VIEW = "user_activity"


def measure(app: leftfold.App, session: Any, pairs: int) -> Case:
    store = redis.Redis.from_url(app.online.url.get_secret_value())
    store.flushall()
    ours, bare = _Ours(app, session), _Tuned(app, session)
    for side in (ours, bare):  # lets the JIT compile what small batches need
        with side.running():
            _times(app, store, side.row)
    ratios, p99s = [], []
    for number in range(pairs):
        sides = {}
        for side in (ours, bare) if number % 2 == 0 else (bare, ours):
            with side.running():
                sides[side] = _percentiles(_times(app, store, side.row))
        ratios.append(sides[ours][1] / sides[bare][1])
        p99s.append((sides[ours], sides[bare]))
        shown = ", ".join(
            f"{name} p50 {s[0]:.2f} s p99 {s[1]:.2f} s" for name, s in zip(("ours", "bare"), p99s[-1], strict=True)
        )
        note(f"freshness pair {number + 1}: {shown}, ratio {ratios[-1]:.3f}")
    figures = {
        f"{name}_{quantile}_s": round(statistics.median(pair[side][q] for pair in p99s), 3)
        for side, name in enumerate(("ours", "bare"))
        for q, quantile in enumerate(("p50", "p99"))
    }
    return Case(tuple(ratios), GOAL, outputs_equal=True, lower_is_better=True, figures=figures)


def all_stores(app: leftfold.App, session: Any, pairs: int) -> Case:
    """Compare the view with all its stores against the same view with its online store alone."""
    store = redis.Redis.from_url(app.online.url.get_secret_value())
    store.flushall()
    declared = app.catalog.views[VIEW]
    app.catalog.views[VIEW] = replace(declared, sinks=(Online(), Changelog(), Lake(every_s=10)))
    for _ in app.apply(app.plan()):
        pass
    every, alone = _Ours(app, session), _Ours(app, session)
    times: list[tuple[tuple[float, float], ...]] = []
    for number in range(min(pairs, ALL_STORES_PAIRS) + 1):  # the first pair only warms up
        pair = []
        for side in (every, alone):
            sinks = (Online(), Changelog(), Lake(every_s=10)) if side is every else (Online(),)
            app.catalog.views[VIEW] = replace(declared, sinks=sinks)
            with side.running():
                pair.append(_percentiles(_times(app, store, side.row)))
        if number:
            times.append(tuple(pair))
            shown = ", ".join(f"p50 {p50:.2f} s p99 {p99:.2f} s" for p50, p99 in pair)
            note(f"all stores pair {number}: all and online alone: {shown}")
    figures = {
        f"all_{name}_s": round(statistics.median(pair[0][q] for pair in times), 3)
        for q, name in enumerate(("p50", "p99"))
    }
    ratios = tuple(pair[0][1] / pair[1][1] for pair in times)
    return Case(ratios, None, outputs_equal=True, lower_is_better=True, figures=figures)


def _percentiles(times: list[float]) -> tuple[float, float]:
    ordered = sorted(times)
    return ordered[len(ordered) // 2], ordered[len(ordered) * 99 // 100]


def _times(app: leftfold.App, store: Any, row: Callable[[str], str]) -> list[float]:
    """Send events for a while, and return the seconds until each new user id appeared in the store.

    Only user ids sent after the warm-up count. All of them must appear.
    """
    sent: dict[str, float] = {}
    waiting: dict[str, float] = {}
    took: list[float] = []
    done = threading.Event()

    def watch() -> None:
        while waiting or not done.is_set():
            people = list(waiting)
            pipeline = store.pipeline(transaction=False)
            for person in people:
                pipeline.exists(row(person))
            for person, seen in zip(people, pipeline.execute() if people else [], strict=True):
                if seen:
                    took.append(clock.monotonic() - waiting.pop(person))
            done.wait(0.005) if not done.is_set() else threading.Event().wait(0.005)

    watcher = threading.Thread(target=watch)
    watcher.start()
    chance, marker = random.Random(3), uuid.uuid4().hex[:8]
    started = clock.monotonic()
    with app.producer("clicks") as producer:
        number = 0
        while (elapsed := clock.monotonic() - started) < WARM_UP_S + MEASURED_S:
            while number < elapsed * PER_SECOND:
                person = f"u{int(chance.paretovariate(0.9)) % 20_000}"
                if number % PROBE_EVERY == 0 and elapsed > WARM_UP_S:
                    person = f"probe-{marker}-{number}"
                    sent[person] = waiting[person] = clock.monotonic()
                click = {
                    "user_id": person,
                    "item_id": f"i{chance.randrange(500)}",
                    "price": round(chance.random() * 200, 2),
                }
                producer.send_dict({**click, "at": datetime.now(UTC)})
                number += 1
            threading.Event().wait(0.005)
    done.set()
    watcher.join(60)
    assert len(took) == len(sent), f"{len(sent) - len(took)} of {len(sent)} people never arrived"
    return took


class _Ours:
    def __init__(self, app: leftfold.App, session: Any) -> None:
        self._app, self._session = app, session
        self._checkpoints = str(app.state / "fresh" / uuid.uuid4().hex)
        self._prefix = ""

    def row(self, person: str) -> str:
        return self._prefix + person

    @contextmanager
    def running(self) -> Iterator[None]:
        self._app.profile = self._app.profile.model_copy(update={"checkpoints": self._checkpoints})
        supervisor = self._app.supervisor(views=[VIEW])
        (view,) = supervisor.views
        lakes = [one for one in supervisor.helpers if one.progress.kind == "lake"]
        for one in (view, *lakes):
            one.start(self._session, until_caught_up=False)
        self._prefix = f"lf::row:{VIEW}:{view.progress.build}:"
        while view.progress.lag != 0:
            view.poll()
            threading.Event().wait(0.1)
        yield
        for one in (view, *lakes):
            one.stop()
            one.wait()
            assert one.progress.error is None, one.progress.error


class _Tuned:
    def __init__(self, app: leftfold.App, session: Any) -> None:
        self._app, self._session = app, session.newSession()
        self._session.conf.set("spark.sql.shuffle.partitions", session.conf.get("spark.sql.shuffle.partitions"))
        self._checkpoint = str(app.state / "fresh-tuned" / uuid.uuid4().hex)

    def row(self, person: str) -> str:
        return f"tuned:{person}"

    @contextmanager
    def running(self) -> Iterator[None]:
        query: Any = tuned.run(
            self._session,
            bootstrap=self._app.kafka.bootstrap,
            topic="clicks",
            schema=avro_schema(self._app.catalog.topic("clicks").event),
            redis_url=self._app.online.url.get_secret_value(),
            prefix="tuned:",
            checkpoint=self._checkpoint,
            per_trigger=OFFSETS_PER_PARTITION * 6,
            until_caught_up=False,
        )
        query.processAllAvailable()
        yield
        while query.status["isTriggerActive"]:
            threading.Event().wait(0.01)
        query.stop()
