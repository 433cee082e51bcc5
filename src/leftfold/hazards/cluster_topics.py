"""Hazards of topics: too short retention of records or tombstones, and the largest allowed record."""

from __future__ import annotations

from collections.abc import Iterator

from leftfold.declare.companions import receipts_topic
from leftfold.fold.durations import text
from leftfold.hazards.hazard import Facts, Hazard
from leftfold.kafka.observed import ObservedTopic
from leftfold.observe.settings import by_owner, is_compacted, least, number, of_a_tool, taken_from_brokers


def message_size(facts: Facts) -> Iterator[Hazard]:
    """Compare max.message.bytes with socket.request.max.bytes only: what a broker's socket refuses never gets in.

    The limits of a fetch (replica.fetch.max.bytes, max.partition.fetch.bytes) stop nothing, because a larger batch is
    sent alone.
    """
    socket = least(facts.observed.cluster, "socket.request.max.bytes")
    if socket is None:
        return
    for topic in facts.observed.topics.values():
        largest = number(topic.configs, "max.message.bytes")
        if largest is not None and largest > socket:
            yield Hazard(
                "message-size",
                "warning",
                f"topic {topic.name}",
                f"it allows batches of {largest:,} bytes (max.message.bytes), its brokers requests of {socket:,} "
                "(socket.request.max.bytes)",
                "A broker cuts the connection on a larger request instead of answering, so the producer sends it again "
                "and again. Its records never arrive, and it is not told that their size is why.",
                "set max.message.bytes below socket.request.max.bytes, and keep large things elsewhere with a "
                "reference in the record",
            )


def retention_below_downtime(facts: Facts) -> Iterator[Hazard]:
    logs = [t for t in facts.undeclared if t.records and not is_compacted(t)]
    for subject, what in _shorter(facts, logs, "retention.ms"):
        yield Hazard(
            "retention-below-downtime",
            "danger",
            subject,
            what,
            "After that time records may be deleted. A reader that is down for longer never sees them.",
            f"set retention.ms to {facts.downtime // 1_000} or more",
        )


def tombstones_below_downtime(facts: Facts) -> Iterator[Hazard]:
    # Receipts are left out. Another receipt covers what a tombstone removes, so a reader that misses it is not misled.
    tables = [t for t in facts.undeclared if is_compacted(t) and not t.name.endswith(receipts_topic())]
    for subject, what in _shorter(facts, tables, "delete.retention.ms"):
        yield Hazard(
            "tombstones-below-downtime",
            "danger",
            subject,
            what,
            "After that time compaction may drop deletions. A reader that keeps a table, and goes on where it stopped "
            "after a longer outage, never hears of them and keeps those keys; one that starts anew is safe.",
            f"set delete.retention.ms to {facts.downtime // 1_000} or more",
        )


def _shorter(facts: Facts, topics: list[ObservedTopic], setting: str) -> Iterator[tuple[str, str]]:
    """Yield subject and sentence for topics whose setting is shorter than the outage that readers must survive."""
    spans = {t.name: ms * 1_000 for t in topics if not of_a_tool(t) and (ms := number(t.configs, setting)) is not None}
    short = [t for t in topics if 0 <= spans.get(t.name, -1) < facts.downtime]
    outage = f"an outage of {text(facts.downtime)} is to be survived"
    own, inherited = by_owner(short, setting)
    for topic in own:
        yield f"topic {topic.name}", f"it has {setting}={topic.configs[setting]} ({text(spans[topic.name])}); {outage}"
    if inherited:
        yield "cluster", f"{taken_from_brokers(inherited, setting)}, {text(spans[inherited[0].name])}; {outage}"


RULES = (message_size, retention_below_downtime, tombstones_below_downtime)
