"""A plan of consumers on real brokers: what it observes of members, dead letters, pauses and groups of others."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined] # its stubs forget to re-export these
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
)

import leftfold
from leftfold.cli.main import cli
from leftfold.kafka.consumer_log import PAUSED, ConsumerLog
from leftfold.observe import consumers as observing
from leftfold.settings import group_id
from tests.engine import consumers, projects
from tests.engine.conftest import Cluster

pytestmark = pytest.mark.timeout(300)
OF_CONSUMERS = ("consumer-paused-long", "consumers-beyond-partitions", "dead-letters-open", "group-not-declared")
DAY = 86_400_000_000
STREAMS = (
    consumers.ORDERS.replace("partitions=6", "partitions=1")
    + """

more = lf.Topic("more", Order, key=Order.customer, time=Order.at, partitions=1)


@lf.consumer((orders, more), start="beginning")
def picky(order: Order) -> None:
    if order.number % 10 == 0 and order.number < 30:
        raise lf.Unprocessable("a round number")
"""
)


@pytest.fixture(scope="module")
def app(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> leftfold.App:
    root = tmp_path_factory.mktemp("planned")
    made = projects.make(root / "shop", cluster.endpoints, f"p{uuid.uuid4().hex[:8]}", STREAMS)
    projects.apply(made)
    consumers.send(made, range(400))
    (ended,) = made.consume(until_caught_up=True)
    assert (ended.handled, ended.dead, ended.error) == (397, 3, None)
    return made


def told(app: leftfold.App, *, days: int = 0) -> dict[str, str]:
    """The hazards of consumers by their codes, as they would be so many days later."""
    seen = app.observe(sample=True)
    later = replace(seen, cluster=replace(seen.cluster, seen_at=seen.cluster.seen_at + days * DAY))
    return {hazard.code: hazard.what for hazard in app.plan(later).hazards if hazard.code in OF_CONSUMERS}


@contextmanager
def members(app: leftfold.App, number: int) -> Iterator[None]:
    crews = [app.crew() for _ in range(number)]
    threads = [threading.Thread(target=crew.run) for crew in crews]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for crew in crews:
            crew.stop()
        for thread in threads:
            thread.join(60)


def test_dead_letters_and_a_pause_as_they_grow_old(app: leftfold.App) -> None:
    name = app.profile.topic_name("leftfold.consumers")
    assert told(app) == {}
    assert told(app, days=8) == {
        "dead-letters-open": "has 3 dead letters of more than 7d, the oldest 8 d old",
    }
    app.dead("picky").drop(app.dead("picky").letters()[:1])
    since = datetime.now(UTC) - timedelta(days=3)
    ConsumerLog(app.kafka, name).note("picky", {PAUSED: {"since": since.isoformat()}})
    assert told(app, days=8) == {
        "dead-letters-open": "has 2 dead letters of more than 7d, the oldest 8 d old",
        "consumer-paused-long": "has been paused for 11 d",
    }
    app.resume("picky")
    app.pause("picky")
    assert told(app) == {}, "the newest note counts"
    app.resume("picky")


def test_only_the_first_dead_letters_are_read(app: leftfold.App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observing, "MOST_LETTERS", 1)
    seen = app.observe(sample=True).consumers["picky"]
    assert (len(seen.dead), seen.is_whole) == (1, False)


def test_a_member_too_many(app: leftfold.App) -> None:
    """Two topics of one partition have work for one member: it gets the same partition of both."""
    with members(app, 2):
        projects.await_true(lambda: "consumers-beyond-partitions" in told(app), timeout=240, what="an idle member")
        what = told(app)["consumers-beyond-partitions"]
    orders, more = (app.profile.topic_name(name) for name in ("orders", "more"))
    assert what == f"has 2 members for 1 partition of the largest of {orders}, {more}; 1 member is idle"


def test_a_group_of_somebody_else(app: leftfold.App, monkeypatch: pytest.MonkeyPatch) -> None:
    topic, group = app.profile.topic_name("orders"), f"billing-{uuid.uuid4().hex[:8]}"
    client = Consumer({**app.kafka.for_librdkafka(), "group.id": group})
    client.commit(offsets=[TopicPartition(topic, 0, 5)], asynchronous=False)
    client.close()
    assert told(app) == {"group-not-declared": f"1 group that this project does not declare reads it: {group}"}
    monkeypatch.chdir(app.root)
    load = ("--rate", "orders=500", "--rate", "more=5", "--handler", "picky=5ms")
    done = CliRunner().invoke(cli, ["plan", "--json", *load])
    read = json.loads(done.stdout)
    assert ("note", "group-not-declared") in {(h["level"], h["code"]) for h in read["hazards"]}
    (consumer,) = read["consumers"]
    assert (consumer["delivery"], consumer["members"]) == ("at_least_once", 1)
    assert [c["name"] for c in read["sizing"]["consumers"]] == ["picky"]


def test_the_session_of_a_group(app: leftfold.App) -> None:
    """The local brokers have 6 s. A group may have its own, which is then in force."""
    assert app.observe(sample=True).consumers["picky"].session_ms == 6_000
    group = group_id(app.profile.namespace, "picky")
    longer = ConfigEntry("consumer.session.timeout.ms", "45000", incremental_operation=AlterConfigOpType.SET)
    wanted = ConfigResource(ConfigResource.Type.GROUP, group, incremental_configs=[longer])
    admin = app.log[0]
    admin.each(admin.client.incremental_alter_configs([wanted]))
    projects.await_true(
        lambda: app.observe(sample=True).consumers["picky"].session_ms == 45_000, timeout=240, what="the setting"
    )
    assert "failover-slow" in {hazard.code for hazard in app.plan(app.observe(sample=True)).hazards}
