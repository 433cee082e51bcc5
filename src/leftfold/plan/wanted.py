"""The topics that `apply` would create on an empty cluster, for whoever creates them in its place."""

from __future__ import annotations

from leftfold.kafka.observed import ObservedBroker, ObservedCluster
from leftfold.kafka.registry import subject_of
from leftfold.plan.diff import plan
from leftfold.plan.observe import Observed, ObservedSubject, has_schema
from leftfold.plan.steps import CreateTopic
from leftfold.settings import Profile
from leftfold.spec.catalog import Catalog


def wanted_topics(catalog: Catalog, profile: Profile, *, brokers: int | None = None) -> tuple[CreateTopic, ...]:
    """Declared topics and Leftfold's own, by the same steps that `apply` does; external ones are their owner's.

    Also under topics = "checked": that says who creates them, not how they are to be. Without a number of `brokers`
    there are as many as any topic asks for.
    """
    managed = profile.model_copy(update={"topics": "managed"})
    made = plan(catalog, managed, _nothing_there(catalog, profile, brokers))
    for problem in made.problems:
        if problem.code != "topic-missing":  # an external one: whether it is there is not asked
            raise problem
    return tuple(step for step in made.steps if isinstance(step, CreateTopic))


def _nothing_there(catalog: Catalog, profile: Profile, brokers: int | None) -> Observed:
    """A new cluster. Its schemas are taken as registered: topics are all that is asked for."""
    subjects = {
        subject_of(profile.topic_name(name)): ObservedSubject(topic.compatibility)
        for name, topic in catalog.topics.items()
        if has_schema(topic)
    }
    number = brokers or max((topic.replication for topic in catalog.topics.values()), default=3)
    nodes = tuple(ObservedBroker(node, None, {}) for node in range(number))
    return Observed(ObservedCluster("", 0, nodes, {}), subjects)
