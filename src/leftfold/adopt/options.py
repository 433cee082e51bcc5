"""Converts a topic's settings into options of its declaration."""

from __future__ import annotations

from dataclasses import dataclass

from leftfold.declare.topic import LogTime
from leftfold.fold.durations import text
from leftfold.kafka.observed import ObservedTopic

# Kafka's default retention, for a cluster that does not report one.
_WEEK_MS = 7 * 86_400_000
# A declaration cannot say "for ever". A hundred years is long enough.
_FOR_EVER = "36500d"
_MOST_PARTITIONS = 4_000  # the largest number that a declaration accepts
_TOLD = (
    "cleanup.policy",
    "retention.ms",
    "retention.bytes",
    "delete.retention.ms",
    "message.timestamp.type",
    "max.message.bytes",
    "min.insync.replicas",
)


@dataclass(frozen=True)
class TopicOptions:
    """The options of a declaration, most of them with a note for the user. An empty note means that there is none."""

    partitions: int
    replication: int
    compacted: bool
    compacted_note: str
    retention: str | None  # None if compacted
    retention_note: str
    log_time: LogTime
    log_time_note: str


def options_of(topic: ObservedTopic) -> TopicOptions:
    configs = topic.configs
    policy = configs.get("cleanup.policy", "delete")
    compacted = "compact" in policy.split(",")
    retention, note = (None, "") if compacted else _retention(configs)
    stamped = configs.get("message.timestamp.type", "CreateTime")
    by_broker = stamped == "LogAppendTime"
    consequence = "" if compacted else ": a producer's clock decides what is late"
    also_deleted = f"cleanup.policy={policy}: records are also deleted by age, so a table filled anew lacks old rows"
    return TopicOptions(
        partitions=topic.partitions,
        replication=topic.replication,
        compacted=compacted,
        compacted_note=also_deleted if compacted and "delete" in policy.split(",") else "",
        retention=retention,
        retention_note=note,
        log_time="broker" if by_broker else "producer",
        log_time_note="" if by_broker else f"message.timestamp.type={stamped}" + consequence,
    )


def _retention(configs: dict[str, str]) -> tuple[str, str]:
    kept_ms = int(configs.get("retention.ms", _WEEK_MS))
    size = int(configs.get("retention.bytes", -1))
    by_size = f"retention.bytes={size} of a partition may end it sooner" if size >= 0 else ""
    if kept_ms < 0:
        return _FOR_EVER, "; ".join(filter(None, ["retention.ms=-1 is for ever, said as a hundred years", by_size]))
    return text(max(1, kept_ms) * 1_000), by_size


def can_say(partitions: int) -> bool:
    return partitions <= _MOST_PARTITIONS


def seen_lines(topic: ObservedTopic) -> tuple[str, ...]:
    """Lines that say what was found, for later readers of the declaration."""
    copies = f"{topic.replication} replica{'' if topic.replication == 1 else 's'}"
    parts = f"{topic.partitions:,} partition{'' if topic.partitions == 1 else 's'}"
    configs = ", ".join(f"{name}={topic.configs[name]}" for name in _TOLD if name in topic.configs)
    return (f"{parts}, {copies}, {topic.records:,} offsets", *([configs] if configs else []))
