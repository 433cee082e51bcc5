"""Predictions and events for tests of outcomes, and an oracle in DuckDB that reads the log by itself.

Keys are skewed, times are out of order, some events lie on the very edge of a prediction's reach, some are late, some
predictions are logged twice. The oracle judges records by their log times, and joins by comparing times. It shares no
code with what it checks.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

import leftfold
from tests.engine.log import read_topic

S = 1_000_000
LATENESS, FUTURE = 600 * S, 60 * S
WITHIN = 2 * S
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SERIES = (("live", "7"), ("live", "7"), ("live", "8"), ("canary", "9"), ("shadow", "9"))

STREAMS = """\
from datetime import datetime

import leftfold as lf


class Purchase(lf.Event):
    user_id: str
    item: int | None = None
    amount: float
    answer: str | None = None
    at: datetime


purchases = lf.Topic("purchases", Purchase, key=Purchase.user_id, time=Purchase.at, partitions=6)


class Buyer(lf.Features, of=purchases, by=Purchase.user_id):
    purchases_1h = lf.count("1h")
    spent_1h = lf.sum(Purchase.amount, "1h")


class RankerInput(lf.Vector):
    purchases_1h = Buyer.purchases_1h
    spent_1h = Buyer.spent_1h
    cart = lf.request(float)


class RankerScore(lf.Prediction, of=RankerInput):
    score: float


ranker_scores = lf.Predictions("ranker_scores", RankerScore, partitions=6)
"""
OUTCOME = """

class {title}(lf.Outcome, of=ranker_scores, by=purchases, within="2s", credit="{credit}", name="{name}", on={on}):
    bought = lf.happened()
    purchases = lf.count()
    large = lf.count(where=Purchase.amount > 10)
    spent = lf.sum(Purchase.amount)
    mean = lf.mean(Purchase.amount)
    least = lf.min(Purchase.amount)
    ended = lf.max(Purchase.at)
    item = lf.last(Purchase.item)
    after_s = lf.delay()
"""
CREDITS = ("each", "last", "first")
LABELS = ("bought", "purchases", "large", "spent", "mean", "least", "ended", "item", "after_s")
BY_USER = '{"user_id": Purchase.user_id}'
DECLARED = STREAMS + "".join(
    OUTCOME.format(title=credit.title(), credit=credit, name=credit, on=BY_USER) for credit in CREDITS
)
DECLARED += OUTCOME.format(title="ById", credit="each", name="by_id", on="Purchase.answer")


class Made:
    """Random predictions and events. `base` is the earliest moment (µs), `span` the time over which they are spread."""

    def __init__(self, number: int, *, base: int, span: int, seed: int, fingerprint: str = "") -> None:
        self.fingerprint = fingerprint  # of the view whose build half of the predictions have read
        self._chance = np.random.default_rng(seed)
        self._base, self._span = base, span
        self._users = self._skewed(number)
        on_edge = self._chance.random(number) < 0.05  # on an edge of a block as long as the reach
        at = base + self._chance.integers(0, span, number)
        self._at = np.where(on_edge, at // WITHIN * WITHIN, at)
        self._series = self._chance.integers(0, len(SERIES), number)

    def predictions(self) -> Iterator[dict[str, Any]]:
        """Yield every prediction, and one in fifty a second time, as a scorer that was killed would: later."""
        again = self._chance.random(len(self._at)) < 0.02
        for number, (user, at, series) in enumerate(zip(self._users, self._at, self._series, strict=True)):
            yield self._prediction(number, int(user), int(at), SERIES[series])
        for repeated in np.flatnonzero(again):
            later = int(self._at[repeated]) + 700_000
            yield self._prediction(int(repeated), int(self._users[repeated]), later, SERIES[self._series[repeated]])

    def events(self, number: int) -> Iterator[dict[str, Any]]:
        chance, count = self._chance, len(self._at)
        near = chance.integers(0, count, number)
        kind = chance.random(number)
        offset = np.select(
            [kind < 0.05, kind < 0.1, kind < 0.15, kind < 0.2, kind < 0.6],
            [0, WITHIN, WITHIN - 1, -1, chance.integers(0, WITHIN, number)],
            chance.integers(-self._span // 4, self._span // 4, number),
        )
        mine = chance.random(number) < 0.8
        user = np.where(mine, self._users[near], self._skewed(number))
        late = chance.random(number) < 0.01
        at = self._at[near] + offset - np.where(late, 2 * LATENESS, 0)
        cents, items = chance.integers(1, 5_000, number), chance.integers(-3, 20, number)
        for i in range(number):
            yield {
                "user_id": f"u{user[i]}",
                "item": int(items[i]) if items[i] >= 0 else None,
                "amount": int(cents[i]) / 100,
                "answer": f"r{near[i]}" if mine[i] else None,
                "at": moment(int(at[i])),
            }

    def _skewed(self, number: int) -> Any:
        """Users of whom the k-th has a share like 1/k: the first one has about a tenth of all."""
        shares = 1 / np.arange(1, max(50, number // 20) + 1) ** (1.0 if number < 100_000 else 0.8)
        return self._chance.choice(len(shares), number, p=shares / shares.sum())

    def _prediction(self, number: int, user: int, at: int, series: tuple[str, str]) -> dict[str, Any]:
        role, version = series
        request = f"r{number}"
        return {
            "prediction_id": f"{request}/{version}" if role == "shadow" else request,
            "request_id": request,
            "scorer": "ranker",
            "role": role,
            "model": "m",
            "version": version,
            "scored_at": moment(at),
            "outcome": "scored",
            "user_id": f"u{user}",
            "spent_1h": None,
            "purchases_1h": number % 7,
            "buyer__build": f"{self.fingerprint if number % 2 else '0123456789ab'}-12345678",
            "cart": 1.5,
            "score": number % 100 / 100,
        }


def moment(us: int) -> datetime:
    return EPOCH + timedelta(microseconds=us)


def micros(at: datetime) -> int:
    return (at - EPOCH) // timedelta(microseconds=1)


class Oracle:
    """The log of both topics in DuckDB, as it is when this is made."""

    def __init__(self, app: leftfold.App) -> None:
        self.db = duckdb.connect()
        self.db.execute("SET TimeZone = 'UTC'")
        self._load(app, "ranker_scores", "p", "scored_at")
        self._load(app, "purchases", "e", "at")
        self.db.execute(
            "CREATE TABLE prediction AS SELECT * FROM p WHERE accepted "
            'QUALIFY row_number() OVER (PARTITION BY prediction_id ORDER BY "offset") = 1'
        )
        self.db.execute("CREATE TABLE event AS SELECT * FROM e WHERE accepted")

    def _load(self, app: leftfold.App, topic: str, table: str, time: str) -> None:
        name = app.profile.topic_name(topic)
        schemas = app.log[1].versions(f"{name}-value")
        columns: dict[str, list[Any]] = {}
        for logged in read_topic(app.kafka.bootstrap, name, schemas):
            assert logged.by_broker
            assert logged.record is not None
            at = micros(logged.record[time])
            row = {
                **logged.record,
                time: at,
                "partition": logged.partition,
                "offset": logged.offset,
                "accepted": logged.log_us - LATENESS <= at <= logged.log_us + FUTURE,
            }
            for column, value in row.items():
                columns.setdefault(column, []).append(value)
        loaded = pa.table(columns)
        self.db.register("loaded", loaded)
        self.db.execute(f"CREATE TABLE {table} AS SELECT * FROM loaded")
        self.db.unregister("loaded")

    def label(self, credit: str, *, by_id: bool = False) -> str:
        """Make a table of labels: for each prediction those of all events that are credited to it. Return its name."""
        on = "p.request_id = e.answer" if by_id else "p.user_id = e.user_id"
        name = f"label_{'by_id' if by_id else credit}"
        order = "DESC" if credit == "last" else "ASC"
        chosen = (
            ""
            if credit == "each"
            else 'QUALIFY row_number() OVER (PARTITION BY e.partition, e."offset", p.scorer, p.role, p.version '
            f"ORDER BY p.scored_at {order}, p.prediction_id {order}) = 1"
        )
        reached = f"e.at >= p.scored_at AND e.at < p.scored_at + {WITHIN}"
        cents = "sum(CAST(round(e.amount * 100) AS BIGINT))"
        self.db.execute(
            f"""
            CREATE OR REPLACE TABLE {name} AS
            WITH pair AS (
                SELECT p.prediction_id AS credited, e.* FROM prediction p JOIN event e ON {on} AND {reached} {chosen}
            )
            SELECT p.prediction_id, p.scored_at,
                count(e.at) > 0 AS bought,
                count(e.at) AS purchases,
                count(e.at) FILTER (e.amount > 10) AS large,
                coalesce({cents}, 0)::DOUBLE / 100 AS spent,
                {cents}::DOUBLE / 100 / count(e.at) AS mean,
                min(e.amount) AS least,
                max(e.at) AS ended,
                max_by(e.item, (e.at, e.partition, e."offset")) FILTER (e.item IS NOT NULL) AS item,
                (min(e.at) - p.scored_at)::DOUBLE / 1e6 AS after_s
            FROM prediction p LEFT JOIN pair e ON e.credited = p.prediction_id
            GROUP BY p.prediction_id, p.scored_at
            """
        )
        return name

    def differences(self, directory: str, labels: str, *, until: int) -> int:
        """The number of closed rows in which the files differ from the labels, or which only one of them has."""
        same = " AND ".join(
            f"w.{label} IS NOT DISTINCT FROM {f'epoch_us(h.{label})' if label == 'ended' else f'h.{label}'}"
            for label in LABELS
        )
        return self.one(
            f"SELECT count(*) FROM (SELECT * FROM {labels} WHERE scored_at <= {until}) w FULL JOIN "
            f"(SELECT * FROM read_parquet('{directory}/*.parquet') WHERE closed) h USING (prediction_id) "
            f"WHERE ({same} AND epoch_us(h.scored_at) = w.scored_at) IS NOT TRUE"
        )

    def one(self, query: str) -> int:
        (row,) = self.db.execute(query).fetchall()
        return int(row[0])


def now_us() -> int:
    return time.time_ns() // 1_000
