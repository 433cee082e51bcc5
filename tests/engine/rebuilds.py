"""A project whose tiles close within seconds, and an independent recomputation of them in plain Python.

The brokers stamp records, so a test cannot pretend that hours pass. Therefore lateness is three seconds here, and the
steps are 1 s and 10 s.
"""

from __future__ import annotations

import random
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from typing import Any

import leftfold
from leftfold.kafka.receipt_log import ReceiptLog
from leftfold.local.endpoints import Endpoints
from leftfold.rebuild.rebuild import Rebuild
from leftfold.run.progress import Progress
from leftfold.run.receipt_store import ReceiptStore
from leftfold.run.receipts import Receipt
from tests.engine import oracle, projects
from tests.engine.effects import read_changelog, tiled
from tests.engine.log import Logged, read_topic

VIEW = "account_activity"
LATENESS_US, FUTURE_US = 3_000_000, 60_000_000
# Slots of the rings, by hand: (window + finest step + tolerance) / step, rounded up, plus two.
RINGS = {1: 12 + 1 + 60 + 2, 10: -(-(120 + 1 + 60) // 10) + 2}
PAYMENTS = """\
from datetime import datetime

import leftfold as lf


class Payment(lf.Event):
    id: int
    account: str
    amount: float
    note: str | None = None
    at: datetime


payments = lf.Topic("payments", Payment, key=Payment.account, time=Payment.at, partitions=6, lateness="3s")


class AccountActivity(lf.Features, of=payments, by=Payment.account, to=[lf.Online(), lf.Changelog()]):
    big_12s = lf.count("12s", where=Payment.amount > 100)
    amount_2m = lf.sum(Payment.amount, "2m")
    note_2m = lf.last(Payment.note, "2m")
    recent_2m = lf.last_n(Payment.note, "2m", n=3)
"""


def looked(_: Progress) -> None:
    """Ignore the progress."""


def limited(limit: int) -> str:
    """Declarations in which another amount counts as big: another definition of the view."""
    return PAYMENTS.replace("> 100", f"> {limit}")


def payments(count: int, chance: random.Random, first: int) -> Any:
    """Payments with skewed keys. A fifth is out of order, up to the lateness and beyond; some come from the future."""
    for number in range(first, first + count):
        fate = chance.random()
        delay = chance.uniform(0, 3.6) if fate < 0.2 else -chance.uniform(50, 70) if fate < 0.21 else 0.01
        yield {
            "id": number,
            "account": f"a{int(chance.paretovariate(0.7)) % 200}",
            "amount": round(chance.lognormvariate(4.2, 1.0), 2),
            "note": None if chance.random() < 0.3 else f"n{number}",
            "at": datetime.now(UTC) - timedelta(seconds=delay),
        }


class Project:
    """A project with one view of payments in its own namespace. A test can give the view other definitions."""

    def __init__(self, endpoints: Endpoints, root: Path, streams: str = PAYMENTS, seed: int = 0) -> None:
        self.endpoints, self.root = endpoints, root
        self.namespace = f"r{uuid.uuid4().hex[:8]}"
        self.app = self.declared(streams)
        projects.apply(self.app)
        self.sent = 0
        self._chance = random.Random(seed)

    def declared(self, streams: str) -> leftfold.App:
        """Return the project with other declarations, as after an edit by a user."""
        return projects.make(self.root, self.endpoints, self.namespace, streams)

    def send(self, seconds: float, a_second: int = 1_500) -> None:
        """Send payments for so many seconds. A few of them cannot be decoded."""
        until = time.monotonic() + seconds
        with self.app.producer("payments") as producer:
            while time.monotonic() < until:
                for record in payments(a_second // 10, self._chance, self.sent):
                    if self._chance.random() < 0.005:
                        producer.send_encoded(producer.key_of(record), producer.encode(record)[:7])
                    else:
                        producer.send_dict(record)
                self.sent += a_second // 10
                time.sleep(0.1)

    @contextmanager
    def sending(self, a_second: int = 500) -> Iterator[None]:
        """Send payments from a thread while the block runs."""
        done = threading.Event()

        def go_on() -> None:
            while not done.is_set():
                self.send(0.5, a_second)

        thread = threading.Thread(target=go_on)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    @property
    def topic(self) -> str:
        return self.app.profile.topic_name("payments")

    def logged(self) -> list[Logged]:
        schemas = self.app.log[1].versions(f"{self.topic}-value")
        return list(read_topic(self.endpoints.bootstrap, self.topic, schemas))

    def tiles(self, build: str) -> Tiles:
        return oracle.read_store(self.endpoints.redis_url, f"lf:{self.namespace}:row:{VIEW}:{build}:")

    def receipts(self, build: str) -> list[Receipt]:
        log = ReceiptLog(self.app.kafka, self.app.profile.topic_name("leftfold.receipts"))
        return ReceiptStore(log, f"{VIEW}/{build}").read()

    def rebuild(self, app: leftfold.App, **options: Any) -> Rebuild:
        return app.rebuild(VIEW, until_caught_up=True, **options)

    def check(self, build: str | None, limit: int) -> int:
        """Check store, changelog and receipts of a build against the log. Return the number of tiles compared."""
        assert build is not None
        logged = self.logged()
        expected, outcomes = recomputed(logged, limit)
        expected = reached(expected, logged)
        found = {
            "online": self.tiles(build),
            "changelog": read_changelog(
                self.endpoints.bootstrap, self.app.profile.topic_name(f"{VIEW}.changelog"), build
            ),
        }
        for store, tiles in found.items():
            wrong = oracle.differences(expected, reached(tiles, logged))
            assert not wrong, f"{store}: {len(wrong)} of {len(expected)} tiles differ: {wrong[:3]}"
        receipts = self.receipts(build)
        tiled(receipts)
        counted: Counter[str] = Counter()
        for receipt in receipts:
            counted.update(receipt.records)
        assert +counted == outcomes, (counted, outcomes)
        last = Counter(dict.fromkeys(outcomes, 0))
        for row in receipts[-1].ledger:
            last[row.outcome] += row.records
        assert +last == outcomes, (last, outcomes)
        ends = self.app.log[0].end_offsets(self.topic, 6)
        assert receipts[-1].ends["payments"] == ends
        return len(expected)


Tiles = dict[tuple[str, str], tuple[int, list[Any]]]  # by entity and field: index and partials


def reached(tiles: Tiles, logged: list[Logged]) -> Tiles:
    """Return the tiles that a read can still reach.

    The others may be gone: on a slow machine a test lasts longer than its windows.
    """
    newest = max(event for one in logged if (event := accepted_at(one)) is not None)
    found = {}
    for (entity, field), (index, partials) in tiles.items():
        step = int(field.partition(":")[0])
        if (index + 1) * step * 1_000_000 > newest - step * RINGS[step] * 1_000_000:
            found[entity, field] = (index, partials)
    return found


def accepted_at(one: Logged) -> int | None:
    """Return the event time (µs) of a record, or None if it is not accepted."""
    if one.record is None:
        return None
    event_us = round(one.record["at"].timestamp() * 1_000_000)
    return event_us if one.log_us - LATENESS_US <= event_us <= one.log_us + FUTURE_US else None


def recomputed(logged: list[Logged], limit: int) -> tuple[Tiles, Counter[str]]:
    """Return what a store of rings holds in the end, and the number of records by outcome."""
    outcomes: Counter[str] = Counter()
    tiles: dict[tuple[str, int, int], list[tuple[tuple[int, int, int], dict[str, Any]]]] = {}
    for one in logged:
        if one.record is None:
            outcomes["rejected"] += 1
            continue
        event_us = round(one.record["at"].timestamp() * 1_000_000)
        if event_us < one.log_us - LATENESS_US:
            outcomes["late"] += 1
        elif event_us > one.log_us + FUTURE_US:
            outcomes["future"] += 1
        else:
            outcomes["accepted"] += 1
            for step in RINGS:
                tile = (one.record["account"], step, event_us // (step * 1_000_000))
                tiles.setdefault(tile, []).append(((event_us, one.partition, one.offset), one.record))
    held: Tiles = {}
    for (account, step, index), records in tiles.items():
        slot = (account, f"{step}:{index % RINGS[step]}")
        if slot not in held or held[slot][0] < index:
            held[slot] = (index, _partials(records, limit))
    return held, outcomes


def _partials(records: list[tuple[tuple[int, int, int], dict[str, Any]]], limit: int) -> list[Any]:
    units = sum(
        int(Decimal(repr(r["amount"])).quantize(Decimal("0.000001"), ROUND_HALF_UP).scaleb(6)) for _, r in records
    )
    notes = [r["note"] for _, r in sorted(records, key=lambda one: one[0], reverse=True) if r["note"] is not None]
    return [sum(r["amount"] > limit for _, r in records), units, notes[0] if notes else None, notes[:3]]
