"""Our producer against bare confluent-kafka with the same settings: bytes already encoded, and dicts to encode.

Both write the same records in the same order; afterwards every partition of both topics must hold the same sequence.
"""

from __future__ import annotations

import hashlib
import io
import json
from typing import Any

import fastavro
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka import Producer as Bare

import leftfold
from bench.engines import shop
from bench.pairs import Case, interleave, note
from leftfold import clock
from leftfold.kafka.producer import SETTINGS, Producer
from leftfold.spec.schema import avro_schema
from leftfold.spec.synthetic import synthetic

RECORDS = 300_000
GOALS = {"encoded": 0.95, "dict": 0.80}


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

    def run_ours() -> float:
        producer = Producer(topic, ours, app.kafka, registry)
        started = clock.monotonic()
        if case == "encoded":
            for key, value in encoded:
                producer.send_encoded(key, value)
        else:
            for record in records:
                producer.send_dict(record)
        producer.flush()
        return clock.monotonic() - started

    def run_bare() -> float:
        settings = {k: v for k, v in SETTINGS.items() if k != "delivery.report.only.error"}
        producer = Bare({"bootstrap.servers": app.kafka.bootstrap, **settings})
        started = clock.monotonic()
        if case == "encoded":
            _bare_encoded(producer, bare, encoded)
        else:
            _bare_dicts(producer, bare, records, schema=schema, header=b"\0" + schema_id.to_bytes(4))
        assert producer.flush(150) == 0
        return clock.monotonic() - started

    run_ours()
    run_bare()  # both once to warm the brokers; not measured
    ratios = interleave(case, pairs, run_ours, run_bare)
    equal = _digests(app.kafka.bootstrap, ours) == _digests(app.kafka.bootstrap, bare)
    note(f"{case}: every partition of both topics holds the same sequence: {equal}")
    return Case(ratios, GOALS[case], equal)


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
    """The same encoder, called directly."""
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


def _digests(bootstrap: str, topic: str) -> dict[int, tuple[int, str]]:
    """Per partition: how many records, and a digest of all keys and values in order."""
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
            hashes[partition].update(b"%d:%b%b" % (len(key), key, value))
            counts[partition] += 1
    consumer.close()
    return {p: (counts[p], hashes[p].hexdigest()) for p in ends}
