"""How full the brokers' disks are. librdkafka cannot ask for that, so kafka-python does: one call to each broker."""

from __future__ import annotations

from dataclasses import dataclass, field

from leftfold.kafka.observed import ObservedDisk
from leftfold.kafka.python_admin import python_admin
from leftfold.settings import Kafka


@dataclass(frozen=True)
class LogDirs:
    sizes: dict[tuple[str, int], int] = field(default_factory=dict)  # of each partition's largest copy
    disks: dict[int, tuple[ObservedDisk, ...]] = field(default_factory=dict)  # by broker


def log_dirs(kafka: Kafka) -> LogDirs:
    """Nothing, if the brokers do not let us ask (it takes Describe on the cluster)."""
    from kafka.errors import KafkaError  # type: ignore[import-untyped] # it has no types

    try:
        client = python_admin(kafka)
        try:
            answers = client.describe_log_dirs()
        finally:
            client.close()
    except KafkaError:
        return LogDirs()
    sizes: dict[tuple[str, int], int] = {}
    disks: dict[int, tuple[ObservedDisk, ...]] = {}
    for answer in answers:
        readable = [found for found in answer["log_dirs"] if found["error_code"] == 0]
        disks[answer["broker"]] = tuple(
            ObservedDisk(found["log_dir"], found["total_bytes"], found["usable_bytes"])
            for found in readable
            if found["total_bytes"] >= 0  # brokers before 3.3 do not know
        )
        for found in readable:
            for topic in found["topics"]:
                for part in topic["partitions"]:
                    place = (topic["name"], part["partition_index"])
                    sizes[place] = max(sizes.get(place, 0), part["partition_size"])
    return LogDirs(sizes, disks)
