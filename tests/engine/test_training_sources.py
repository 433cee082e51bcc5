"""Training sets of views that read several topics, a stream between, or a function whose history is in a lake."""

from __future__ import annotations

import os
import random
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import leftfold
from tests.engine import projects
from tests.engine.conftest import Cluster
from tests.engine.driving import run_all

SEED = int(os.environ.get("LEFTFOLD_SEED", str(random.SystemRandom().randrange(10**6))))

pytestmark = pytest.mark.timeout(900)

SHOP = """\
from datetime import datetime

import leftfold as lf


class Click(lf.Event):
    user_id: str
    item_id: str
    price: float
    at: datetime


class Spent(lf.Event):
    user_id: str
    cents: int
    at: datetime


clicks = lf.Topic("clicks", Click, key=Click.user_id, time=Click.at, partitions=3, lateness="6h")
clicks_eu = lf.Topic("clicks_eu", Click, key=Click.user_id, time=Click.at, partitions=2, lateness="6h")


class UserActivity(lf.Features, of=(clicks, clicks_eu), by=Click.user_id):
    n_24h = lf.count("24h")
    item_24h = lf.last(Click.item_id, "24h")


@lf.stream((clicks, clicks_eu), event=Spent)
def spent(clicks):
    from pyspark.sql import functions as F

    twice = F.explode(F.array(F.lit(1), F.lit(2))).alias("times")
    return (
        clicks.where("price >= 50")
        .select("*", twice)
        .withColumn("cents", (F.round(F.col("price") * 100) * F.col("times")).cast("long"))
    )


class Spender(lf.Features, of=spent, by=Spent.user_id):
    cents_24h = lf.sum(Spent.cents, "24h")


@lf.view(clicks, by="user_id", keep_forever=True, to=[lf.Online(), lf.Lake(every_s=1)])
def visits(clicks):
    from pyspark.sql import functions as F

    return clicks.groupBy("user_id").agg(F.count("*").alias("n"))


class RankerInput(lf.Vector):
    n_24h = UserActivity.n_24h
    item_24h = UserActivity.item_24h
    cents_24h = Spender.cents_24h
    visits = visits.column("n", int)
"""


class Shop:
    """What was sent in each round, and a moment after which all of it was in the stores and the lake."""

    def __init__(self, app: leftfold.App, spark: Any) -> None:
        self.app, self._spark = app, spark
        self._chance = random.Random(SEED)
        self.rounds: list[tuple[list[dict[str, Any]], datetime]] = []

    def go_on(self) -> None:
        """Some hundred records, up to three hours old, in both topics."""
        now, sent = datetime.now(UTC), []
        for topic in ("clicks", "clicks_eu"):
            with self.app.producer(topic) as producer:
                for _ in range(300):
                    record = {
                        "user_id": f"u{int(self._chance.paretovariate(0.7)) % 20}",
                        "item_id": f"i{self._chance.randrange(50)}",
                        "price": float(self._chance.randrange(100)),
                        "at": now - timedelta(seconds=self._chance.uniform(0, 10_000)),
                    }
                    producer.send_dict(record)
                    sent.append({**record, "topic": topic})
        run_all(self.app, self._spark)
        self.rounds.append((sent, datetime.now(UTC)))

    def expected(self, user: str, at: datetime, as_of: str) -> tuple[Any, ...]:
        known = [c for sent, there in self.rounds if as_of == "event" or there <= at for c in sent]
        mine = sorted((c for c in known if c["user_id"] == user and c["at"] < at), key=lambda c: c["at"])
        cents = [round(c["price"] * 100) * 3 for c in mine if c["price"] >= 50]
        # A function's rows are what they were when they were written, whatever is asked for.
        there = [c for sent, there in self.rounds if there <= at for c in sent]
        visits = sum(c["user_id"] == user and c["topic"] == "clicks" for c in there)
        return len(mine), mine[-1]["item_id"] if mine else None, sum(cents) if cents else None, visits or None


def test_several_topics_streams_and_functions(cluster: Cluster, tmp_path: Path, spark: Any) -> None:
    app = projects.make(tmp_path / "p", cluster.endpoints, f"t{uuid.uuid4().hex[:8]}", SHOP)
    projects.apply(app)
    shop = Shop(app, spark)
    start = datetime.now(UTC)
    shop.go_on()
    shop.go_on()
    moments = [start - timedelta(hours=1), shop.rounds[0][1], shop.rounds[1][1]]
    labels = pd.DataFrame([{"user_id": f"u{n}", "ts": at} for n in range(21) for at in moments])
    for as_of in ("event", "log", "served"):
        with app.training_set(labels, "ranker_input", time="ts", as_of=as_of) as train:
            found = {(row.user_id, row.ts.to_pydatetime()): row for row in train.to_pandas().itertuples()}
        assert len(found) == len(labels)
        wrong = []
        for (user, at), row in found.items():
            values = tuple(None if pd.isna(v) else v for v in (row.n_24h, row.item_24h, row.cents_24h, row.visits))
            expected = shop.expected(user, at.replace(tzinfo=UTC), as_of)
            if values != expected:
                wrong.append((as_of, user, at, values, expected))
        assert not wrong, f"seed {SEED}: {len(wrong)} of {len(found)} differ: {wrong[:3]}"
