"""No false alarm on the example projects, on a cluster that is as their plan makes it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import leftfold as lf
from leftfold.declare.catalog import Catalog
from leftfold.declare.schema import avro_schema
from leftfold.hazards import schemas, topics, views
from leftfold.hazards.hazard import Facts
from leftfold.kafka.registry import subject_of
from leftfold.observe.observation import Observed, ObservedSubject, has_schema
from leftfold.plan.diff import plan
from leftfold.plan.steps import CreateTopic
from tests import clusters
from tests.unit.hazards.judging import LOCAL, built, codes

ROOT = Path(__file__).parents[3]
PROJECTS = [
    ROOT / "src" / "leftfold" / "template" / "clickstream",
    *sorted(toml.parent for toml in (ROOT / "examples").glob("*/leftfold.toml")),
]
RULES = (*topics.RULES, *views.RULES, *schemas.RULES)


def planned(catalog: Catalog) -> Observed:
    """What there is before and after: nothing, and all that the plan makes."""
    subjects = {
        subject_of(topic.name): ObservedSubject(None, registered=False)
        for topic in catalog.topics.values()
        if has_schema(topic)
    }
    empty = clusters.seen(3, {}, subjects)
    made = plan(catalog, LOCAL, empty)
    assert made.problems == ()
    steps = [step for step in made.steps if isinstance(step, CreateTopic)]
    found = [clusters.seen_topic(s.name, s.partitions, s.replication, dict(s.configs), records=6_000) for s in steps]
    registered = {
        subject_of(topic.name): ObservedSubject(topic.compatibility, versions=(avro_schema(topic.event),))
        for topic in catalog.topics.values()
        if has_schema(topic)
    }
    assert plan(catalog, LOCAL, replace(empty, cluster=clusters.seen_cluster(*found), subjects=registered)).steps == ()
    builds = tuple(built(view.declared) for view in catalog.views.values())
    return replace(empty, cluster=clusters.seen_cluster(*found), subjects=registered, builds=builds)


@pytest.mark.parametrize("project", PROJECTS, ids=lambda project: project.name)
def test_an_example_has_no_hazard(project: Path) -> None:
    catalog = lf.open(project).catalog
    after = planned(catalog)
    before = replace(after, cluster=clusters.seen_cluster(), builds=())
    for observed in (before, after):
        assert codes(RULES, Facts(observed, catalog, LOCAL)) == []
