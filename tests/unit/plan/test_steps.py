"""From what is declared and what is there to the steps between, on hand-built observations."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any
from unittest import mock

import pytest

import leftfold as lf
from leftfold.errors import LeftfoldError
from leftfold.kafka.admin import ObservedTopic
from leftfold.plan.companions import companions
from leftfold.plan.observe import Observed, ObservedSubject, observe
from leftfold.plan.steps import ConfigureTopic, CreateTopic, Plan, RegisterSchema, SetCompatibility, plan
from leftfold.settings import Profile
from leftfold.spec.catalog import Catalog
from leftfold.spec.schema import avro_schema


class Click(lf.Event):
    user_id: str
    at: datetime


LOCAL = Profile(name="local")
CONFIGS = {
    "cleanup.policy": "delete",
    "message.timestamp.type": "LogAppendTime",
    "min.insync.replicas": "2",
    "retention.ms": "604800000",
    "unclean.leader.election.enable": "false",
    "segment.bytes": "1073741824",  # the cluster knows many more; they are nobody's business
}
THERE = ObservedTopic("clicks", 6, 3, CONFIGS)
REGISTERED = ObservedSubject("FULL_TRANSITIVE", registered=True, accepted=True)
NEW = ObservedSubject(None, registered=False, accepted=True)


def topic(name: str = "clicks", **options: Any) -> lf.Topic[Click]:
    return lf.Topic(name, Click, key=Click.user_id, time=Click.at, **options)


def observed(
    found: ObservedTopic | None = THERE,
    subject: ObservedSubject = REGISTERED,
    *,
    brokers: int = 3,
    name: str = "clicks",
) -> Observed:
    return Observed(brokers, {} if found is None else {name: found}, {f"{name}-value": subject})


def planned(seen: Observed, *topics: lf.Topic[Click], profile: Profile = LOCAL) -> Plan:
    """On a cluster that has Leftfold's own topics already; test_companions is about these."""
    catalog, problems = Catalog.of(topics or [topic()])
    assert problems == []
    ours = {c.name: ObservedTopic(c.name, c.partitions, 3, c.configs) for c in companions(catalog, profile, seen)}
    return plan(catalog, profile, replace(seen, topics={**ours, **seen.topics}))


def codes(made: Plan) -> list[str]:
    return [p.code for p in made.problems]


class Recorder:
    """Stands where the admin client and the registry would, and writes down what it is asked for."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **options: self.calls.append((name, (*args, *options.values())))


def applied(made: Plan) -> tuple[list[Any], list[tuple[str, Any]]]:
    recorder: Any = Recorder()
    return list(made.apply(recorder, recorder)), recorder.calls


def test_equal_is_nothing_to_do() -> None:
    made = planned(observed())
    assert (made.steps, made.problems) == ((), ())
    assert applied(made) == ([], [])


def test_create() -> None:
    made = planned(observed(None, NEW))
    configs = tuple(sorted((k, v) for k, v in CONFIGS.items() if k != "segment.bytes"))
    assert made.problems == ()
    assert made.steps == (
        CreateTopic("clicks", 6, 3, configs, "kept 7d", "broker"),
        SetCompatibility("clicks-value", None, "FULL_TRANSITIVE"),
        RegisterSchema("clicks-value", "Click", avro_schema(Click)),
    )
    assert [str(step) for step in made.steps] == [
        "+ topic   clicks   6 partitions, 3 replicas, kept 7d, broker time",
        "+ rule    clicks-value   compatibility FULL_TRANSITIVE",
        "+ schema  clicks-value   Click",
    ]


def test_what_is_shown_is_what_is_done_in_that_order() -> None:
    made = planned(observed(None, NEW))
    done, calls = applied(made)
    assert tuple(done) == made.steps
    assert calls == [
        ("create", ("clicks", 6, 3, {k: v for k, v in CONFIGS.items() if k != "segment.bytes"})),
        ("set_compatibility", ("clicks-value", "FULL_TRANSITIVE")),
        ("register", ("clicks-value", avro_schema(Click))),
    ]


def test_the_rule_comes_before_the_schema_and_topics_before_both() -> None:
    seen = Observed(3, {}, {"a-value": NEW, "b-value": NEW})
    kinds = [type(s).__name__ for s in planned(seen, topic("a"), topic("b")).steps]
    assert kinds == ["CreateTopic"] * 2 + ["SetCompatibility", "RegisterSchema"] * 2


def test_configure_names_only_what_differs() -> None:
    found = replace(THERE, configs={**CONFIGS, "retention.ms": "1000", "min.insync.replicas": "1"})
    made = planned(observed(found))
    assert made.steps == (
        ConfigureTopic("clicks", (("min.insync.replicas", "1", "2"), ("retention.ms", "1000", "604800000"))),
    )
    assert str(made.steps[0]) == "~ topic   clicks   min.insync.replicas: 1 → 2, retention.ms: 1000 → 604800000"
    assert applied(made)[1] == [
        ("set_configs", ("clicks", {"min.insync.replicas": "2", "retention.ms": "604800000"})),
    ]


def test_a_setting_the_cluster_does_not_tell_is_set() -> None:
    found = replace(THERE, configs={k: v for k, v in CONFIGS.items() if k != "cleanup.policy"})
    assert planned(observed(found)).steps == (ConfigureTopic("clicks", (("cleanup.policy", "?", "delete"),)),)


@pytest.mark.parametrize(("declared", "code"), [(3, "topic-cannot-shrink"), (12, "topic-cannot-grow")])
def test_partitions_are_for_ever(declared: int, code: str) -> None:
    made = planned(observed(), topic(partitions=declared))
    assert codes(made) == [code]
    assert made.problems[0].source is not None
    assert f"clicks has 6 partitions, the declaration says {declared}" in made.problems[0].what


def test_with_a_problem_nothing_is_applied() -> None:
    seen = Observed(3, {"clicks": THERE}, {"clicks-value": REGISTERED, "new-value": NEW})
    made = planned(seen, topic(partitions=3), topic("new"))
    assert len(made.steps) == 3
    recorder: Any = Recorder()
    with pytest.raises(LeftfoldError) as caught:
        list(made.apply(recorder, recorder))
    assert caught.value is made.problems[0]
    assert recorder.calls == []


def test_every_problem_is_reported() -> None:
    refused = ObservedSubject("FULL_TRANSITIVE", registered=False, accepted=False)
    seen = Observed(1, {"a": replace(THERE, name="a")}, {"a-value": refused, "b-value": NEW})
    assert codes(planned(seen, topic("a", partitions=3), topic("b"))) == [
        "topic-cannot-shrink",
        "too-few-brokers",
        "schema-incompatible",
    ]


# Kinds of topics ----------------------------------------------------------------------------------------------------


def created(*topics: lf.Topic[Click]) -> CreateTopic:
    (step,) = (s for s in planned(observed(None, NEW), *topics).steps if isinstance(s, CreateTopic))
    return step


def test_a_compacted_topic_has_no_retention() -> None:
    step = created(topic(compacted=True))
    assert str(step) == "+ topic   clicks   6 partitions, 3 replicas, compacted, broker time"
    wanted = {k: v for k, v in CONFIGS.items() if k not in ("retention.ms", "segment.bytes")}
    assert dict(step.configs) == {**wanted, "cleanup.policy": "compact", "delete.retention.ms": "604800000"}
    assert "cleanup.policy: delete → compact" in str(planned(observed(), topic(compacted=True)).steps[0])


def test_a_topic_that_believes_its_producers() -> None:
    step = created(topic(log_time="producer"))
    assert str(step) == "+ topic   clicks   6 partitions, 3 replicas, kept 7d, producer time"
    assert dict(step.configs)["message.timestamp.type"] == "CreateTime"
    found = replace(THERE, configs={**CONFIGS, "message.timestamp.type": "CreateTime"})
    assert planned(observed(found), topic(log_time="producer")).steps == ()
    assert planned(observed(found)).steps != ()


def test_a_json_topic_has_no_schema() -> None:
    seen = Observed(3, {}, {})
    assert [type(s) for s in planned(seen, topic(format="json")).steps] == [CreateTopic]


def test_the_registry_is_asked_only_for_schemas_of_ours() -> None:
    topics = [topic("a", format="json"), topic("b", external=True), topic("c")]
    catalog, _ = Catalog.of(topics)
    admin, registry = mock.Mock(), mock.Mock()
    registry.id_of.return_value = 1
    assert list(observe(catalog, LOCAL, admin, registry).subjects) == ["c-value"]
    assert {call.args[0] for call in registry.method_calls} == {"c-value"}


# Replication --------------------------------------------------------------------------------------------------------


def test_too_few_brokers() -> None:
    made = planned(observed(None, NEW, brokers=1))
    assert codes(made) == ["too-few-brokers"]
    assert "replication = 1 in [profile.local]" in made.problems[0].fix


def test_a_profile_caps_replication() -> None:
    made = planned(observed(None, NEW, brokers=1), profile=Profile(name="p", replication=1))
    assert made.problems == ()
    (create,) = (s for s in made.steps if isinstance(s, CreateTopic))
    assert (create.replication, dict(create.configs)["min.insync.replicas"]) == (1, "1")


def test_a_profile_does_not_raise_replication() -> None:
    made = planned(observed(None, NEW), topic(replication=2), profile=Profile(name="p", replication=3))
    (create,) = (s for s in made.steps if isinstance(s, CreateTopic))
    assert (create.replication, dict(create.configs)["min.insync.replicas"]) == (2, "1")


# Topics of others ---------------------------------------------------------------------------------------------------

CHECKED = Profile(name="prod", topics="checked")


@pytest.mark.parametrize(("options", "profile"), [({"external": True}, LOCAL), ({}, CHECKED)])
def test_topics_of_others_are_never_written(options: dict[str, Any], profile: Profile) -> None:
    found = ObservedTopic("clicks", 48, 1, {"message.timestamp.type": "LogAppendTime", "retention.ms": "1"})
    made = planned(observed(found, NEW), topic(**options), profile=profile)
    assert made.problems == ()
    assert not [s for s in made.steps if isinstance(s, CreateTopic | ConfigureTopic)]


@pytest.mark.parametrize(("options", "profile"), [({"external": True}, LOCAL), ({}, CHECKED)])
def test_a_topic_of_others_that_is_missing(options: dict[str, Any], profile: Profile) -> None:
    made = planned(observed(None, REGISTERED), topic(**options), profile=profile)
    assert codes(made) == ["topic-missing"]
    assert made.steps == ()


@pytest.mark.parametrize(("options", "profile"), [({"external": True}, LOCAL), ({}, CHECKED)])
def test_a_topic_of_others_with_the_producers_time(options: dict[str, Any], profile: Profile) -> None:
    found = replace(THERE, configs={**CONFIGS, "message.timestamp.type": "CreateTime"})
    assert codes(planned(observed(found), topic(**options), profile=profile)) == ["producer-time"]


@pytest.mark.parametrize(("options", "profile"), [({"external": True}, LOCAL), ({}, CHECKED)])
def test_a_topic_of_others_with_the_brokers_time(options: dict[str, Any], profile: Profile) -> None:
    believing = topic(log_time="producer", **options)
    assert codes(planned(observed(), believing, profile=profile)) == ["broker-time"]
    found = replace(THERE, configs={**CONFIGS, "message.timestamp.type": "CreateTime"})
    assert codes(planned(observed(found), believing, profile=profile)) == []


@pytest.mark.parametrize(
    ("policy", "compacted", "expected"),
    [
        *(("delete", False, []), ("compact", True, []), ("compact,delete", True, [])),
        *(("delete", True, ["compaction-differs"]), ("compact,delete", False, ["compaction-differs"])),
    ],
)
def test_a_topic_of_others_is_compacted_as_declared(policy: str, compacted: bool, expected: list[str]) -> None:
    found = replace(THERE, configs={**CONFIGS, "cleanup.policy": policy})
    assert codes(planned(observed(found), topic(external=True, compacted=compacted))) == expected


def test_the_rules_of_an_external_subject_are_its_owners() -> None:
    seen = observed(THERE, ObservedSubject("BACKWARD", registered=True, accepted=True))
    assert planned(seen, topic(external=True)).steps == ()
    assert planned(seen, topic()).steps == (SetCompatibility("clicks-value", "BACKWARD", "FULL_TRANSITIVE"),)


# Schemas ------------------------------------------------------------------------------------------------------------


def test_a_schema_that_would_break_readers() -> None:
    made = planned(observed(THERE, ObservedSubject("FULL", registered=False, accepted=False)))
    assert codes(made) == ["schema-incompatible"]
    assert "under FULL" in made.problems[0].why
    assert not [s for s in made.steps if isinstance(s, RegisterSchema)]


def test_a_new_version_of_a_schema() -> None:
    made = planned(observed(THERE, ObservedSubject("FULL_TRANSITIVE", registered=False, accepted=True)))
    assert made.steps == (RegisterSchema("clicks-value", "Click", avro_schema(Click)),)


def test_a_namespace_is_in_every_name() -> None:
    made = planned(observed(None, NEW, name="prod.clicks"), profile=Profile(name="p", namespace="prod"))
    assert [getattr(s, "name", None) or getattr(s, "subject", None) for s in made.steps] == [
        "prod.clicks",
        "prod.clicks-value",
        "prod.clicks-value",
    ]
