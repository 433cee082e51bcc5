"""`App.read` against bare confluent-kafka with fastavro: 100,000 records of the log, decoded to dicts.

Ours also judges each record by the rules of the declaration. Both must give the same fields at the same offsets. The
result is judged by the CPU time of this process, including librdkafka's threads: brokers on the same cores make wall
time vary more than the two readers differ.
"""

from __future__ import annotations

import gc
import io
import json
import statistics
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import fastavro
from confluent_kafka import Consumer, KafkaError, TopicPartition

import leftfold
from bench.engines import shop
from bench.pairs import Case, interleave, note
from leftfold.declare.framing import HEADER_BYTES
from leftfold.declare.schema import avro_schema
from leftfold.declare.synthetic import synthetic

RECORDS = 100_000
GOAL = 0.7  # CPU time of bare / ours
_AT_ONCE = 1_000
_LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)

Fields = dict[tuple[int, int], dict[str, Any]]  # by partition and offset


def measure(pairs: int) -> dict[str, Case]:
    with shop() as app:
        app.send("clicks", synthetic(app.catalog.topic("clicks"), RECORDS, seed=1))
        assert _ours(app) == _bare(app), "both sides must read the same"
        seconds: dict[str, list[float]] = {"ours": [], "bare": []}

        def timed(name: str, read: Callable[[leftfold.App], Fields]) -> float:
            gc.collect()
            before = time.process_time()
            read(app)
            seconds[name].append(time.process_time() - before)
            return seconds[name][-1]

        ratios = interleave("read", pairs, lambda: timed("ours", _ours), lambda: timed("bare", _bare))
        figures = {f"{n}_us_per_record": round(statistics.median(s) / RECORDS * 1e6, 2) for n, s in seconds.items()}
        note(f"read: {figures}")
        return {"read": Case(ratios, GOAL, outputs_equal=True, figures=figures)}


def _ours(app: leftfold.App) -> Fields:
    records = app.read("clicks", start=_LONG_AGO, most=RECORDS)
    return {(record.partition, record.offset): record.fields for record in records if record.fields is not None}


def _bare(app: leftfold.App) -> Fields:
    schema = fastavro.parse_schema(json.loads(avro_schema(app.catalog.topic("clicks").event)))
    consumer = Consumer(
        {
            "bootstrap.servers": app.kafka.bootstrap,
            "group.id": "bare",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    consumer.assign([TopicPartition("clicks", p, 0) for p in range(6)])
    fields: Fields = {}
    left = 6
    while left:
        for message in consumer.consume(_AT_ONCE, timeout=0.1):
            error = message.error()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                left -= 1
                continue
            value: Any = message.value()
            place: Any = (message.partition(), message.offset())
            record: Any = fastavro.schemaless_reader(io.BytesIO(value[HEADER_BYTES:]), schema, None)
            fields[place] = record
    consumer.close()
    return fields
