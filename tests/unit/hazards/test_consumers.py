"""Hazards of declared consumers: each provoked, with all that a person is told, and absent where it just is not."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

import leftfold as lf
from leftfold.hazards import cluster, topics
from leftfold.hazards.consumers import CODES, RULES
from leftfold.hazards.hazard import Facts
from leftfold.hazards.retention import DAY
from leftfold.hazards.rules import hazards
from leftfold.kafka.observed import ObservedGroup, ObservedTopic
from leftfold.observe.observation import ObservedConsumer
from leftfold.settings import Profile
from tests.clusters import seen_cluster, seen_topic
from tests.unit.hazards.judging import CHECKED, codes, facts, judged

HOUR = DAY // 24
NOW = seen_cluster().seen_at
PROD = Profile(name="prod", namespace="prod")


class Pay(lf.Event):
    card: str
    at: datetime


class Invoice(lf.Event):
    card: str
    at: datetime


def pays(**options: Any) -> Any:
    return lf.Topic("pays", Pay, key=Pay.card, time=Pay.at, **options)


def invoices() -> Any:
    return lf.Topic("invoices", Invoice, key=Invoice.card, time=Invoice.at)


def notify(*read: Any, **options: Any) -> Any:
    def handler(pay: Pay) -> None: ...

    return lf.consumer(read or (pays(),), start="now", name=options.pop("name", "notify"), **options)(handler)


def invoice(topic: Any, to: Any) -> Any:
    @lf.consumer(topic, start="now", delivery="exactly_once", to=to)
    def invoice(pay: Pay) -> Invoice | None: ...

    return invoice


def group(members: int, idle: int = 0, state: str = "STABLE", name: str = "leftfold.notify") -> ObservedGroup:
    return ObservedGroup(name, state, members, {"pays": members - idle}, {"pays": {0: 1}}, idle=idle)


def kept(name: str, days: int, **more: Any) -> ObservedTopic:
    return seen_topic(name, 1, configs={"retention.ms": str(days * DAY // 1_000)}, **more)


def noted(known: Facts, **seen: ObservedConsumer) -> Facts:
    return replace(known, observed=replace(known.observed, consumers=seen))


def test_codes_are_sorted_out() -> None:
    assert list(CODES) == sorted(set(CODES))


def test_a_sound_consumer() -> None:
    topic, to = pays(), invoices()
    both = (notify(topic), invoice(topic, to))
    assert codes(RULES, facts(*both)) == []
    known = facts(
        *both,
        topics=[seen_topic("pays"), kept("notify.dead", 14), seen_topic("notify.again")],
        groups=[group(6)],
        group_consumer_session_timeout_ms=15_000,
    )
    assert codes(RULES, noted(known, notify=ObservedConsumer(NOW - DAY, (NOW - 7 * DAY,)))) == []


# Members ------------------------------------------------------------------------------------------------------------


def test_more_members_than_partitions() -> None:
    known = facts(notify(), topics=[seen_topic("pays", 6)], groups=[group(8, idle=2)])
    assert judged(RULES, known) == [
        "· warning[consumers-beyond-partitions] consumer notify: has 8 members for 6 partitions of pays; 2 members "
        "are idle\n"
        "    why: A partition is read by one member of a group. Idle members make nothing faster; each only takes over "
        "when another one dies.\n"
        "    fix: run 6 processes at most; to handle more at once, declare a larger parallel=, or a new topic with "
        "more partitions"
    ]


@pytest.mark.parametrize(
    "found", [group(6), group(7, idle=1, state="RECONCILING"), group(9, name="leftfold.prod.notify")]
)
def test_as_many_members_as_partitions_or_a_group_that_is_not_settled(found: ObservedGroup) -> None:
    assert codes(RULES, facts(notify(), topics=[seen_topic("pays", 6)], groups=[found])) == []


def test_partitions_of_several_topics_do_not_add_up() -> None:
    """One member gets the same numbers of each, so the topic with the most decides."""
    more = lf.Topic("more", Pay, key=Pay.card, time=Pay.at, partitions=4)
    found = [seen_topic("pays", 6), seen_topic("more", 4)]
    consumer = notify(pays(), more)
    (told,) = judged(RULES, facts(consumer, topics=found, groups=[group(7, idle=1)]))
    assert "has 7 members for 6 partitions of the largest of pays, more; 1 member is idle" in told
    assert codes(RULES, facts(consumer, topics=found, groups=[group(6)])) == []


def test_idle_members_of_a_declared_consumer_are_told_once() -> None:
    known = facts(notify(), topics=[seen_topic("pays", 6)], groups=[group(20, idle=14)])
    assert "idle-members" not in codes(cluster.RULES, known)
    other = facts(notify(), topics=[seen_topic("pays", 6)], groups=[group(20, idle=14, name="billing")])
    assert "idle-members" in codes(cluster.RULES, other)


def test_a_session_that_lasts_long() -> None:
    known = facts(notify(), group_consumer_session_timeout_ms=45_000)
    (found,) = [hazard for rule in RULES for hazard in rule(known)]
    assert str(found) == (
        "· warning[failover-slow] cluster: a member that dies is noticed after 45s "
        "(group.consumer.session.timeout.ms): of notify\n"
        "    why: Nobody reads the partitions of a process that died until its session ends. A process that is stopped "
        "leaves its group at once.\n"
        "    fix: set group.consumer.min.session.timeout.ms=15000 and group.consumer.session.timeout.ms=15000 on every "
        "broker; the first allows the second"
    )
    assert codes(RULES, facts(pays(), group_consumer_session_timeout_ms=45_000)) == []  # nobody has a session


@pytest.mark.parametrize(
    ("own", "usual", "slow"), [(10_000, 45_000, False), (45_000, 6_000, True), (None, 45_000, True)]
)
def test_the_session_of_a_group_counts_before_that_of_the_brokers(own: int | None, usual: int, slow: bool) -> None:
    known = noted(facts(notify(), group_consumer_session_timeout_ms=usual), notify=ObservedConsumer(session_ms=own))
    assert codes(RULES, known) == (["failover-slow"] if slow else [])


# Deliveries ---------------------------------------------------------------------------------------------------------


def test_at_most_once_beside_exactly_once() -> None:
    topic, to = pays(), invoices()
    known = facts(invoice(topic, to), notify(topic, delivery="at_most_once", in_flight=500))
    assert judged(RULES, known) == [
        "– note[at-most-once-beside-exactly-once] consumer notify: reads pays at most once, and invoice reads it "
        "exactly once\n"
        "    why: A crash loses up to 500 records of each process here, and of none there. What the two make of the "
        "topic then differs, and nothing tells by how much.\n"
        '    fix: declare delivery="at_least_once" for notify with record.id as idempotency key, unless its effects '
        "may be missing"
    ]


def test_at_most_once_beside_at_least_once_or_of_another_topic() -> None:
    topic = pays()
    assert codes(RULES, facts(notify(topic), notify(topic, name="draw", delivery="at_most_once"))) == []
    other = lf.Topic("other", Pay, key=Pay.card, time=Pay.at)
    assert codes(RULES, facts(invoice(topic, invoices()), notify(other, delivery="at_most_once"))) == []


# Dead letters and pauses --------------------------------------------------------------------------------------------


def test_dead_letters_that_wait_for_nobody() -> None:
    times = (NOW - 20 * DAY, NOW - 8 * DAY, NOW - HOUR)
    assert judged(RULES, noted(facts(notify()), notify=ObservedConsumer(dead=times))) == [
        "· warning[dead-letters-open] consumer notify: has 2 dead letters of more than 7d, the oldest 20 d old\n"
        "    why: What these records stand for has not happened. Their topic forgets them after its retention, and "
        "then nobody can handle them any more.\n"
        "    fix: leftfold dead list notify; then correct the handler and leftfold dead redrive notify --all, or "
        "leftfold dead drop notify POSITION"
    ]


def test_more_dead_letters_than_were_read() -> None:
    (told,) = judged(RULES, noted(facts(notify()), notify=ObservedConsumer(dead=(NOW - 8 * DAY,), is_whole=False)))
    assert "8 d old; only the first were looked at, and some may be removed since\n" in told


def test_dead_letters_that_go_before_their_record() -> None:
    found = [kept("pays", 30), kept("notify.dead", 14)]
    assert judged(RULES, facts(notify(), topics=found, profile=CHECKED)) == [
        "· warning[dead-below-retention] consumer notify: notify.dead keeps dead letters for 14d, and pays keeps "
        "records for 30d\n"
        "    why: A dead letter is forgotten while its record is still in the log: it can no longer be listed or "
        "re-driven, and only who knows its position finds it.\n"
        "    fix: ask the owner of notify.dead for retention.ms=2592000000 and delete.retention.ms as long"
    ]
    (told,) = judged(RULES, facts(notify(pays(external=True)), topics=found))
    assert told.endswith('fix: declare retention="30d" for pays, then leftfold apply: notify.dead is kept as long')
    (told,) = judged(RULES, facts(notify(pays(retention="30d")), topics=found))
    assert told.endswith("fix: leftfold apply sets it")


def test_a_topic_that_keeps_all() -> None:
    found = [seen_topic("pays", configs={"retention.ms": "-1"}), kept("notify.dead", 14)]
    (told,) = judged(RULES, facts(notify(), topics=found, profile=CHECKED))
    assert "notify.dead keeps dead letters for 14d, and pays keeps records for ever\n" in told
    assert "retention.ms=-1" in told


@pytest.mark.parametrize(
    "found",
    [
        [kept("pays", 14), kept("notify.dead", 14)],
        [kept("pays", 30), seen_topic("notify.dead", configs={"retention.ms": "-1"})],
        [kept("pays", 30)],
        [kept("notify.dead", 14)],  # how long the topic of another keeps records is not known
    ],
)
def test_dead_letters_that_are_kept_long_enough(found: list[ObservedTopic]) -> None:
    assert codes(RULES, facts(notify(), topics=found, profile=CHECKED)) == []


def test_a_long_pause() -> None:
    paused = ObservedConsumer(paused_at=NOW - DAY - HOUR)
    assert judged(RULES, noted(facts(notify()), notify=paused)) == [
        "· warning[consumer-paused-long] consumer notify: has been paused for 25 h\n"
        "    why: Its members run, and look well, and handle nothing. Records that retention deletes meanwhile are "
        "never handled.\n"
        "    fix: leftfold resume notify, or stop its processes and take the declaration out"
    ]


# Groups of others ---------------------------------------------------------------------------------------------------


def test_groups_of_others() -> None:
    groups = [group(1, name="billing"), group(1, name="audit"), group(1, name="leftfold.prod.notify")]
    found = [replace(one, owners={"prod.pays": 1}, positions={}) for one in groups]
    known = facts(notify(), topics=[seen_topic("prod.pays")], groups=found, profile=PROD)
    assert judged(RULES, known) == [
        "– note[group-not-declared] topic prod.pays: 2 groups that this project does not declare read it: audit, "
        "billing\n"
        "    why: They depend on its records and their schema, and nothing here tells what a change does to them.\n"
        "    fix: nothing, if they are known; ask them before the topic changes or goes"
    ]
    assert [hazard.level for hazard in hazards(known)][-1] == "note"


def test_groups_of_others_that_read_what_is_written_exactly_once() -> None:
    reader = ObservedGroup("billing", "EMPTY", 0, {}, {"invoices": {0: 7}})
    known = facts(invoice(pays(), invoices()), topics=[seen_topic("invoices")], groups=[reader])
    assert judged(RULES, known) == [
        "– note[group-not-declared] topic invoices: 1 group that this project does not declare reads it: billing\n"
        "    why: invoice writes it exactly once, which holds only for readers with isolation.level=read_committed; "
        "others also get what a crash has taken back. No broker tells how a group reads, and Java's clients take "
        "uncommitted records by default.\n"
        "    fix: nothing, if they are known; ask them before the topic changes or goes"
    ]


def test_groups_of_a_topic_that_is_not_ours() -> None:
    known = facts(notify(pays(external=True)), topics=[kept("pays", 7)], groups=[group(1, name="billing")])
    assert codes(RULES, known) == []


def test_a_consumer_is_a_reader() -> None:
    assert codes(topics.RULES, facts(notify())) == []
    assert codes(topics.RULES, facts(pays())) == ["topic-without-reader"]
