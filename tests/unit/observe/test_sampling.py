"""Which topics are sampled. Real ones are by tests/engine/test_observe.py."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from leftfold.errors import LogError
from leftfold.kafka.sample import Sample
from leftfold.observe import sampling as module
from leftfold.observe.sampling import MOST_TOPICS, take_samples, worth_a_sample
from leftfold.settings import Kafka
from tests import clusters

ADMIN: Any = None  # only handed on
KAFKA = Kafka(bootstrap="nowhere:1")


def test_the_topics_with_the_most_records() -> None:
    topics = [clusters.seen_topic(f"t{n}", 1, records=n) for n in range(MOST_TOPICS + 5)]
    chosen = [topic.name for topic in worth_a_sample(clusters.seen_cluster(*topics))]
    assert chosen == [f"t{n}" for n in range(MOST_TOPICS + 4, 4, -1)]


def test_topics_that_are_empty_or_of_a_tool_or_without_a_leader_are_left_out() -> None:
    names = ("_schemas", "leftfold.receipts", "shop.leftfold.receipts", "stopped", "clicks", "shop.clicks.rejects")
    topics = [clusters.seen_topic(name, 2, records=100) for name in names]
    stopped = replace(topics[3], spread=(topics[3].spread[0], replace(topics[3].spread[1], leader=-1)))
    cluster = clusters.seen_cluster(*topics[:3], stopped, *topics[4:], clusters.seen_topic("empty"))
    assert [topic.name for topic in worth_a_sample(cluster)] == ["clicks", "shop.clicks.rejects"]


def test_a_topic_that_cannot_be_read_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[bool] = []

    class Producers:
        def __init__(self, _kafka: Kafka) -> None:
            pass

        def last_times(self, topic: str, partitions: list[int]) -> dict[int, int]:
            assert (topic, partitions) == ("clicks", [0, 4])
            return {0: 9}

        def close(self) -> None:
            closed.append(True)

    def take(_kafka: Kafka, _admin: Any, topic: str, partitions: int, _judge: Any) -> Sample:
        if topic != "clicks":
            raise LogError("kafka-refused", "no", why="for a test", fix="none")
        return Sample(topic, 9, 60, {}, 1.0, 1, 1, 0, 0, (), by_producer=0, ahead=0, newest={4: 7, 0: partitions})

    monkeypatch.setattr(module, "IdempotentProducers", Producers)
    monkeypatch.setattr(module, "take_sample", take)
    samples = take_samples(ADMIN, KAFKA, [clusters.seen_topic(name) for name in ("gone", "clicks", "secret")])
    assert list(samples) == ["clicks"]
    assert samples["clicks"].idempotent == {0: 9}
    assert samples["clicks"].newest == {4: 7, 0: 6}
    assert closed == [True]
