"""Our producer against bare confluent-kafka with the same settings: bytes already encoded, and dicts to encode.

Both write the same records in the same order. Afterwards every partition of both topics must hold the same sequence.
In a third case ours makes its events up, by the loop of `send --synthetic`, and the bare side has them encoded already.
Their times are those of the run, so of these only keys are compared.
The result is judged by the CPU time of this process, including librdkafka's threads. Wall time is reported too, but not
judged: brokers on the same cores make it vary more than the two producers differ.
"""

from __future__ import annotations

import gc
import hashlib
import io
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import fastavro
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka import Producer as Bare

import leftfold
from bench.engines import shop
from bench.pairs import Case, interleave, note
from leftfold import clock
from leftfold.cli.send_verb import MadeUp
from leftfold.declare.schema import avro_schema
from leftfold.declare.synthetic import synthetic
from leftfold.kafka.producer import SETTINGS, Producer

RECORDS = 300_000
GOALS: dict[str, float | None] = {"encoded": 0.95, "dict": 0.85, "synthetic": 0.30}  # CPU time of bare / ours


@dataclass
class Side:
    """One of the two producers, which is run many times.

    Each run calls `open`, which makes a new client and returns the function that sends everything. Only that function
    is timed.
    """

    open: Callable[[], Callable[[], None]]
    cpu_s: list[float] = field(default_factory=list)
    wall_s: list[float] = field(default_factory=list)

    def run(self) -> float:
        send = self.open()
        gc.collect()
        wall, cpu = clock.monotonic(), time.process_time()
        send()
        self.cpu_s.append(time.process_time() - cpu)
        self.wall_s.append(clock.monotonic() - wall)
        return self.cpu_s[-1]

    def cpu_us_per_record(self) -> float:
        return round(statistics.median(self.cpu_s) / RECORDS * 1e6, 2)


def measure(pairs: int) -> dict[str, Case]:
    with shop() as app:
        return {case: _case(app, case, pairs) for case in GOALS}


def _case(app: leftfold.App, case: str, pairs: int) -> Case:
    topic = app.catalog.topic("clicks")
    records = list(synthetic(topic, RECORDS, seed=1))
    ours, bare = f"{case}-ours", f"{case}-bare"
    admin, registry = app.log
    for name in (ours, bare):
        admin.create(name, partitions=6, replication=3, configs={"min.insync.replicas": "2"})
        registry.register(f"{name}-value", avro_schema(topic.event))
    schema_id = registry.id_of(f"{bare}-value", avro_schema(topic.event))
    assert schema_id is not None
    schema = fastavro.parse_schema(json.loads(avro_schema(topic.event)))
    encoder = Producer(topic, ours, app.kafka, registry)
    encoded = [(encoder.key_of(r), encoder.encode(r)) for r in records]

    del encoder  # its threads would count for both sides
    gc.freeze()  # the garbage collector must not spend time on the records either

    def open_ours() -> Callable[[], None]:
        producer = Producer(topic, ours, app.kafka, registry)

        def send() -> None:
            if case == "encoded":
                for key, value in encoded:
                    producer.send_encoded(key, value)
            elif case == "synthetic":
                MadeUp(topic, producer, RECORDS, seed=1).hand_over(lambda _: None)
            else:
                for record in records:
                    producer.send_dict(record)
            producer.flush()

        return send

    def open_bare() -> Callable[[], None]:
        settings = {k: v for k, v in SETTINGS.items() if k != "delivery.report.only.error"}
        producer = Bare({"bootstrap.servers": app.kafka.bootstrap, **settings})

        def send() -> None:
            if case != "dict":
                _bare_encoded(producer, bare, encoded)
            else:
                _bare_dicts(producer, bare, records, schema=schema, header=b"\0" + schema_id.to_bytes(4))
            assert producer.flush(150) == 0

        return send

    open_ours()()
    open_bare()()  # one run of each, not measured, to warm up the brokers
    mine, theirs = Side(open_ours), Side(open_bare)
    ratios = interleave(f"{case} (CPU)", pairs, mine.run, theirs.run)
    values = case != "synthetic"
    equal = _digests(app.kafka.bootstrap, ours, values=values) == _digests(app.kafka.bootstrap, bare, values=values)
    note(f"{case}: every partition of both topics holds the same sequence: {equal}")
    walls = [b / o for o, b in zip(mine.wall_s, theirs.wall_s, strict=True)]
    figures = {
        "cpu_us_per_record": mine.cpu_us_per_record(),
        "bare_cpu_us_per_record": theirs.cpu_us_per_record(),
        "wall_ratio_median": round(statistics.median(walls), 3),
        "wall_ratio_min": round(min(walls), 3),
        "wall_ratio_max": round(max(walls), 3),
    }
    return Case(ratios, GOALS[case], equal, figures=figures)


def _bare_encoded(producer: Any, topic: str, encoded: list[tuple[bytes, bytes]]) -> None:
    produce, poll = producer.produce, producer.poll
    for number, (key, value) in enumerate(encoded):
        try:
            produce(topic, value, key)
        except BufferError:
            _retry(producer, topic, key, value)
        if not number & 1_023:
            poll(0)


def _bare_dicts(producer: Any, topic: str, records: list[dict[str, Any]], *, schema: Any, header: bytes) -> None:
    """Encode with the same encoder as our producer, called directly, and send."""
    produce, poll = producer.produce, producer.poll
    for number, record in enumerate(records):
        buffer = io.BytesIO()
        buffer.write(header)
        fastavro.schemaless_writer(buffer, schema, record)
        key, value = record["user_id"].encode(), buffer.getvalue()
        try:
            produce(topic, value, key)
        except BufferError:
            _retry(producer, topic, key, value)
        if not number & 1_023:
            poll(0)


def _retry(producer: Any, topic: str, key: bytes, value: bytes) -> None:
    while True:
        producer.poll(0.1)
        try:
            producer.produce(topic, value, key)
        except BufferError:
            continue
        return


def _digests(bootstrap: str, topic: str, *, values: bool) -> dict[int, tuple[int, str]]:
    """Return for each partition the number of records, and a digest of all keys, and all `values`, in order."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench", "enable.auto.commit": False})
    ends = {p: consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=20)[1] for p in range(6)}
    consumer.assign([TopicPartition(topic, p, 0) for p in ends])
    hashes = {p: hashlib.sha256() for p in ends}
    counts = dict.fromkeys(ends, 0)
    while any(counts[p] < ends[p] for p in ends):
        for message in consumer.consume(10_000, timeout=10):
            assert message.error() is None, message.error()
            partition, key, value = message.partition(), message.key(), message.value()
            assert partition is not None
            assert key is not None
            assert value is not None
            hashes[partition].update(b"%d:%b%b" % (len(key), key, value if values else b""))
            counts[partition] += 1
    consumer.close()
    return {p: (counts[p], hashes[p].hexdigest()) for p in ends}
