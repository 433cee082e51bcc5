"""The shape of Leftfold's own topics: receipts, definitions, late, rejects, redrive, changelogs, those of consumers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from leftfold.declare.catalog import Catalog
from leftfold.declare.companions import (
    again_topic,
    changelog_topic,
    companions_of,
    consumers_topic,
    dead_topic,
    definitions_topic,
    has_changelog,
    late_topic,
    receipts_topic,
    redrive_topic,
    rejects_topic,
)
from leftfold.declare.consumer import Consumer
from leftfold.declare.topic import Topic
from leftfold.errors import LeftfoldError, LogError, SourceLine
from leftfold.fold.durations import SECOND, text
from leftfold.kafka.observed import ObservedTopic
from leftfold.observe import settings as in_force
from leftfold.observe.observation import Observed
from leftfold.observe.personal import COMPACTED_WITHIN_MS, shown_by
from leftfold.settings import Profile

_DAY = 86_400 * SECOND
# The volume is small, because a batch has one receipt. Four partitions are for views that run in several applications.
_RECEIPT_PARTITIONS = 4
# One batch a second leaves 86,400 tombstones a day, so they are kept for an hour only. No reader takes as long as that.
# A reader that misses a tombstone is not misled, because another receipt covers the one that was removed.
_COMPACTED_WITHIN_HOURS = (
    ("cleanup.policy", "compact"),
    ("delete.retention.ms", str(_DAY // 24_000)),
    ("segment.ms", str(_DAY // 24_000)),
)
# A view has fewer rows than the records they are made from, so its changelog needs fewer partitions.
_MOST_CHANGELOG_PARTITIONS = 12
# A user can look on Monday at what was late or rejected on Friday, however short the topic's own retention is.
_KEPT_AT_LEAST = 7 * _DAY
# A dead letter waits for a person who has corrected a handler, which may take a holiday.
_DEAD_KEPT_AT_LEAST = 14 * _DAY
# A key that cannot be used is kept in a header, next to Leftfold's own few headers. A longer key does not fit in.
_ROOM_FOR_HEADERS = 64 * 1_024
_LARGEST_RECORD = 1_048_588  # Kafka's own default of max.message.bytes


@dataclass(frozen=True)
class Companion:
    """One of Leftfold's own topics, as it must be. `name` is its name in the cluster."""

    name: str
    partitions: int
    replication: int
    kept: str
    settings: tuple[tuple[str, str], ...]
    source: SourceLine | None  # the place of the declaration that it belongs to

    @property
    def configs(self) -> dict[str, str]:
        return {
            "message.timestamp.type": "LogAppendTime",
            in_force.SETTING: str(in_force.in_sync_for(self.replication)),
            **dict(self.settings),
            "unclean.leader.election.enable": "false",
        }


def companions(catalog: Catalog, profile: Profile, observed: Observed) -> Iterator[Companion]:
    """Yield Leftfold's own topics, in the order of `companions_of`."""
    replicas = max((t.replication for t in catalog.topics.values()), default=3)
    yield Companion(
        profile.topic_name(receipts_topic()),
        _RECEIPT_PARTITIONS,
        _capped(replicas, profile),
        "compacted",
        _COMPACTED_WITHIN_HOURS,
        None,
    )
    if catalog.views:
        # One small document per definition that ever ran. Compaction keeps the newest of each, for ever.
        definitions = profile.topic_name(definitions_topic())
        yield Companion(definitions, 1, _capped(replicas, profile), "compacted", _compacted(), None)
    for topic in catalog.topics.values():
        yield from _of_topic(topic, profile, observed)
    for view in catalog.views.values():
        if has_changelog(view):
            first = view.reading.topics[0]
            personal = (("max.compaction.lag.ms", str(COMPACTED_WITHIN_MS)),) if shown_by(view) else ()
            yield Companion(
                profile.topic_name(changelog_topic(view.name)),
                min(first.partitions, _MOST_CHANGELOG_PARTITIONS),
                _capped(first.replication, profile),
                "compacted",
                # A lake reads the records later and needs every one, so they are not compacted within a day.
                (*_compacted(), ("min.compaction.lag.ms", str(_DAY // 1_000)), *personal),
                view.source,
            )
    if catalog.consumers:
        yield Companion(
            profile.topic_name(consumers_topic()), 1, _capped(replicas, profile), "compacted", _compacted(), None
        )
    for consumer in catalog.consumers.values():
        yield from _of_consumer(consumer, profile, observed)


def _of_consumer(consumer: Consumer[..., Any], profile: Profile, observed: Observed) -> Iterator[Companion]:
    """Yield the topics of a consumer's dead letters and of those that are re-driven."""
    first = consumer.topics[0]
    sources = [observed.topics.get(profile.topic_name(t.name, external=t.external)) for t in consumer.topics]
    largest = max(int(s.configs.get("max.message.bytes", _LARGEST_RECORD)) if s else _LARGEST_RECORD for s in sources)
    room = ("max.message.bytes", str(largest + _ROOM_FOR_HEADERS))
    kept = max(_DEAD_KEPT_AT_LEAST, *(topic.retention or 0 for topic in consumer.topics))
    retention = (("retention.ms", str(kept // 1_000)),)
    replicas = _capped(first.replication, profile)
    # A dead letter is keyed by the position of its record, so the newest one counts. A tombstone removes it.
    letters = (("cleanup.policy", "compact,delete"), ("delete.retention.ms", str(kept // 1_000)), room, *retention)
    again = (("cleanup.policy", "delete"), room, *retention)
    for name, settings in ((dead_topic(consumer.name), letters), (again_topic(consumer.name), again)):
        partitions = 1 if name == dead_topic(consumer.name) else first.partitions
        yield Companion(profile.topic_name(name), partitions, replicas, f"kept {text(kept)}", settings, consumer.source)


def _of_topic(topic: Topic[Any], profile: Profile, observed: Observed) -> Iterator[Companion]:
    """Yield the late, rejects and re-drive topics of a declared topic. A compacted topic has only rejects.

    Each has one partition: at worst it gets a few records in a hundred. They are written in bulk, and one user at a
    time reads them.
    """
    actual = observed.topics.get(profile.topic_name(topic.name, external=topic.external))
    largest = int(actual.configs.get("max.message.bytes", _LARGEST_RECORD)) if actual else _LARGEST_RECORD
    room = ("max.message.bytes", str(largest + _ROOM_FOR_HEADERS))
    retention = max(topic.retention or 0, _KEPT_AT_LEAST)
    replicas = _capped(topic.replication, profile)
    # Records are keyed by source position and compacted, so a batch that runs again leaves one record. To Kafka, a
    # reject without a value is a tombstone. It must stay as long as the others, hence the equal delete.retention.ms.
    positions = (
        ("cleanup.policy", "compact,delete"),
        ("delete.retention.ms", str(retention // 1_000)),
        room,
        ("retention.ms", str(retention // 1_000)),
    )
    # Every later build needs the re-driven records.
    for_ever = (("cleanup.policy", "delete"), room, ("retention.bytes", "-1"), ("retention.ms", "-1"))
    if not topic.compacted:
        name = profile.topic_name(late_topic(topic.name))
        yield Companion(name, 1, replicas, f"kept {text(retention)}", positions, topic.source)
    name = profile.topic_name(rejects_topic(topic.name))
    yield Companion(name, 1, replicas, f"kept {text(retention)}", positions, topic.source)
    if not topic.compacted:
        name = profile.topic_name(redrive_topic(topic.name))
        yield Companion(name, 1, replicas, "kept for ever", for_ever, topic.source)


def _compacted() -> tuple[tuple[str, str], ...]:
    # A reader that is down for longer than tombstones are kept misses a deletion. Kafka's default is a day.
    return ("cleanup.policy", "compact"), ("delete.retention.ms", str(7 * _DAY // 1_000))


def _capped(replicas: int, profile: Profile) -> int:
    return min(replicas, profile.replication or replicas)


def check_names(catalog: Catalog, profile: Profile) -> list[LeftfoldError]:
    """Return an error for each declared topic that has the name of one of Leftfold's own topics.

    Kafka treats a.b and a_b as one name, because of its metrics.
    """
    ours = {_metric(profile.topic_name(name)): name for name in companions_of(catalog)}
    return [
        LogError(
            "topic-name-taken",
            f"topic {topic.name} has the name that Leftfold gives to its own topic {ours[taken]}",
            why="Leftfold keeps receipts, and what is late, rejected or re-driven of each topic, under such names; "
            "to Kafka '.' and '_' are the same in a name",
            fix="rename the topic",
            source=topic.source,
        )
        for topic in catalog.topics.values()
        if (taken := _metric(profile.topic_name(topic.name, external=topic.external))) in ours
    ]


def _metric(name: str) -> str:
    return name.replace(".", "_")


def check_owned_by_others(wanted: Companion, profile: Profile, actual: ObservedTopic | None) -> list[LeftfoldError]:
    """Return errors that say what the owner of a topic has to do, under topics = "checked"."""
    why = f'profile {profile.name} has topics = "checked", so Leftfold does not'
    partitions = f"{wanted.partitions} partition{'' if wanted.partitions == 1 else 's'}"
    if actual is None:
        settings = ", ".join(f"{k}={v}" for k, v in wanted.configs.items())
        return [
            LogError(
                "topic-missing",
                f"topic {wanted.name} does not exist",
                why=f"{why} create it, and Leftfold keeps its own records there",
                fix=f"ask its owner to create it with {partitions} and {settings}",
                source=wanted.source,
            )
        ]
    cleaned = dict(wanted.settings)["cleanup.policy"]
    policy = actual.configs.get("cleanup.policy", "delete")
    if set(policy.split(",")) == set(cleaned.split(",")):
        return []
    return [
        LogError(
            "companion-policy",
            f"topic {wanted.name} has cleanup.policy={policy}",
            why=f"Leftfold keeps its own records there, which takes {cleaned}; {why} change it",
            fix=f"ask its owner to set cleanup.policy={cleaned}",
            source=wanted.source,
        )
    ]
