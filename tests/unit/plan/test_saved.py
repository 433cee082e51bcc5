"""A plan in a file is applied as it was shown, once, or not at all."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest

import leftfold as lf
from leftfold.declare.catalog import Catalog
from leftfold.errors import LeftfoldError
from leftfold.observe.observation import Observed, ObservedSubject
from leftfold.plan import saved
from leftfold.plan.diff import plan
from leftfold.plan.steps import ConfigureTopic, CreateTopic, DeleteTopic, Plan, RegisterSchema, SetCompatibility
from leftfold.settings import Profile
from tests import clusters


class Click(lf.Event):
    user_id: str
    at: datetime


LOCAL = Profile(name="local")
CATALOG, _ = Catalog.of([lf.Topic("clicks", Click, key=Click.user_id, time=Click.at)])
NEW = {"clicks-value": ObservedSubject(None, registered=False, accepted=True)}
OLD = clusters.seen_topic("old", records=600)


def empty() -> Observed:
    return clusters.seen(3, {"old": OLD}, NEW)


def planned(observed: Observed) -> Plan:
    return plan(CATALOG, LOCAL, observed, delete=["old"] if "old" in observed.topics else [])


def after(observed: Observed, made: Plan, count: int) -> Observed:
    """The cluster after so many steps of a plan."""
    topics, subjects = dict(observed.topics), dict(observed.subjects)
    for step in made.steps[:count]:
        if isinstance(step, CreateTopic):
            topics[step.name] = clusters.seen_topic(step.name, step.partitions, step.replication, dict(step.configs))
        elif isinstance(step, DeleteTopic):
            del topics[step.name]
        elif isinstance(step, ConfigureTopic):
            new = {k: v for k, _, v in step.changes}
            topics[step.name] = replace(topics[step.name], configs={**topics[step.name].configs, **new})
        elif isinstance(step, SetCompatibility):
            subjects[step.subject] = replace(subjects[step.subject], compatibility=step.level)
        elif isinstance(step, RegisterSchema):
            subjects[step.subject] = replace(subjects[step.subject], registered=True, versions=("{}",))
    return clusters.seen(3, topics, subjects)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "plan.json"
    saved.save(path, planned(empty()), empty(), project="shop", profile="local")
    return path


def load(path: Path, observed: Observed, *, project: str = "shop", profile: str = "local") -> Plan:
    return saved.load(path, observed, project=project, profile=profile)


def test_it_comes_back_as_it_was(file: Path) -> None:
    made = planned(empty())
    assert load(file, empty()).steps == made.steps
    assert {type(step).__name__ for step in made.steps} == {
        *("CreateTopic", "SetCompatibility", "RegisterSchema", "DeleteTopic")
    }
    assert saved.topics_in(file) == [s.name for s in made.steps if isinstance(s, CreateTopic | DeleteTopic)]


def test_wherever_an_apply_died_the_rest_is_done_and_nothing_twice(file: Path) -> None:
    made = planned(empty())
    for count in range(len(made.steps) + 1):
        assert load(file, after(empty(), made, count)).steps == made.steps[count:]


@pytest.mark.parametrize(
    "changed",
    [
        clusters.seen(3, {"old": OLD, "clicks": clusters.seen_topic("clicks", 9)}, NEW),
        clusters.seen(3, {"old": replace(OLD, id="another")}, NEW),
        clusters.seen(3, {"old": OLD}, {"clicks-value": replace(NEW["clicks-value"], compatibility="NONE")}),
        clusters.seen(3, {"old": OLD}, {"clicks-value": replace(NEW["clicks-value"], accepted=False)}),
    ],
    ids=["a topic was made", "a topic was made again", "a rule changed", "the schema would be refused"],
)
def test_a_cluster_that_changed_is_not_touched(file: Path, changed: Observed) -> None:
    with pytest.raises(LeftfoldError) as caught:
        load(file, changed)
    assert caught.value.code == "plan-drifted"


def test_records_that_came_in_are_no_drift(file: Path) -> None:
    more = clusters.seen(3, {"old": clusters.seen_topic("old", records=9_000)}, NEW)
    assert len(load(file, more).steps) == len(planned(empty()).steps)


def test_another_project_profile_or_cluster_is_refused(file: Path) -> None:
    elsewhere = replace(empty(), cluster=replace(empty().cluster, id="d"))
    for observed, project, profile in (
        (empty(), "bank", "local"),
        (empty(), "shop", "prod"),
        (elsewhere, "shop", "local"),
    ):
        with pytest.raises(LeftfoldError) as caught:
            load(file, observed, project=project, profile=profile)
        assert caught.value.code == "plan-drifted"


@pytest.mark.parametrize("text", ["", "[]", "{}", json.dumps({"version": 2})])
def test_what_is_no_plan_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "plan.json"
    path.write_text(text)
    with pytest.raises(LeftfoldError) as caught:
        load(path, empty())
    assert caught.value.code == "plan-unreadable"


def test_a_plan_with_problems_is_not_saved(tmp_path: Path) -> None:
    few = clusters.seen(1, {}, NEW)
    with pytest.raises(LeftfoldError) as caught:
        saved.save(tmp_path / "plan.json", planned(few), few, project="shop", profile="local")
    assert caught.value.code == "too-few-brokers"
    assert list(tmp_path.iterdir()) == []
