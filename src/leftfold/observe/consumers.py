"""Observes what the log keeps of declared consumers: their pauses, and the first of their dead letters. Read-only."""

from __future__ import annotations

from dataclasses import replace

from leftfold.declare.catalog import Catalog
from leftfold.declare.companions import again_topic, consumers_topic, dead_topic
from leftfold.errors import LogError
from leftfold.kafka.admin import Admin
from leftfold.kafka.consumer_log import ConsumerLog
from leftfold.kafka.dead_letters import DeadLetters
from leftfold.kafka.observed import ObservedCluster
from leftfold.observe.observation import ObservedConsumer
from leftfold.settings import Kafka, Profile, group_id

# A user waits for the look, and so many are read in about a second. The oldest letters lie first.
MOST_LETTERS = 20_000


def observe_consumers(
    catalog: Catalog, profile: Profile, cluster: ObservedCluster, kafka: Kafka, admin: Admin
) -> dict[str, ObservedConsumer]:
    """Observe all declared consumers. Topics that are missing, or that this user may not read, tell nothing."""
    paused = _pauses(profile.topic_name(consumers_topic()), cluster, kafka)
    groups = {name: group_id(profile.namespace, name) for name in catalog.consumers}
    sessions = _sessions(list(groups.values()), admin)
    seen = {name: _observed(name, paused.get(name), profile, cluster, kafka, admin) for name in groups}
    return {name: replace(seen[name], session_ms=sessions.get(group)) for name, group in groups.items()}


def _sessions(groups: list[str], admin: Admin) -> dict[str, int]:
    try:
        return admin.session_timeouts(groups)
    except LogError:  # this user may not see it, or the brokers are too old to know it
        return {}


def _pauses(topic: str, cluster: ObservedCluster, kafka: Kafka) -> dict[str, int]:
    if topic not in cluster.topics or not cluster.topics[topic].records:
        return {}
    try:
        return ConsumerLog(kafka, topic).pauses()
    except LogError:
        return {}


def _observed(
    name: str, paused_at: int | None, profile: Profile, cluster: ObservedCluster, kafka: Kafka, admin: Admin
) -> ObservedConsumer:
    dead, again = profile.topic_name(dead_topic(name)), profile.topic_name(again_topic(name))
    topic = cluster.topics.get(dead)
    if topic is None or not topic.records:
        return ObservedConsumer(paused_at)
    try:
        letters = DeadLetters(name, dead, again, kafka, admin).letters(MOST_LETTERS)
    except LogError:
        return ObservedConsumer(paused_at)
    times = tuple(sorted(letter.since_us for letter in letters))
    return ObservedConsumer(paused_at, times, topic.records <= MOST_LETTERS)
