"""What a careful engineer would write by hand to score with the features of our store: the bare side of `scoring`.

It knows docs/reference/protocol.md and nothing of our code: which tiles the three windows need now, how their partials
are merged, and the Avro schema of a prediction. `service` makes the same for requests, with FastAPI.
"""

from __future__ import annotations

import asyncio
import io
import json
import math
import os
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import fastavro
import numpy as np
import onnxruntime
from confluent_kafka import Producer
from pydantic import BaseModel

WINDOWS = (("1h", 3_600), ("24h", 86_400), ("7d", 604_800))
# The partials of a tile, behind its index and its batch: n, two sums, least and most price, least and most pieces.
MONEY = 1_000_000  # sums of floats are whole numbers of millionths


class Features:
    """The features of two entities, from their tiles."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._prefixes = settings["prefixes"]  # of users and items, with their builds
        self._rings = settings["rings"]  # by step: the number of slots
        self._tick = -1
        self.fields: list[str] = []
        self._fine: list[int] = []
        self._hours: list[int] = []
        self.now = 0.0

    def prepare(self) -> None:
        """Find the tiles that are needed now. They change with every five minutes."""
        self.now = time.time()
        tick = int(self.now) // 300
        if tick == self._tick:
            return
        self._tick, now = tick, int(self.now)
        first = (now - 3_600) // 300
        self._fine = list(range(first, -(-first // 12) * 12))
        self._hours = list(range((now - 604_800) // 3_600, now // 3_600 + 1))
        self._day = self._hours.index((now - 86_400) // 3_600)
        self._hour = self._hours.index(-(-first // 12))
        self.fields = [f"300:{i % self._rings[0]}" for i in self._fine]
        self.fields += [f"3600:{i % self._rings[1]}" for i in self._hours]

    def keys(self, user: str, item: str) -> tuple[str, str]:
        return f"{self._prefixes[0]}{user}", f"{self._prefixes[1]}{item}"

    def row(self, user: Sequence[bytes | None], item: Sequence[bytes | None], cart: float) -> list[float]:
        return [*self._of(user), *self._of(item), cart]

    def _of(self, held: Sequence[bytes | None]) -> list[float]:
        tiles = json.loads(b"[" + b",".join([b"null" if value is None else value for value in held]) + b"]")
        fine, hours = tiles[: len(self._fine)], tiles[len(self._fine) :]
        fine = [t for t, i in zip(fine, self._fine, strict=True) if t is not None and t[0] == i]
        hours = [t if t is not None and t[0] == i else None for t, i in zip(hours, self._hours, strict=True)]
        day = _merged([t for t in hours[self._day :] if t])
        week = _merged([t for t in hours[: self._day] if t])
        return [
            *_finished(_merged([*fine, *(t for t in hours[self._hour :] if t)])),
            *_finished(day),
            *_finished(_both(week, day)),
        ]


Partials = tuple[int, int, int, float, float, int, int]


def _merged(tiles: list[list[Any]]) -> Partials | None:
    if not tiles:
        return None
    columns = list(zip(*tiles, strict=True))[2:]
    return (
        sum(columns[0]),
        sum(columns[1]),
        sum(columns[2]),
        min(columns[3]),
        max(columns[4]),
        min(columns[5]),
        max(columns[6]),
    )


def _both(one: Partials | None, other: Partials | None) -> Partials | None:
    if one is None or other is None:
        return one or other
    sums = (one[0] + other[0], one[1] + other[1], one[2] + other[2])
    return (*sums, min(one[3], other[3]), max(one[4], other[4]), min(one[5], other[5]), max(one[6], other[6]))


def _finished(partials: Partials | None) -> list[float]:
    if partials is None:
        return [0, *([float("nan")] * 7)]
    n, spend, pieces, least, most, few, many = partials
    return [n, spend / MONEY, pieces / n, least, most, few, many, pieces]


class Scorer:
    """Features, model and log of one process."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.features = Features(settings)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(settings["model"], options, providers=["CPUExecutionProvider"])
        self._names = settings["names"]
        self._version = settings["version"]
        self._schema = fastavro.parse_schema(json.loads(settings["schema"]))
        self._header = bytes.fromhex(settings["header"])
        self._topic = settings["topic"]
        self.producer = Producer(
            {
                "bootstrap.servers": settings["bootstrap"],
                "acks": "all",
                "enable.idempotence": True,
                "partitioner": "murmur2_random",
                "compression.type": "lz4",
                "linger.ms": 2,
            }
        )

    def predict(self, rows: Sequence[Sequence[float]]) -> list[float]:
        answers: list[float] = self._session.run(["score"], {"x": np.array(rows, dtype="float32")})[0][:, 0].tolist()
        return answers

    def log(self, one: str, asked: Mapping[str, Any], row: Sequence[float], score: float, trigger: str | None) -> None:
        record = {
            "prediction_id": one,
            "request_id": one,
            "scorer": "ranker",
            "role": "live",
            "model": "ranker",
            "version": self._version,
            "scored_at": datetime.fromtimestamp(self.features.now, UTC),
            "outcome": "scored",
            "trigger": trigger,
            "user_id": asked["user_id"],
            "item_id": asked["item_id"],
            **{name: None if math.isnan(value) else value for name, value in zip(self._names, row, strict=True)},
            **{f"{view}__{what}": value for view in ("users", "items") for what, value in _SOURCE.items()},
            "score": score,
        }
        buffer = io.BytesIO()
        fastavro.schemaless_writer(buffer, self._schema, record)
        key = json.dumps([asked["user_id"], asked["item_id"]])
        self.producer.produce(self._topic, self._header + buffer.getvalue(), key.encode())


_SOURCE: dict[str, Any] = {"build": "0123456789ab-01234567", "batch": 1, "found": True}


class Asked(BaseModel):
    user_id: str
    item_id: str
    cart: float


class Answered(BaseModel):
    prediction_id: str
    score: float
    model: str
    version: str


def service() -> Any:
    """An ASGI application that answers requests: FastAPI and redis.asyncio, as its documentation advises."""
    import redis.asyncio
    from fastapi import FastAPI

    settings = json.loads(os.environ["BENCH_SCORING"])
    scorer = Scorer(settings)
    store: Any = redis.asyncio.Redis.from_url(settings["redis"])

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> Any:
        async def poll() -> None:
            while True:
                scorer.producer.poll(0)
                await asyncio.sleep(0.05)

        polling = asyncio.create_task(poll())
        yield
        polling.cancel()
        scorer.producer.flush(10)

    app = FastAPI(lifespan=lifespan)

    @app.post("/score/ranker")
    async def score(asked: Asked) -> Answered:
        features = scorer.features
        features.prepare()
        pipeline = store.pipeline(transaction=False)
        for key in features.keys(asked.user_id, asked.item_id):
            pipeline.hmget(key, features.fields)
        user, item = await pipeline.execute()
        row = features.row(user, item, asked.cart)
        (answer,) = scorer.predict([row])
        one = str(uuid.uuid4())
        scorer.log(one, asked.model_dump(), row, answer, None)
        return Answered(prediction_id=one, score=answer, model="ranker", version=settings["version"])

    return app
