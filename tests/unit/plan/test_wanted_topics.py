"""What is wanted is what `apply` creates, whoever creates it."""

from __future__ import annotations

import pytest

from leftfold.errors import LeftfoldError
from leftfold.plan.diff import plan, wanted_topics
from leftfold.plan.steps import CreateTopic
from leftfold.settings import Profile
from tests import clusters
from tests.unit.plan.test_topics import NEW, catalog_of, topic

MANAGED, CHECKED = Profile(name="p", namespace="ns"), Profile(name="p", namespace="ns", topics="checked")


def test_the_same_topics_as_apply_creates() -> None:
    catalog = catalog_of(topic(), topic("items", compacted=True, partitions=2))
    subjects = {"ns.clicks-value": NEW, "ns.items-value": NEW}
    made = plan(catalog, MANAGED, clusters.seen(3, {}, subjects))
    created = tuple(step for step in made.steps if isinstance(step, CreateTopic))
    assert len(created) == 2 + 1 + 3 + 1  # declared; receipts; late, rejects, redrive of clicks; rejects of items
    assert wanted_topics(catalog, MANAGED, brokers=3) == created


def test_also_where_somebody_else_is_to_create_them() -> None:
    catalog = catalog_of(topic())
    assert wanted_topics(catalog, CHECKED, brokers=3) == wanted_topics(catalog, MANAGED, brokers=3)


def test_an_external_topic_is_its_owners_but_what_we_keep_of_it_is_ours() -> None:
    catalog = catalog_of(topic(external=True))
    names = [step.name for step in wanted_topics(catalog, MANAGED, brokers=3)]
    assert names == ["ns.leftfold.receipts", "ns.clicks.late", "ns.clicks.rejects", "ns.clicks.redrive"]


def test_brokers_are_counted_only_where_their_number_is_known() -> None:
    catalog = catalog_of(topic(replication=5))
    with pytest.raises(LeftfoldError) as caught:
        wanted_topics(catalog, MANAGED, brokers=3)
    assert caught.value.code == "too-few-brokers"
    assert wanted_topics(catalog, MANAGED)[0].replication == 5


def test_a_name_of_ours_is_refused() -> None:
    with pytest.raises(LeftfoldError) as caught:
        wanted_topics(catalog_of(topic(), topic("clicks.late")), MANAGED, brokers=3)
    assert caught.value.code == "topic-name-taken"
