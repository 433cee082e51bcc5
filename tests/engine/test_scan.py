"""A topic read once, on real brokers."""

from __future__ import annotations

import uuid

from confluent_kafka import Producer

from leftfold.kafka.admin import Admin
from leftfold.kafka.log_reader import scan
from leftfold.settings import Kafka
from tests.engine.conftest import Cluster

RECORDS = 150_000  # more than a client fetches ahead, so that the scan is not over before the writer begins


def test_a_partition_that_is_written_to_does_not_end_the_others(cluster: Cluster) -> None:
    """Its end is reached again after every record, and counted as the end of another partition."""
    kafka = Kafka(bootstrap=cluster.endpoints.bootstrap)
    topic = f"scan.{uuid.uuid4().hex[:8]}"
    Admin(kafka).create(topic, partitions=2, replication=3, configs={})
    writer = Producer({"bootstrap.servers": kafka.bootstrap, "linger.ms": 20, "queue.buffering.max.messages": RECORDS})
    for number in range(RECORDS):
        writer.produce(topic, key=str(number), partition=1)
    assert writer.flush(120) == 0
    read = 0
    for record in scan(kafka, topic, range(2)):
        if record.key is None:
            continue
        read += 1
        if read % 1_000 == 1:
            writer.produce(topic, value=b"another", partition=0)
            writer.flush(240)
    assert read == RECORDS
