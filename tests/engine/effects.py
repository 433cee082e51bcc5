"""A project with online store and changelog, and checks of both and of its receipts against the log.

Log, store and changelog are read by the tests' own code.
"""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from leftfold.kafka.receipt_log import ReceiptLog
from leftfold.local.endpoints import Endpoints
from leftfold.run.progress import Progress
from leftfold.run.receipt_store import ReceiptStore
from leftfold.run.receipts import Receipt
from tests.engine import oracle, projects
from tests.engine.driving import run_until_caught_up

VIEW = "account_activity"
BOTH = projects.PAYMENTS.replace("by=Payment.account)", "by=Payment.account, to=[lf.Online(), lf.Changelog()])")


def payments(count: int, chance: random.Random, first: int = 0) -> Iterator[dict[str, Any]]:
    """Payments with skewed keys. A tenth is out of order; some of these are late, some come from the future."""
    for number in range(first, first + count):
        delay = chance.choice([0, 5, 100, 590, 590, 3_000, -300]) if chance.random() < 0.1 else chance.uniform(0, 2)
        yield {
            "id": number,
            "account": f"a{int(chance.paretovariate(0.7)) % 300}",
            "amount": round(chance.lognormvariate(3.5, 1.2), 2),
            "points": chance.randrange(-3, 20),
            "note": None if chance.random() < 0.3 else f"n{number}",
            "at": datetime.now(UTC) - timedelta(seconds=delay),
        }


class Project:
    """A project with one view of payments, in its own namespace."""

    def __init__(
        self, endpoints: Endpoints, root: Path, streams: str = BOTH, seed: int = 0, *, online: str | None = None
    ) -> None:
        self.endpoints = endpoints
        self.app = projects.make(root, endpoints, f"e{uuid.uuid4().hex[:8]}", streams, online=online)
        projects.apply(self.app)
        self.sent = 0
        self._chance = random.Random(seed)

    def send(self, count: int) -> None:
        with self.app.producer("payments") as producer:
            for record in payments(count, self._chance, self.sent):
                producer.send_dict(record)
        self.sent += count

    def run(self, spark: Any) -> Progress:
        (progress,) = run_until_caught_up(self.app, spark)
        return progress

    @property
    def topic(self) -> str:
        return self.app.profile.topic_name("payments")

    @property
    def changelog(self) -> str:
        return self.app.profile.topic_name(f"{VIEW}.changelog")

    def receipts(self, build: str) -> list[Receipt]:
        log = ReceiptLog(self.app.kafka, self.app.profile.topic_name("leftfold.receipts"))
        return ReceiptStore(log, f"{VIEW}/{build}").read()

    def log(self) -> oracle.Log:
        schemas = self.app.log[1].versions(f"{self.topic}-value")
        return oracle.read_log(self.endpoints.bootstrap, self.topic, schemas)

    def check(self, build: str | None) -> int:
        """Check store, changelog and receipts against the log. Return the number of tiles compared."""
        assert build is not None
        log = self.log()
        prefix = f"lf:{self.app.profile.namespace}:row:{VIEW}:{build}:"
        tiles = oracle.check_tiles(log, self.app.online.address, prefix)
        if self.app.log[0].partitions([self.changelog]):
            mirrored = read_changelog(self.endpoints.bootstrap, self.changelog, build)
            wrong = oracle.differences(log.slots(), mirrored)
            assert not wrong, f"changelog: {len(wrong)} of {tiles} tiles differ: {wrong[:3]}"
        receipts = self.receipts(build)
        tiled(receipts)
        oracle.check_ledger(log, ((o, n) for r in receipts for o, n in r.records.items() if n))
        ends = {p: end for p, end in self.app.log[0].end_offsets(self.topic, 6).items() if end}
        assert {p: end for p, end in receipts[-1].ends["payments"].items() if end} == ends
        return tiles


def tiled(receipts: list[Receipt]) -> None:
    """Check that every offset, and every batch, lies in exactly one receipt."""
    reached: dict[int, int] = {}
    number = 0
    for receipt in receipts:
        assert receipt.first == number
        number = receipt.last + 1
        for p, (start, end) in receipt.ranges["payments"].items():
            assert start == reached.get(p, 0)
            assert end >= start
            reached[p] = end


def read_changelog(bootstrap: str, topic: str, build: str) -> dict[tuple[str, str], tuple[int, list[Any]]]:
    """Return what a new reader of the changelog gets for a build: the last committed record of each key.

    The result is by entity and field: tile index and partials.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": uuid.uuid4().hex,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    partitions = sorted(consumer.list_topics(topic, timeout=120).topics[topic].partitions)
    consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in partitions])
    held: dict[tuple[str, str], tuple[int, list[Any]]] = {}
    ended = 0
    while ended < len(partitions):
        message = consumer.poll(240)
        assert message is not None
        if message.error() is not None:
            ended += 1
            continue
        key, value = (message.key() or b"").decode(), message.value()
        of, field, entity = key.split("/", 2)
        if of != build:
            continue
        if value is None:
            held.pop((entity, field), None)
        else:
            index, _batch, *partials = json.loads(value)
            held[entity, field] = (index, partials)
    consumer.close()
    return held
