"""Hazards of a cluster as it is: each provoked, each named once, and none where nothing is wrong."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

import leftfold as lf
from leftfold.declare.catalog import Catalog
from leftfold.hazards.cluster import CODES, RULES
from leftfold.hazards.hazard import Facts, Hazard
from leftfold.kafka.observed import (
    ObservedBroker,
    ObservedCluster,
    ObservedDisk,
    ObservedGroup,
    ObservedPartition,
    ObservedTopic,
    dump,
    load,
)
from leftfold.local import brokers as local_brokers
from leftfold.local.endpoints import Endpoints, Ports
from leftfold.observe.observation import Observed, ObservedSubject
from leftfold.plan.diff import plan
from leftfold.plan.steps import CreateTopic
from leftfold.settings import Profile
from tests import clusters

DAY = 86_400_000_000
HOUR, MINUTE = DAY // 24, DAY // 1_440
SEEN_AT = clusters.seen_cluster().seen_at
EMPTY = Catalog({}, {}, {})
PLAIN = Profile(name="prod")
GOOD = {"min.insync.replicas": "2", "unclean.leader.election.enable": "false", "cleanup.policy": "delete"}
GOOD |= {"retention.ms": "604800000", "delete.retention.ms": "604800000", "max.message.bytes": "1048588"}


def topic(name: str = "clicks", partitions: int = 6, replicas: int = 3, **settings: Any) -> ObservedTopic:
    """A sound one, but for `settings` (with _ for a dot), which were set on it."""
    own = {k.replace("_", "."): str(v) for k, v in settings.items() if k not in ("records", "size", "in_sync")}
    seen = {k: v for k, v in settings.items() if k in ("records", "size", "in_sync")}
    made = clusters.seen_topic(name, partitions, replicas, GOOD | own, **seen)
    return replace(made, own=frozenset(own))


def group(
    name: str, positions: dict[str, dict[int, int]], members: int = 0, owners: dict[str, int] | None = None
) -> ObservedGroup:
    return ObservedGroup(name, "STABLE" if members else "EMPTY", members, owners or {}, positions)


def still_at(positions: dict[str, dict[int, int]], **waiting: dict[int, int]) -> ObservedGroup:
    """Watched for 10 s; where it did not move, a record has waited for so many µs."""
    still = {name: {n: SEEN_AT - us for n, us in places.items()} for name, places in waiting.items()}
    return replace(group("billing", positions, 2, dict.fromkeys(positions, 1)), watched_s=10, still=still)


def hazards(cluster: ObservedCluster, profile: Profile = PLAIN, catalog: Catalog = EMPTY, **more: Any) -> list[Hazard]:
    facts = Facts(Observed(cluster, {}), catalog, profile, **more)
    return [hazard for rule in RULES for hazard in rule(facts)]


def named(cluster: ObservedCluster, **more: Any) -> list[tuple[str, str]]:
    return [(hazard.code, hazard.subject) for hazard in hazards(cluster, **more)]


def seen(*topics: ObservedTopic, **more: Any) -> ObservedCluster:
    return clusters.seen_cluster(*topics, **more)


def with_racks(cluster: ObservedCluster, *racks: str | None) -> ObservedCluster:
    return replace(cluster, brokers=tuple(replace(b, rack=r) for b, r in zip(cluster.brokers, racks, strict=True)))


def with_partitions(found: ObservedTopic, *spread: ObservedPartition) -> ObservedTopic:
    return replace(found, spread=spread)


def small(brokers: int, **settings: Any) -> ObservedCluster:
    """As many copies as brokers."""
    ids = tuple(range(1, brokers + 1))
    found = topic(replicas=brokers, **settings)
    return seen(with_partitions(found, ObservedPartition(1, ids, ids, 0, 0)), brokers=brokers)


def at_end(found: ObservedTopic) -> dict[str, dict[int, int]]:
    return {found.name: {n: p.end for n, p in enumerate(found.spread)}}


def full_disk() -> ObservedCluster:
    cluster = seen(topic())
    first = replace(cluster.brokers[0], disks=(ObservedDisk("/data", 1_000, 149), ObservedDisk("/more", 1_000, 150)))
    return replace(cluster, brokers=(first, *cluster.brokers[1:]))


def many(partitions: int, brokers: int) -> ObservedCluster:
    """Evenly led and spread."""
    one = [
        ObservedPartition(n % brokers + 1, (n % brokers + 1, (n + 1) % brokers + 1), (), 0, 0) for n in range(brokers)
    ]
    whole = tuple(replace(one[n % brokers], in_sync=one[n % brokers].replicas) for n in range(partitions))
    found = replace(topic("wide"), spread=whole)
    return seen(found, brokers=brokers)


CLICKS = topic(records=600)
ONE_LEADER = tuple(ObservedPartition(1, (1, 2, 3), (1, 2, 3), 0, 0) for _ in range(75))
OTHERS_LEAD = tuple(ObservedPartition(2 + n % 2, (2 + n % 2, 1, 3 - n % 2), (1, 2, 3), 0, 0) for n in range(75))

# What a cluster has, and all that is then said of it.
PROVOKED: dict[str, tuple[Callable[[], ObservedCluster], list[tuple[str, str]]]] = {
    "one broker": (lambda: small(1, min_insync_replicas=1), [("few-brokers", "cluster")]),
    "two brokers": (lambda: small(2, min_insync_replicas=1), [("few-brokers", "cluster")]),
    "one copy": (lambda: seen(topic(replicas=1, min_insync_replicas=1)), [("replication-low", "topic clicks")]),
    "two copies": (lambda: seen(topic(replicas=2, min_insync_replicas=1)), [("replication-low", "topic clicks")]),
    "one in sync is enough": (lambda: seen(topic(min_insync_replicas=1)), [("min-in-sync-low", "topic clicks")]),
    "all must be in sync": (lambda: seen(topic(min_insync_replicas=3)), [("min-in-sync-tight", "topic clicks")]),
    "more must be in sync than there are": (
        lambda: seen(topic(min_insync_replicas=4)),
        [("min-in-sync-above", "topic clicks")],
    ),
    "any leader": (
        lambda: seen(topic(unclean_leader_election_enable="true")),
        [("unclean-election", "topic clicks")],
    ),
    "no leader": (
        lambda: seen(with_partitions(topic(), ObservedPartition(-1, (1, 2, 3), (1, 2, 3), 0, 0))),
        [("no-leader", "topic clicks")],
    ),
    "a broker is behind": (
        lambda: seen(with_partitions(topic(), ObservedPartition(1, (1, 2, 3), (1, 3), 0, 0))),
        [("under-replicated", "broker 2")],
    ),
    "one rack": (
        lambda: with_racks(
            seen(with_partitions(topic(replicas=2), ObservedPartition(1, (1, 2, 3), (1, 2, 3), 0, 0)), brokers=4),
            *("a", "a", "a", "b"),
        ),
        [("one-rack", "topic clicks")],
    ),
    "one broker leads": (
        lambda: seen(replace(topic(), spread=(*ONE_LEADER, *OTHERS_LEAD))),
        [("leaders-skewed", "broker 1")],
    ),
    "many partitions of a broker": (
        lambda: many(4 * 4_001, 8),
        [("replication-low", "topic wide"), ("partitions-per-broker", "cluster")],
    ),
    "many partitions of a cluster": (
        lambda: many(200_001, 400),
        [("replication-low", "topic wide"), ("partitions-per-cluster", "cluster")],
    ),
    "a full disk": (full_disk, [("disk-low", "broker 1")]),
    "positions in one copy": (
        lambda: seen(topic(), offsets_topic_replication_factor=1),
        [("internal-replication", "cluster")],
    ),
    "transactions of one in sync": (
        lambda: seen(topic(), transaction_state_log_min_isr=1),
        [("internal-replication", "cluster")],
    ),
    "topics that make themselves": (
        lambda: seen(topic(), auto_create_topics_enable="true"),
        [("auto-create", "cluster")],
    ),
    "positions soon forgotten": (
        lambda: seen(topic(), offsets_retention_minutes=1_440),
        [("positions-below-downtime", "cluster")],
    ),
    "large messages": (
        lambda: seen(topic(max_message_bytes=104_857_601), socket_request_max_bytes=104_857_600),
        [("message-size", "topic clicks")],
    ),
    "soon deleted": (
        lambda: seen(found := topic(retention_ms=3_600_000, records=60), groups=(group("g", at_end(found), 1),)),
        [("retention-below-downtime", "topic clicks")],
    ),
    "deletions soon forgotten": (
        lambda: seen(topic(cleanup_policy="compact", delete_retention_ms=86_400_000)),
        [("tombstones-below-downtime", "topic clicks")],
    ),
    "a group that is away": (
        lambda: seen(CLICKS, groups=(group("billing", {"clicks": {0: 40}}),)),
        [("group-without-members", "group billing")],
    ),
    "a group that stands still": (
        lambda: seen(CLICKS, groups=(still_at({"clicks": {0: 40}}, clicks={0: HOUR}),)),
        [("group-stalled", "group billing")],
    ),
    "a group that was overtaken": (
        lambda: seen(
            with_partitions(topic(), ObservedPartition(1, (1, 2, 3), (1, 2, 3), 50, 50)),
            groups=(group("billing", {"clicks": {0: 40}}),),
        ),
        [("position-lost", "group billing")],
    ),
    "a group that is too large": (
        lambda: seen(CLICKS, groups=(group("billing", at_end(CLICKS), 7, {"clicks": 6}),)),
        [("idle-members", "group billing")],
    ),
    "nobody reads": (lambda: seen(CLICKS), [("unread-topic", "topic clicks")]),
}


@pytest.mark.parametrize("case", PROVOKED)
def test_what_is_wrong_is_named_and_nothing_else(case: str) -> None:
    cluster, expected = PROVOKED[case]
    assert named(cluster()) == expected


def test_every_code_is_provoked() -> None:
    assert {code for _, expected in PROVOKED.values() for code, _ in expected} == set(CODES)
    assert list(CODES) == sorted(set(CODES))


@pytest.mark.parametrize("case", PROVOKED)
def test_a_text_has_numbers_two_sentences_and_a_fix(case: str) -> None:
    for hazard in hazards(PROVOKED[case][0]()):
        assert any(c.isdigit() for c in hazard.what) or hazard.code in ("auto-create", "unclean-election"), hazard.what
        assert hazard.why.count(". ") <= 1, hazard.why
        assert hazard.why.endswith(".")
        assert not hazard.fix.endswith(".")


def test_the_text() -> None:
    (hazard,) = hazards(seen(topic(min_insync_replicas=1)))
    assert str(hazard) == (
        "! danger[min-in-sync-low] topic clicks: it has 3 copies and min.insync.replicas=1\n"
        "    why: A producer with acks=all is told that a record is safe when its leader alone has it. If that broker "
        "is lost before the others copy it, so is the record.\n"
        "    fix: set min.insync.replicas=2 on the topic"
    )


# None where nothing is wrong -----------------------------------------------------------------------------------------


class Click(lf.Event):
    user_id: str
    at: datetime


class Item(lf.Event):
    item_id: str
    name: str


def declared() -> Catalog:
    clicks = lf.Topic("clicks", Click, key=Click.user_id, time=Click.at)
    items = lf.Topic("items", Item, key=Item.item_id, compacted=True)

    class Activity(lf.Features, of=clicks, by=Click.user_id, to=[lf.Online(), lf.Changelog()]):
        clicks_1h = lf.count("1h")

    class Items(lf.Table, of=items, by=Item.item_id):
        name = Item.name

    catalog, problems = Catalog.of([clicks, items, Activity, Items])
    assert problems == []
    return catalog


def applied(catalog: Catalog, profile: Profile) -> ObservedCluster:
    """A local cluster of three with all that a plan makes, and records in every topic."""
    ports = Ports(brokers=(1, 2, 3), controllers=(4, 5, 6), registry=7, redis=8)
    settings = local_brokers.settings(Endpoints(cluster_id="c", ports=ports), 1)
    subjects = {f"{profile.topic_name(name)}-value": ObservedSubject(None, registered=False) for name in catalog.topics}
    steps = plan(catalog, profile, clusters.seen(3, {}, subjects)).steps
    topics = [
        replace(clusters.seen_topic(s.name, s.partitions, s.replication, dict(s.configs), records=600), own=frozenset())
        for s in steps
        if isinstance(s, CreateTopic)
    ]
    assert len(topics) >= 8
    cluster = seen(*topics)
    return replace(cluster, brokers=tuple(replace(b, configs=settings) for b in cluster.brokers))


@pytest.mark.parametrize("namespace", ["", "shop"])
def test_a_local_cluster_with_leftfolds_own_topics_has_none(namespace: str) -> None:
    profile = Profile(name="local", namespace=namespace)
    catalog = declared()
    cluster = applied(catalog, profile)
    assert named(cluster, profile=profile, catalog=catalog) == []
    assert named(cluster) == []  # also for whoever does not know what is declared


def test_a_laptop_with_one_broker_that_says_so_has_none() -> None:
    profile = Profile(name="local", replication=1)
    assert named(small(1, min_insync_replicas=1), profile=profile) == []


def test_nothing_is_said_of_settings_that_brokers_do_not_tell() -> None:
    assert named(seen(clusters.seen_topic("clicks"))) == []


@pytest.mark.parametrize(
    "cluster",
    [
        small(1, min_insync_replicas=1, unclean_leader_election_enable="true"),
        small(2, min_insync_replicas=2),
    ],
)
def test_few_brokers_are_said_once(cluster: ObservedCluster) -> None:
    assert named(cluster) == [("few-brokers", "cluster")]


def test_a_broker_that_is_down_still_counts() -> None:
    cluster = seen(topic("a", replicas=1, min_insync_replicas=1), topic("b", partitions=3, in_sync=2))
    cluster = replace(cluster, brokers=cluster.brokers[:2])
    codes = named(cluster)
    assert ("replication-low", "topic a") in codes
    assert "few-brokers" not in {code for code, _ in codes}


def test_defaults_of_the_brokers_are_said_once_for_all_topics() -> None:
    bad: dict[str, Any] = {"min_insync_replicas": 1, "unclean_leader_election_enable": "true"}
    bad |= {"retention_ms": 3_600_000, "records": 60}
    topics = [replace(topic(f"t{n}", **bad), own=frozenset()) for n in range(5)]
    readers = group("g", {name: dict.fromkeys(range(6), 10) for name in ("t0", "t1", "t2", "t3", "t4")}, 1)
    found = hazards(seen(*topics, groups=(readers,)))
    codes = ["min-in-sync-low", "unclean-election", "retention-below-downtime"]
    assert [(h.code, h.subject) for h in found] == [(code, "cluster") for code in codes]
    assert found[0].what == "5 topics take min.insync.replicas=1 from the brokers (t0, t1, t2 and 2 more)"
    kept = "5 topics take retention.ms=3600000 from the brokers (t0, t1, t2 and 2 more), 1h"
    assert found[2].what == f"{kept}; an outage of 3d is to be survived"


def test_a_broker_that_is_down_is_one_hazard() -> None:
    topics = [
        with_partitions(topic(name), *(ObservedPartition(1, (1, 2, 3), (1, 2), 0, 0) for _ in range(4)))
        for name in ("a", "b")
    ]
    cluster = seen(*topics)
    (hazard,) = hazards(replace(cluster, brokers=cluster.brokers[:2]))
    assert hazard.subject == "broker 3"
    assert "was down, and has a copy of 8 partitions of 2 topics (a, b)" in hazard.what
    assert "min.insync" not in hazard.what


def test_partitions_below_min_in_sync_are_counted() -> None:
    short = with_partitions(topic(), ObservedPartition(1, (1, 2, 3), (1,), 0, 0))
    found = hazards(seen(short))
    assert [h.subject for h in found] == ["broker 2", "broker 3"]
    assert all("1 of them are below min.insync.replicas" in h.what for h in found)


def test_racks_matter_only_where_there_are_several_and_all_are_known() -> None:
    together = with_partitions(topic(), ObservedPartition(1, (1, 2, 3), (1, 2, 3), 0, 0))
    assert named(with_racks(seen(together), "a", "a", "a")) == []
    assert named(with_racks(seen(together), "a", "a", "b")) == []
    assert named(with_racks(seen(together, brokers=4), "a", "a", None, "b")) == []


def test_few_leaders_are_not_judged() -> None:
    assert named(seen(replace(topic(), spread=ONE_LEADER))) == []


def test_leaders_that_moved_are_elected_back_and_others_reassigned() -> None:
    placed = replace(topic(), spread=(*ONE_LEADER, *OTHERS_LEAD))
    moved = replace(
        placed,
        spread=tuple(replace(p, replicas=(2, 3, 1)[n % 3 :] + (2, 3, 1)[: n % 3]) for n, p in enumerate(placed.spread)),
    )
    assert "kafka-reassign-partitions" in hazards(seen(placed))[0].fix
    assert "kafka-leader-election" in hazards(seen(moved))[0].fix


def test_a_topic_may_be_kept_for_less_than_a_shorter_outage() -> None:
    found = topic(retention_ms=3_600_000, records=60)
    cluster = seen(found, groups=(group("g", at_end(found), 1),))
    assert named(cluster, downtime=DAY // 24) == []
    assert named(seen(topic(retention_ms=-1, records=0))) == []
    assert named(seen(topic(retention_ms=3_600_000))) == []  # it holds nothing


@pytest.mark.parametrize("policy", ["compact", "compact,delete", "delete,compact"])
def test_deletions_matter_in_every_compacted_topic(policy: str) -> None:
    short: dict[str, Any] = {"cleanup_policy": policy, "delete_retention_ms": 86_400_000, "retention_ms": 3_600_000}
    assert named(seen(topic(records=60, **short))) == [("tombstones-below-downtime", "topic clicks")]
    assert named(seen(topic(records=60, **short | {"delete_retention_ms": 3 * 86_400_000}))) == []


def test_a_tools_own_topics_are_kept_as_it_likes() -> None:
    schemas = topic("_schemas", cleanup_policy="compact", delete_retention_ms=86_400_000, records=60)
    assert named(seen(schemas, topic("_metrics", retention_ms=3_600_000, records=60))) == []


# Readers -------------------------------------------------------------------------------------------------------------


def test_a_group_that_is_running_or_caught_up_is_not_away() -> None:
    assert named(seen(CLICKS, groups=(group("g", {"clicks": {0: 40}}, 1, {"clicks": 1}),))) == []
    assert named(seen(CLICKS, groups=(group("g", at_end(CLICKS)),))) == []


def test_a_transactions_marker_is_not_a_record() -> None:
    before = {"clicks": {n: p.end - 1 for n, p in enumerate(CLICKS.spread)}}
    assert named(seen(CLICKS, groups=(group("g", before),))) == []
    emptied = replace(CLICKS, spread=tuple(replace(p, start=p.end) for p in CLICKS.spread))
    assert named(seen(emptied, groups=(group("g", before),))) == []


def test_the_text_of_a_group_that_stands_still() -> None:
    other = topic("views", records=60)
    positions = {"clicks": {0: 40, 1: 90, 2: 100}, "views": {3: 8}}
    stuck = still_at(positions, clicks={0: HOUR, 1: 3 * HOUR}, views={3: 5 * MINUTE})
    (hazard,) = hazards(seen(CLICKS, other, groups=(stuck,)))
    assert hazard.level == "warning"
    assert hazard.what == (
        "it has 2 members, is 72 offsets behind in 3 partitions of clicks, views, and committed nothing there in 10 s; "
        "the first record that waits was logged 3 h ago"
    )
    assert hazard.fix.startswith("look again in a minute (kafka-consumer-groups --describe --group billing)")


def test_who_commits_once_a_minute_does_not_stand_still() -> None:
    """Sink connectors do. What a reader of theirs has not committed is never much older than that."""
    assert named(seen(CLICKS, groups=(still_at({"clicks": {0: 40}}, clicks={0: 2 * MINUTE}),))) == []
    late = still_at({"clicks": {0: 40, 1: 40}}, clicks={0: 2 * MINUTE, 1: 2 * MINUTE + 1})
    (hazard,) = hazards(seen(CLICKS, groups=(late,)))
    assert "60 offsets behind in 1 partition of clicks" in hazard.what


def test_who_moved_does_not_stand_still() -> None:
    assert named(seen(CLICKS, groups=(still_at({"clicks": {0: 40}}),))) == []


def test_what_is_behind_is_counted_from_what_is_left() -> None:
    cut = replace(CLICKS, spread=(replace(CLICKS.spread[0], start=90), *CLICKS.spread[1:]))
    found = hazards(seen(cut, groups=(group("g", {"clicks": {0: 40}}),)))
    assert [h.code for h in found] == ["group-without-members", "position-lost"]
    assert "10 offsets behind in clicks" in found[0].what
    assert "50 offsets before the first that is left in clicks" in found[1].what


def test_positions_in_partitions_and_topics_that_are_gone_are_ignored() -> None:
    assert named(seen(CLICKS, groups=(group("g", at_end(CLICKS) | {"gone": {0: 5}}),))) == []
    assert named(seen(CLICKS, groups=(group("g", {"clicks": {0: 100, 17: 3}}),))) == []


def test_members_are_idle_only_beyond_all_partitions_of_their_topics() -> None:
    other = topic("views", records=60)
    both = group("g", at_end(CLICKS) | at_end(other), 12, {"clicks": 6, "views": 6})
    assert named(seen(CLICKS, other, groups=(both,))) == []
    settling = replace(group("g", at_end(CLICKS), 9), state="PREPARING_REBALANCING")
    assert named(seen(CLICKS, groups=(settling,))) == []


def test_a_topic_is_read_by_who_owns_partitions_without_a_position() -> None:
    assert named(seen(CLICKS, groups=(group("new", {}, 1, {"clicks": 1}),))) == []


def test_a_topic_that_is_empty_or_a_table_is_not_unread() -> None:
    assert named(seen(topic(), topic("table", records=60, cleanup_policy="compact"))) == []


def test_a_topic_beside_which_leftfold_keeps_rejects_is_read() -> None:
    beside = topic("shop.clicks.rejects", partitions=1, cleanup_policy="compact,delete")
    assert named(seen(topic("shop.clicks", records=60), beside)) == []
    assert named(seen(topic("clicks", records=60), beside)) == []  # somebody else's, so it has no namespace
    assert named(seen(topic("other", records=60), beside)) == [("unread-topic", "topic other")]


# Size ----------------------------------------------------------------------------------------------------------------


def recorded() -> ObservedCluster:
    """1,000 topics of 100 partitions on 90 brokers, with all settings and a group for each topic."""
    settings = GOOD | {f"some.setting.{n}": "value" for n in range(30)} | {"message.timestamp.type": "CreateTime"}
    topics = {}
    for number in range(1_000):
        spread = []
        for p in range(100):
            first = (number * 7 + p) % 90
            replicas = (first + 1, (first + 30) % 90 + 1, (first + 60) % 90 + 1)
            spread.append(ObservedPartition(replicas[0], replicas, replicas, 5_000, 9_000, 1_000_000))
        name = f"topic-{number}"
        topics[name] = ObservedTopic(name, f"id-{number}", tuple(spread), dict(settings), frozenset(GOOD))
    groups = {f"group-{n}": group(f"group-{n}", {f"topic-{n}": dict.fromkeys(range(100), 9_000)}) for n in range(1_000)}
    broker = {f"some.setting.{n}": "value" for n in range(300)}
    brokers = tuple(ObservedBroker(n + 1, "abc"[n // 30], dict(broker)) for n in range(90))
    return ObservedCluster("c", 1_790_000_000_000_000, brokers, topics, groups)


@pytest.mark.parametrize(
    "case", ["a full disk", "one rack", "a group that is away", "a group that stands still", "no leader"]
)
def test_an_observation_is_the_same_after_it_was_kept(case: str) -> None:
    cluster = PROVOKED[case][0]()
    assert load(dump(cluster)) == cluster


def test_an_observation_that_was_kept_before_groups_were_watched_can_be_read() -> None:
    cluster = PROVOKED["a group that is away"][0]()
    kept = json.loads(dump(cluster))
    for one in kept["groups"].values():
        del one["watched_s"], one["still"]
    assert load(json.dumps(kept).encode()) == cluster


def test_a_thousand_topics_in_ten_seconds_and_a_gibibyte(tmp_path: Path) -> None:
    """In a process of its own, so that its memory and its work alone are measured."""
    cluster = recorded()
    one = cluster.topics["topic-7"]
    wrong = replace(one, configs=one.configs | {"min.insync.replicas": "1"})
    kept = tmp_path / "observed.json"
    kept.write_bytes(dump(replace(cluster, topics=cluster.topics | {"topic-7": wrong})))
    script = f"""
import json, resource, time
from datetime import datetime
from pathlib import Path
import leftfold as lf
from leftfold.kafka.observed import load
from leftfold.plan.diff import plan
from leftfold.hazards.rules import hazards
from leftfold.hazards.hazard import Facts
from leftfold.observe.observation import Observed
from leftfold.settings import Profile
from leftfold.declare.catalog import Catalog

class Click(lf.Event):
    user: str
    at: datetime

cluster = load(Path({str(kept)!r}).read_bytes())
observed, profile = Observed(cluster, {{}}), Profile(name="p")
found = [(h.code, h.subject) for h in hazards(Facts(observed, Catalog({{}}, {{}}, {{}}), profile))]
options = dict(key=Click.user, time=Click.at, partitions=100, format="json", log_time="producer")
topics = [lf.Topic(f"topic-{{n}}", Click, **options) for n in range(1_000)]
catalog, problems = Catalog.of(topics)
made = plan(catalog, profile, observed)
changes = [str(step) for step in made.steps if step.sign == "~"]
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
told = [found, changes, [p.code for p in (*problems, *made.problems)], len(made.steps), len(made.hazards)]
print(json.dumps([*told, time.process_time(), peak]))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=True)
    found, changes, problems, steps, hazards, seconds, peak = json.loads(done.stdout)
    print(f"1,000 topics x 100 partitions: {seconds:.1f} s, {peak / 2**20:.0f} MiB, {kept.stat().st_size:,} bytes kept")
    assert found == [["min-in-sync-low", "topic topic-7"]]
    assert (changes, problems) == (["~ topic   topic-7   min.insync.replicas: 1 → 2"], [])
    assert steps == 1 + 1 + 3 * 1_000  # the change, receipts, and what Leftfold keeps beside each topic
    assert hazards >= 1_000  # of the producers' clock, for each topic
    assert seconds < 10
    assert peak < 2**30
