"""The topics that Leftfold keeps beside declared ones: which there are, how they are set up, what is refused."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest
from pydantic import Field

import leftfold as lf
from leftfold.declare.catalog import Catalog
from leftfold.declare.companions import companions_of
from leftfold.declare.sinks import Changelog, Online
from leftfold.kafka.observed import ObservedTopic
from leftfold.observe.observation import ObservedSubject
from leftfold.plan.diff import plan
from leftfold.plan.steps import ConfigureTopic, CreateTopic, Plan
from leftfold.plan.topics import companions
from leftfold.settings import Profile
from tests import clusters

WEEK_MS = str(7 * 86_400_000)
NEW = ObservedSubject(None, registered=False, accepted=True)
LOCAL = Profile(name="local")
CHECKED = Profile(name="prod", topics="checked")
ROOM = str(1_048_588 + 65_536)


class Click(lf.Event):
    user_id: str
    at: datetime


def topic(name: str = "clicks", **options: Any) -> lf.Topic[Click]:
    return lf.Topic(name, Click, key=Click.user_id, time=Click.at, **options)


def catalog_of(*declared: Any) -> Catalog:
    catalog, problems = Catalog.of(declared)
    assert problems == []
    return catalog


def planned(catalog: Catalog, profile: Profile = LOCAL, *there: ObservedTopic, brokers: int = 3) -> Plan:
    subjects = {f"{profile.topic_name(name)}-value": NEW for name in catalog.topics}
    return plan(catalog, profile, clusters.seen(brokers, {t.name: t for t in there}, subjects))


def created(made: Plan) -> dict[str, CreateTopic]:
    return {s.name: s for s in made.steps if isinstance(s, CreateTopic)}


def test_what_stands_beside_a_topic() -> None:
    made = planned(catalog_of(topic()))
    assert [str(s) for s in made.steps if isinstance(s, CreateTopic)] == [
        "+ topic   clicks   6 partitions, 3 replicas, kept 7d, broker time",
        "+ topic   leftfold.receipts   4 partitions, 3 replicas, compacted, broker time",
        "+ topic   clicks.late   1 partition, 3 replicas, kept 7d, broker time",
        "+ topic   clicks.rejects   1 partition, 3 replicas, kept 7d, broker time",
        "+ topic   clicks.redrive   1 partition, 3 replicas, kept for ever, broker time",
    ]


def test_dead_letters_are_kept_as_long_as_any_topic_of_their_consumer() -> None:
    @lf.consumer((topic(), topic("slow", retention="30d")), start="now")
    def notify(click: Click) -> None: ...

    steps = created(planned(catalog_of(notify)))
    for name in ("notify.dead", "notify.again"):
        assert dict(steps[name].configs)["retention.ms"] == str(30 * 86_400_000)


def test_of_a_compacted_topic_nothing_is_late_or_re_driven() -> None:
    names = list(created(planned(catalog_of(topic(compacted=True)))))
    assert names == ["clicks", "leftfold.receipts", "clicks.rejects"]


def test_settings() -> None:
    steps = created(planned(catalog_of(topic())))
    safe = {
        "message.timestamp.type": "LogAppendTime",
        "min.insync.replicas": "2",
        "unclean.leader.election.enable": "false",
    }
    by_position = {
        **{"cleanup.policy": "compact,delete", "retention.ms": WEEK_MS},
        **{"delete.retention.ms": WEEK_MS, "max.message.bytes": ROOM},
    }
    for name in ("clicks.late", "clicks.rejects"):
        assert dict(steps[name].configs) == {**safe, **by_position}
    assert dict(steps["clicks.redrive"].configs) == {
        **safe,
        **{"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1", "max.message.bytes": ROOM},
    }
    assert dict(steps["leftfold.receipts"].configs) == {
        **safe,
        **{"cleanup.policy": "compact", "delete.retention.ms": "3600000", "segment.ms": "3600000"},
    }


@pytest.mark.parametrize(("retention", "kept"), [("1d", 7), ("7d", 7), ("30d", 30)])
def test_rejects_are_kept_as_long_as_the_topic_and_a_week(retention: str, kept: int) -> None:
    step = created(planned(catalog_of(topic(retention=retention))))["clicks.rejects"]
    assert step.kept == f"kept {kept}d"
    assert dict(step.configs)["retention.ms"] == str(kept * 86_400_000)


def test_there_is_room_for_the_largest_record_of_the_topic() -> None:
    """Else one large reject would stop the intake for good."""
    found = clusters.seen_topic(
        "clicks", 6, 3, {"message.timestamp.type": "LogAppendTime", "max.message.bytes": "5000000"}
    )
    step = created(planned(catalog_of(topic(external=True)), LOCAL, found))["clicks.rejects"]
    assert dict(step.configs)["max.message.bytes"] == str(5_000_000 + 65_536)


def test_names_have_the_namespace_also_beside_a_topic_of_others() -> None:
    profile = Profile(name="p", namespace="prod")
    found = clusters.seen_topic("clicks", 6, 3, {"message.timestamp.type": "LogAppendTime"})
    made = planned(catalog_of(topic(external=True)), profile, found)
    assert made.problems == ()
    assert list(created(made)) == [
        "prod.leftfold.receipts",
        "prod.clicks.late",
        "prod.clicks.rejects",
        "prod.clicks.redrive",
    ]


@pytest.mark.parametrize(("partitions", "expected"), [(3, 3), (48, 12)])
def test_a_changelog_only_where_it_is_declared(partitions: int, expected: int) -> None:
    clicks = topic(partitions=partitions)

    class Activity(lf.Features, of=clicks, by=Click.user_id):
        clicks_1h = lf.count("1h")

    catalog = catalog_of(clicks, Activity)
    assert "activity.changelog" not in created(planned(catalog))
    sinking = replace(catalog.views["activity"], sinks=(Online(), Changelog()))
    catalog = replace(catalog, views={"activity": sinking})
    step = created(planned(catalog))["activity.changelog"]
    assert (step.partitions, step.kept) == (expected, "compacted")
    assert dict(step.configs)["delete.retention.ms"] == WEEK_MS


class Customer(lf.Event):
    customer_id: str
    email: lf.Personal[str] = Field(max_length=200)
    tier: int = 0
    at: datetime


def customer_logs(key: Any, field: Any) -> dict[str, str]:
    """The changelog of a view with this key and this field."""
    customers = lf.Topic("customers", Customer, key=Customer.customer_id, time=Customer.at)

    class Seen(lf.Features, of=customers, by=key, to=[lf.Online(), lf.Changelog()]):
        last = lf.last(field, "1h")

    return dict(created(planned(catalog_of(customers, Seen)))["seen.changelog"].configs)


@pytest.mark.parametrize(
    ("key", "field", "held"),
    [
        (Customer.customer_id, Customer.tier, None),
        (Customer.customer_id, Customer.email, WEEK_MS),
        (Customer.email, Customer.tier, WEEK_MS),
    ],
)
def test_a_changelog_that_shows_personal_data_is_compacted_in_time(key: Any, field: Any, held: str | None) -> None:
    assert customer_logs(key, field).get("max.compaction.lag.ms") == held


def test_what_a_function_makes_of_personal_data_may_be_all_of_it() -> None:
    customers = lf.Topic("customers", Customer, key=Customer.customer_id, time=Customer.at)

    class Plain(lf.Event):
        customer_id: str
        at: datetime

    @lf.stream(customers, event=Plain)
    def plain(rows: Any) -> Any:
        return rows

    class Streamed(lf.Features, of=plain, by=Plain.customer_id, to=[lf.Online(), lf.Changelog()]):
        seen_1h = lf.count("1h")

    @lf.view(customers, by="customer_id", to=[lf.Online(), lf.Changelog()])
    def free(rows: Any) -> Any:
        return rows

    steps = created(planned(catalog_of(customers, Streamed, free)))
    for name in ("streamed.changelog", "free.changelog"):
        assert dict(steps[name].configs)["max.compaction.lag.ms"] == WEEK_MS


def test_the_names_are_those_that_are_planned() -> None:
    catalog = catalog_of(topic("a"), topic("b", compacted=True))
    seen = clusters.seen(3, {}, {})
    assert [c.name for c in companions(catalog, LOCAL, seen)] == list(companions_of(catalog))


def test_replicas_follow_topic_and_profile() -> None:
    assert {s.replication for s in created(planned(catalog_of(topic(replication=1)), brokers=1)).values()} == {1}
    profile = Profile(name="p", replication=2)
    assert {s.replication for s in created(planned(catalog_of(topic()), profile)).values()} == {2}


def test_too_few_brokers_is_said_once() -> None:
    assert [p.code for p in planned(catalog_of(topic()), brokers=1).problems] == ["too-few-brokers"]
    there = clusters.seen_topic("clicks", 6, 3, {})
    assert [p.code for p in planned(catalog_of(topic()), LOCAL, there, brokers=1).problems] == ["too-few-brokers"]


def test_what_is_there_is_set_back_but_keeps_its_partitions() -> None:
    catalog = catalog_of(topic())
    ours = [clusters.seen_topic(c.name, 9, 3, c.configs) for c in companions(catalog, LOCAL, clusters.seen(3, {}, {}))]
    rejects = next(t for t in ours if t.name == "clicks.rejects")
    ours.remove(rejects)
    cleaned = replace(rejects, configs={**rejects.configs, "cleanup.policy": "delete"})
    made = planned(catalog, LOCAL, *ours, cleaned)
    assert [s for s in made.steps if isinstance(s, ConfigureTopic)] == [
        ConfigureTopic("clicks.rejects", (("cleanup.policy", "delete", "compact,delete"),))
    ]
    assert list(created(made)) == ["clicks"]


def test_of_one_copy_no_two_have_to_be_in_sync() -> None:
    """Else receipts and rejects could not be written, and every view would stop."""
    catalog = catalog_of(topic())
    wanted = companions(catalog, LOCAL, clusters.seen(3, {}, {}))
    ours = [clusters.seen_topic(c.name, 1, 1, {**c.configs, "min.insync.replicas": "1"}) for c in wanted]
    assert [s for s in planned(catalog, LOCAL, *ours).steps if isinstance(s, ConfigureTopic)] == []


# Names that are taken -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["clicks.rejects", "clicks_late", "leftfold.receipts"])
def test_a_declared_topic_may_not_stand_in_their_place(name: str) -> None:
    made = planned(catalog_of(topic(), topic(name)))
    assert [p.code for p in made.problems] == ["topic-name-taken"]
    assert made.problems[0].source is not None


def test_a_topic_of_others_is_not_in_the_namespace() -> None:
    profile = Profile(name="p", namespace="prod")
    found = clusters.seen_topic("clicks.late", 6, 3, {"message.timestamp.type": "LogAppendTime"})
    assert planned(catalog_of(topic(), topic("clicks.late", external=True)), profile, found).problems == ()


# Topics that somebody else creates ----------------------------------------------------------------------------------


def test_their_owner_is_told_how_they_are_to_be() -> None:
    there = clusters.seen_topic("clicks", 6, 3, {"message.timestamp.type": "LogAppendTime"})
    made = planned(catalog_of(topic()), CHECKED, there)
    assert created(made) == {}
    assert [(p.code, p.what) for p in made.problems] == [
        ("topic-missing", f"topic {name} does not exist")
        for name in ("leftfold.receipts", "clicks.late", "clicks.rejects", "clicks.redrive")
    ]
    assert "1 partition and" in made.problems[3].fix
    assert "cleanup.policy=delete" in made.problems[3].fix
    assert "retention.ms=-1" in made.problems[3].fix


def test_compaction_as_it_must_be() -> None:
    catalog = catalog_of(topic())
    configs = {"message.timestamp.type": "LogAppendTime"}
    ours = [
        clusters.seen_topic(c.name, 1, 3, c.configs) for c in companions(catalog, CHECKED, clusters.seen(3, {}, {}))
    ]
    there = clusters.seen_topic("clicks", 6, 3, configs)
    assert planned(catalog, CHECKED, there, *ours).problems == ()
    wrong = [replace(t, configs=configs) if t.name == "clicks.late" else t for t in ours]
    assert [p.code for p in planned(catalog, CHECKED, there, *wrong).problems] == ["companion-policy"]
