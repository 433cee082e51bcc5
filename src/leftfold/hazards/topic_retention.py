"""Hazards of the time for which a declared topic keeps its records and its tombstones."""

from __future__ import annotations

from collections.abc import Iterator

from leftfold.hazards.hazard import Facts, Hazard, Rule
from leftfold.hazards.retention import DAY, foreign, keep_longer, retention, retention_of, tombstones
from leftfold.units import spoken

CODES = (
    "lateness-beyond-retention",
    "retention-below-outage",
    "retention-by-size",
    "table-topic-deletes",
    "tombstones-below-outage",
)

_TOMBSTONES = 7 * DAY  # a plan sets this on every compacted topic that Leftfold manages


def _lateness(facts: Facts) -> Iterator[Hazard]:
    for topic in facts.catalog.topics.values():
        keeps = retention_of(facts, topic)
        if keeps is None or topic.lateness <= keeps or topic.archive:
            continue
        yield Hazard(
            "lateness-beyond-retention",
            "danger",
            f"topic {facts.name(topic)}",
            f"accepts events up to {spoken(topic.lateness)} late, and keeps records for {spoken(keeps)}",
            "A window's tile stays open for as long as an event of it can still be accepted. By then its first records "
            "may be deleted, and neither a repair nor a re-driven record can compute it anew.",
            f"{keep_longer(facts, topic, topic.lateness)}, or a shorter lateness",
            topic.source,
        )


def _outage(facts: Facts) -> Iterator[Hazard]:
    for topic in facts.catalog.topics.values():
        keeps = retention_of(facts, topic)
        if keeps is None or keeps >= facts.downtime:
            continue
        yield Hazard(
            "retention-below-outage",
            "danger",
            f"topic {facts.name(topic)}",
            f"keeps records for {spoken(keeps)}, and a reader may be down for {spoken(facts.downtime)}",
            "Records that are deleted before a reader comes back are lost to it. A view then stops with log-overtaken, "
            "and can only start over with what is left.",
            keep_longer(facts, topic, facts.downtime),
            topic.source,
        )


def _by_size(facts: Facts) -> Iterator[Hazard]:
    for topic in facts.catalog.topics.values():
        existing, keeps = facts.found(topic), retention_of(facts, topic)
        limits = (
            [broker.configs.get("log.retention.bytes", "-1") for broker in facts.observed.cluster.brokers]
            if existing is None
            else [existing.configs.get("retention.bytes", "-1")]
        )
        bounds = [int(limit) for limit in limits if int(limit) >= 0]
        if topic.compacted or not bounds or (existing is None and foreign(facts, topic)):
            continue
        name = facts.name(topic)
        until = "for ever" if keeps is None else f"for {spoken(keeps)}"
        yield Hazard(
            "retention-by-size",
            "danger",
            f"topic {name}",
            f"keeps records {until}, but at most {min(bounds):,} bytes in a partition"
            + (" (the brokers' log.retention.bytes)" if existing is None else ""),
            "Whichever comes first deletes. A burst, or one partition that gets more than others, loses records before "
            "their time.",
            f"ask the owner of {name} for retention.bytes=-1"
            if foreign(facts, topic)
            else f"kafka-configs.sh --topic {name} --alter --add-config retention.bytes=-1, and disks that hold it"
            + (", once it is made" if existing is None else ""),
            topic.source,
        )


def _deletes(facts: Facts) -> Iterator[Hazard]:
    """Judge only topics of other owners, which may both compact and delete. A plan makes managed ones compact only."""
    for topic in facts.catalog.topics.values():
        existing = facts.found(topic)
        if not topic.compacted or existing is None or not foreign(facts, topic):
            continue
        policy, keeps = existing.configs.get("cleanup.policy", "delete"), retention(existing)
        if set(policy.split(",")) != {"compact", "delete"} or keeps is None:
            continue
        yield Hazard(
            "table-topic-deletes",
            "danger",
            f"topic {existing.name}",
            f"has cleanup.policy={policy} and retention.ms={keeps // 1_000} ({spoken(keeps)})",
            "A key that is not written for that long leaves the log, and no deletion tells a table of it: the running "
            "build keeps the row, and the next one does not have it.",
            f"ask the owner of {existing.name} for cleanup.policy=compact",
            topic.source,
        )


def _deletions(facts: Facts) -> Iterator[Hazard]:
    for topic in facts.catalog.topics.values():
        existing = facts.found(topic)
        theirs = foreign(facts, topic)
        readable = _TOMBSTONES if not theirs else None if existing is None else tombstones(existing)
        if not topic.compacted or readable is None or readable >= facts.downtime:
            continue
        name = facts.name(topic)
        yield Hazard(
            "tombstones-below-outage",
            "danger",
            f"topic {name}",
            f"a deletion can be read for {spoken(readable)}, and a reader may be down for {spoken(facts.downtime)}",
            "A reader that comes back later never sees that the key was deleted, and keeps its row for ever. Nothing "
            "in the log tells that it missed something.",
            f"ask the owner of {name} for delete.retention.ms={facts.downtime // 1_000}"
            if theirs
            else f"after an outage of more than {spoken(readable)} start its tables with leftfold run --fresh",
            topic.source,
        )


RULES: tuple[Rule, ...] = (_lateness, _outage, _by_size, _deletes, _deletions)
