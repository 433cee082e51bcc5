"""From what is declared and what is there to the steps between, on hand-built observations."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime
from typing import Any
from unittest import mock

import pytest

import leftfold as lf
from leftfold.declare.catalog import Catalog
from leftfold.declare.schema import avro_schema
from leftfold.errors import LeftfoldError
from leftfold.kafka.observed import ObservedTopic
from leftfold.observe import observation as module
from leftfold.observe.observation import Observed, ObservedSubject, observe
from leftfold.plan.diff import plan
from leftfold.plan.steps import ConfigureTopic, CreateTopic, Plan, RegisterSchema, SetCompatibility
from leftfold.plan.topics import companions
from leftfold.settings import Profile
from tests import clusters


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
THERE = clusters.seen_topic("clicks", 6, 3, CONFIGS)
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
    return clusters.seen(brokers, {} if found is None else {name: found}, {f"{name}-value": subject})


def planned(seen: Observed, *topics: lf.Topic[Click], profile: Profile = LOCAL) -> Plan:
    """On a cluster that has Leftfold's own topics already; test_companions is about these."""
    catalog, problems = Catalog.of(topics or [topic()])
    assert problems == []
    ours = {c.name: clusters.seen_topic(c.name, c.partitions, 3, c.configs) for c in companions(catalog, profile, seen)}
    cluster = replace(seen.cluster, topics={**ours, **seen.topics})
    return plan(catalog, profile, replace(seen, cluster=cluster))


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
    seen = clusters.seen(3, {}, {"a-value": NEW, "b-value": NEW})
    kinds = [type(s).__name__ for s in planned(seen, topic("a"), topic("b")).steps]
    assert kinds == ["CreateTopic"] * 2 + ["SetCompatibility", "RegisterSchema"] * 2


def test_configure_names_only_what_differs() -> None:
    found = replace(THERE, configs={**CONFIGS, "retention.ms": "1000", "min.insync.replicas": "1"})
    made = planned(observed(found))
    assert made.steps == (
        ConfigureTopic("clicks", (("min.insync.replicas", "1", "2"), ("retention.ms", "1000", "604800000"))),
    )
    assert str(made.steps[0]) == "~ topic   clicks   min.insync.replicas: 1 → 2, retention.ms: 1s → 7d"
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
    seen = clusters.seen(3, {"clicks": THERE}, {"clicks-value": REGISTERED, "new-value": NEW})
    made = planned(seen, topic(partitions=3), topic("new"))
    assert len(made.steps) == 3
    recorder: Any = Recorder()
    with pytest.raises(LeftfoldError) as caught:
        list(made.apply(recorder, recorder))
    assert caught.value is made.problems[0]
    assert recorder.calls == []


def test_every_problem_is_reported() -> None:
    refused = ObservedSubject("FULL_TRANSITIVE", registered=False, accepted=False)
    seen = clusters.seen(1, {"a": replace(THERE, name="a")}, {"a-value": refused, "b-value": NEW})
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


class Customer(lf.Event):
    customer_id: str
    email: lf.Personal[str]


PERSONAL = {**CONFIGS, "cleanup.policy": "compact", "delete.retention.ms": "604800000"}


def lag(found: ObservedTopic | None, **brokers: Any) -> str | None:
    """What becomes of max.compaction.lag.ms; None if it is left alone."""
    declared: Any = lf.Topic("clicks", Customer, key=Customer.customer_id, compacted=True)
    seen = observed(found)
    seen = replace(seen, cluster=clusters.seen_cluster(*seen.topics.values(), **brokers))
    for step in planned(seen, declared).steps:
        if isinstance(step, CreateTopic):
            return dict(step.configs)["max.compaction.lag.ms"]
        if isinstance(step, ConfigureTopic):
            return {setting: after for setting, _, after in step.changes}["max.compaction.lag.ms"]
    return None


def test_deleted_personal_data_goes_within_a_week() -> None:
    assert lag(None) == "604800000"
    endless = replace(THERE, configs={**PERSONAL, "max.compaction.lag.ms": "9223372036854775807"})
    assert lag(endless) == "604800000"
    declared: Any = lf.Topic("clicks", Customer, key=Customer.customer_id, compacted=True)
    (step,) = planned(observed(endless), declared).steps
    assert str(step) == "~ topic   clicks   max.compaction.lag.ms: for ever → 7d"


def test_what_goes_sooner_is_left_as_it_is() -> None:
    day = "86400000"
    assert lag(replace(THERE, configs={**PERSONAL, "max.compaction.lag.ms": day})) is None
    assert lag(None, log_cleaner_max_compaction_lag_ms=day) == day


def test_kafka_takes_no_most_below_the_least() -> None:
    slow = {"min.compaction.lag.ms": "864000000", "max.compaction.lag.ms": "9223372036854775807"}
    assert lag(replace(THERE, configs={**PERSONAL, **slow})) == "864000000"
    assert lag(None, log_cleaner_min_compaction_lag_ms="864000000") == "864000000"


def test_a_mark_on_a_running_project_changes_no_schema() -> None:
    class Marked(lf.Event):
        user_id: lf.Personal[str]
        at: datetime

    Marked.__name__ = "Click"
    marked: Any = lf.Topic("clicks", Marked, key=Marked.user_id, time=Marked.at)
    assert avro_schema(Marked) == avro_schema(Click)
    assert planned(observed(), marked).steps == ()


def test_a_topic_that_believes_its_producers() -> None:
    step = created(topic(log_time="producer"))
    assert str(step) == "+ topic   clicks   6 partitions, 3 replicas, kept 7d, producer time"
    assert dict(step.configs)["message.timestamp.type"] == "CreateTime"
    found = replace(THERE, configs={**CONFIGS, "message.timestamp.type": "CreateTime"})
    assert planned(observed(found), topic(log_time="producer")).steps == ()
    assert planned(observed(found)).steps != ()


def test_a_topic_that_believes_a_header() -> None:
    step = created(topic(log_time="header"))
    assert str(step) == "+ topic   clicks   6 partitions, 3 replicas, kept 7d, header time"
    assert dict(step.configs)["message.timestamp.type"] == "LogAppendTime"


def test_a_json_topic_has_no_schema() -> None:
    seen = clusters.seen(3, {}, {})
    assert [type(s) for s in planned(seen, topic(format="json")).steps] == [CreateTopic]


def test_the_registry_is_asked_only_for_schemas_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    topics = [topic("a", format="json"), topic("b", external=True), topic("c")]
    catalog, _ = Catalog.of(topics)
    admin, registry = mock.Mock(), mock.Mock()
    registry.id_of.return_value = 1
    registry.versions.return_value = {1: "{}"}
    monkeypatch.setattr(module, "observe_cluster", lambda *_: clusters.seen_cluster())
    assert list(observe(catalog, LOCAL, mock.Mock(), admin, registry).subjects) == ["c-value"]
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


@pytest.mark.parametrize(
    ("copies", "in_force", "after"),
    [
        *((1, "1", "1"), (1, "2", "1"), (1, None, "1")),  # with 2 of one copy nothing could be written
        *((2, "1", "1"), (2, None, "1"), (2, "2", "2")),  # it is not taken back from who has it
        *((3, "1", "2"), (3, "3", "2"), (4, "1", "2")),
    ],
)
def test_no_plan_asks_for_more_copies_than_can_be_in_sync(copies: int, in_force: str | None, after: str) -> None:
    configs = {k: v for k, v in CONFIGS.items() if k != "min.insync.replicas"}
    found = clusters.seen_topic(
        "clicks", 6, copies, configs if in_force is None else {**configs, "min.insync.replicas": in_force}
    )
    made = planned(observed(found))
    changes = {k: new for step in made.steps if isinstance(step, ConfigureTopic) for k, _, new in step.changes}
    assert made.problems == ()
    assert changes == ({} if in_force == after else {"min.insync.replicas": after})
    then = replace(found, configs={**found.configs, **changes})
    assert planned(observed(then)).steps == ()
    assert ("copies-below-declared" in {h.code for h in made.hazards}) == (copies < 3)


# Topics of others ---------------------------------------------------------------------------------------------------

CHECKED = Profile(name="prod", topics="checked")


@pytest.mark.parametrize(("options", "profile"), [({"external": True}, LOCAL), ({}, CHECKED)])
def test_topics_of_others_are_never_written(options: dict[str, Any], profile: Profile) -> None:
    found = clusters.seen_topic("clicks", 48, 1, {"message.timestamp.type": "LogAppendTime", "retention.ms": "1"})
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
    assert made.problems[0].why == "the registry tested it under FULL and would refuse it"
    assert not [s for s in made.steps if isinstance(s, RegisterSchema)]


def without(*fields: str, **added: Any) -> str:
    """Click as it was registered: without these fields, and with others."""
    document = json.loads(avro_schema(Click))
    kept = [f for f in document["fields"] if f["name"] not in fields]
    return json.dumps({**document, "fields": [*kept, *({"name": n, "type": t} for n, t in added.items())]})


def refusal(*versions: str, rule: str | None = "FULL_TRANSITIVE") -> str:
    seen = ObservedSubject(rule, registered=False, accepted=False, versions=versions)
    made = planned(observed(THERE, seen))
    assert codes(made) == ["schema-incompatible"]
    assert made.steps == ()
    return made.problems[0].why


def test_a_refusal_names_versions_and_reasons() -> None:
    lacks = "cannot read records of the new schema: the records lack it, and the reader has no default for it"
    shop = without(shop="string")
    assert refusal(without(), shop) == f"under FULL_TRANSITIVE, shop: a reader with version 2 {lacks}"
    assert refusal(shop, without(), shop) == f"under FULL_TRANSITIVE, shop: a reader with versions 1, 3 {lacks}"
    assert refusal(*[shop] * 5) == f"under FULL_TRANSITIVE, shop: a reader with versions 1, 2, 3 and 2 more {lacks}"
    many = refusal(without(a="string", b="string", c="string", d="string", e="string"))
    assert [part.split(":")[0] for part in many.split("; ")] == [
        *("under FULL_TRANSITIVE, a", "b", "c"),
        "and 2 more",
    ]


def test_a_refusal_is_told_under_the_rule_that_is_to_come() -> None:
    """Not under the one that the registry has: that would take it."""
    assert refusal(without(shop="string"), without(), rule="BACKWARD").startswith("under FULL_TRANSITIVE, shop: ")


def test_a_refusal_whose_reason_only_the_registry_knows() -> None:
    assert refusal('syntax = "proto3";') == "the registry tested it under FULL_TRANSITIVE and would refuse it"
    assert refusal('syntax = "proto3";', rule=None) == "the registry tested it under its own rule and would refuse it"


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


def test_more_partitions_than_the_brokers_carry_together_are_refused() -> None:
    """Each topic alone would fit."""
    few, many = (planned(observed(), topic(), topic("taps", partitions=n, format="json")) for n in (3_000, 4_000))
    assert codes(few) == []
    assert codes(many) == ["too-many-partitions"]
    assert "Kafka's own advice is at most 4,000 per broker" in str(many.problems[0])
