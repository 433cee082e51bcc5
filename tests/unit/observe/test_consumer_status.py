"""The status of consumers, from the groups of a cluster."""

from __future__ import annotations

from leftfold.kafka.observed import ObservedGroup
from leftfold.observe.consumer_status import ConsumerStatus, statuses_in
from tests import clusters


def test_statuses() -> None:
    topic = clusters.seen_topic("clicks", 2, records=200)  # 100 in each partition
    groups = (
        ObservedGroup("p.mail", "STABLE", 2, {"clicks": 2}, {"clicks": {0: 90, 1: 100}}),
        ObservedGroup("p.book", "STABLE", 1, {"clicks": 1}, {"clicks": {0: 10}}),
        ObservedGroup("p.ranker", "EMPTY", 0, {}, {"clicks": {0: 0, 1: 100}}),
        ObservedGroup("p.new", "STABLE", 1, {"clicks": 1}, {}),
        ObservedGroup("others", "STABLE", 1, {"clicks": 1}, {"clicks": {0: 0}}),
    )
    seen = clusters.seen_cluster(topic, groups=groups)
    asked = {name: f"p.{name}" for name in ("mail", "book", "ranker", "new", "never")}
    assert statuses_in(seen, asked, scorers=["ranker"], in_database=["book"]) == [
        ConsumerStatus("mail", "consumer", "p.mail", "stable", 2, 10),
        ConsumerStatus("book", "consumer", "p.book", "stable", 1, None),
        ConsumerStatus("ranker", "scorer", "p.ranker", "empty", 0, 100),
        ConsumerStatus("new", "consumer", "p.new", "stable", 1, None),
        ConsumerStatus("never", "consumer", "p.never", None, 0, None),
    ]
