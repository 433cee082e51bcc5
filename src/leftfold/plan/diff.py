"""Compares what is declared with what exists. Yields the steps between them, and the problems that prevent them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from leftfold.declare.catalog import Catalog
from leftfold.declare.companions import companions_of
from leftfold.declare.compatibility import is_whole, verdict
from leftfold.declare.free import View
from leftfold.declare.schema import avro_schema
from leftfold.declare.topic import LogTime, Topic
from leftfold.declare.topic_options import RECORDS_PER_PARTITION
from leftfold.errors import DeclarationError, LeftfoldError, LogError, SourceLine
from leftfold.fold.build_id import BuildId
from leftfold.fold.durations import text
from leftfold.hazards.hazard import DOWNTIME, Facts
from leftfold.hazards.rules import hazards
from leftfold.kafka.observed import ObservedBroker, ObservedCluster, ObservedTopic
from leftfold.kafka.registry import incompatible, subject_of
from leftfold.observe import settings as in_force
from leftfold.observe.durability import Durability, durability_of
from leftfold.observe.observation import Observed, ObservedSubject, has_schema
from leftfold.observe.personal import compaction_lag_ms, marked
from leftfold.plan.changes import ViewChange, changes_of
from leftfold.plan.history import TopicLog
from leftfold.plan.steps import (
    ConfigureTopic,
    CreateTopic,
    DeleteTopic,
    Plan,
    RegisterSchema,
    RemoveBuild,
    SetCompatibility,
    Step,
)
from leftfold.plan.topics import Companion, check_names, check_owned_by_others, companions
from leftfold.settings import Profile
from leftfold.sizing.catalog_size import Known, Sizing, size_catalog
from leftfold.sizing.constants import Constants
from leftfold.sizing.load import Given
from leftfold.sizing.log_size import over_limit, too_many
from leftfold.sizing.wrong_tool import Needs
from leftfold.store.builds import StoredBuild

# A record is late by the time at which the log got it. A broker's clock gives that time, unless the topic declares that
# it trusts its producers' clocks.
_STAMPED: dict[LogTime, str] = {"broker": "LogAppendTime", "producer": "CreateTime", "header": "LogAppendTime"}


def plan(
    catalog: Catalog,
    profile: Profile,
    observed: Observed,
    *,
    delete: Sequence[str] = (),
    asked: PlanOptions | None = None,
) -> Plan:
    """Plan the steps from what exists to what is declared.

    `delete` lists topics that nobody declares any more, by their names in the cluster. No other topic is deleted.
    """
    asked = asked or PlanOptions()
    steps: list[Step] = []
    problems: list[LeftfoldError] = check_names(catalog, profile)
    for declared, topic in catalog.topics.items():
        name = profile.topic_name(declared, external=topic.external)
        actual = observed.topics.get(name)
        if topic.external or profile.topics == "checked":
            problems += _check_foreign(topic, name, profile, actual)
        elif actual is None:
            replicas = _replication(topic, profile)
            problems += _check_replication(name, replicas, profile, len(observed.cluster.brokers), topic.source)
            steps.append(_create(topic, name, profile, observed))
        else:
            problems += _check_partitions(topic, name, actual)
            steps += _configure(name, _configs(topic, name, profile, observed), actual)
    for companion in companions(catalog, profile, observed):
        companion_steps, companion_problems = _companion(companion, profile, observed)
        steps += companion_steps
        if not any(p.code == "too-few-brokers" for p in problems):  # one such problem is enough
            problems += companion_problems
    for declared, topic in catalog.topics.items():
        if has_schema(topic):
            subject_steps, subject_problems = _subject(topic, profile.topic_name(declared), observed)
            steps += subject_steps
            problems += subject_problems
    for name in delete:
        actual = observed.topics.get(name)
        problems += _check_deletion(name, catalog, profile, actual)
        if actual is not None:
            readers = tuple(sorted(g.name for g in observed.cluster.groups.values() if name in g.positions))
            steps.append(DeleteTopic(name, actual.id, actual.records, readers))
    steps += abandoned(catalog, profile, observed)
    problems += _check_limits(steps, observed, asked.constants)
    sizing = None
    try:
        sizing = asked.sizing(catalog, profile, observed)
    except DeclarationError as refusal:  # no cluster carries this load
        problems.append(refusal)
    facts = Facts(observed, catalog, profile, asked.downtime, sizing)
    changes = tuple(_changes(catalog, profile, observed, sizing))
    durability = tuple(_durability(catalog, profile, observed, steps))
    return Plan(tuple(steps), tuple(problems), hazards(facts), changes, sizing, durability)


def _durability(
    catalog: Catalog, profile: Profile, observed: Observed, steps: Sequence[Step]
) -> Iterator[tuple[str, Durability]]:
    """Yield the name and the durability of each declared topic, as it is after the steps."""
    created = {step.name: step for step in steps if isinstance(step, CreateTopic)}
    changed = {step.name: step for step in steps if isinstance(step, ConfigureTopic)}
    for declared, topic in catalog.topics.items():
        name = profile.topic_name(declared, external=topic.external)
        actual = observed.topics.get(name)
        if actual is not None:
            new = {k: v for k, _, v in changed[name].changes} if name in changed else {}
            yield declared, durability_of(replace(actual, configs=actual.configs | new))
        elif name in created:
            in_sync = int(dict(created[name].configs)[in_force.SETTING])
            yield declared, Durability(created[name].replication, in_sync)


def _check_limits(steps: Sequence[Step], observed: Observed, constants: Constants) -> list[LeftfoldError]:
    new = [step for step in steps if isinstance(step, CreateTopic)]
    there = [part for topic in observed.topics.values() for part in topic.spread]
    partitions = sum(step.partitions for step in new) + len(there)
    replicas = sum(step.partitions * step.replication for step in new) + sum(len(part.replicas) for part in there)
    brokers = len(observed.cluster.brokers)
    held = over_limit(partitions, replicas, brokers, constants) if new and brokers else None
    if held is None:
        return []
    return [too_many(f"with the topics of this plan {brokers} brokers have {held}", fix="declare fewer partitions")]


def _changes(catalog: Catalog, profile: Profile, observed: Observed, sizing: Sizing | None) -> Iterator[ViewChange]:
    names = {n: profile.topic_name(n, external=t.external) for n, t in catalog.topics.items()}
    archived = frozenset(n for n, t in catalog.topics.items() if t.archive)
    for name, view in catalog.views.items():
        if not isinstance(view.definition, View):
            rate = None if sizing is None else sizing.measured_rate(name)
            log = TopicLog(observed.cluster, names, rate, archived)
            yield changes_of(observed.builds, view.definition, log)


def _check_deletion(name: str, catalog: Catalog, profile: Profile, actual: ObservedTopic | None) -> list[LeftfoldError]:
    ours = {profile.topic_name(n, external=t.external): t.source for n, t in catalog.topics.items()}
    companion_names = {profile.topic_name(n) for n in companions_of(catalog)}
    if actual is None:
        what, why, fix = "does not exist", "there is nothing to delete", "leave it out"
    elif name in ours:
        what, why, fix = "is declared", "apply would create it again", "take its declaration out first"
    elif name in companion_names:
        what, why = "belongs to what is declared", "Leftfold keeps its own records there"
        fix = "take the declaration that it belongs to out first"
    elif profile.topics == "checked":
        what, why = "is somebody else's", f'profile {profile.name} has topics = "checked"'
        fix = "ask its owner"
    else:
        return []
    return [
        LogError("cannot-delete", f"topic {name} {what}", why=why, fix=fix, source=ours.get(name)),
    ]


def _companion(wanted: Companion, profile: Profile, observed: Observed) -> tuple[list[Step], list[LeftfoldError]]:
    actual = observed.topics.get(wanted.name)
    if profile.topics == "checked":
        return [], check_owned_by_others(wanted, profile, actual)
    if actual is None:
        configs = tuple(sorted(wanted.configs.items()))
        step = CreateTopic(wanted.name, wanted.partitions, wanted.replication, configs, wanted.kept, "broker")
        return [step], _check_replication(
            wanted.name, wanted.replication, profile, len(observed.cluster.brokers), wanted.source
        )
    return _configure(wanted.name, wanted.configs, actual), []  # any number of partitions is fine


def _subject(topic: Topic[Any], name: str, observed: Observed) -> tuple[list[Step], list[LeftfoldError]]:
    subject, schema = subject_of(name), avro_schema(topic.event)
    seen = observed.subjects[subject]
    steps: list[Step] = []
    if seen.compatibility != topic.compatibility:
        steps.append(SetCompatibility(subject, seen.compatibility, topic.compatibility))
    if not seen.registered:
        if not seen.accepted:
            return [], [incompatible(subject, _refusal(topic, schema, seen))]
        steps.append(RegisterSchema(subject, topic.event.__name__, schema))
    return steps, []


def _refusal(topic: Topic[Any], schema: str, seen: ObservedSubject) -> str:
    why = verdict(seen.versions, schema, topic.compatibility).why if all(map(is_whole, seen.versions)) else ""
    if why:
        return f"under {topic.compatibility}, {why}"
    return f"the registry tested it under {seen.compatibility or 'its own rule'} and would refuse it"


def _replication(topic: Topic[Any], profile: Profile) -> int:
    return min(topic.replication, profile.replication or topic.replication)


def _configs(topic: Topic[Any], name: str, profile: Profile, observed: Observed) -> dict[str, str]:
    # If a table is down for longer than tombstones are kept, it misses a deletion for good. Kafka's default is a day.
    tombstones = {"delete.retention.ms": str(7 * 86_400_000)}
    retention = tombstones if topic.retention is None else {"retention.ms": str(topic.retention // 1_000)}
    if topic.compacted and marked(topic.event):
        retention["max.compaction.lag.ms"] = str(compaction_lag_ms(name, observed))
    return {
        "cleanup.policy": "compact" if topic.compacted else "delete",
        "message.timestamp.type": _STAMPED[topic.log_time],
        in_force.SETTING: str(in_force.in_sync_for(_replication(topic, profile))),
        **retention,
        "unclean.leader.election.enable": "false",
    }


def _create(topic: Topic[Any], name: str, profile: Profile, observed: Observed) -> CreateTopic:
    configs = tuple(sorted(_configs(topic, name, profile, observed).items()))
    retention = "compacted" if topic.retention is None else f"kept {text(topic.retention)}"
    retention += ", archived" if topic.archive else ""
    return CreateTopic(name, topic.partitions, _replication(topic, profile), configs, retention, topic.log_time)


def _configure(name: str, wanted: dict[str, str], actual: ObservedTopic) -> list[Step]:
    possible = {**wanted, in_force.SETTING: str(in_force.reachable(int(wanted[in_force.SETTING]), actual))}
    changes = tuple((k, actual.configs.get(k, "?"), v) for k, v in possible.items() if actual.configs.get(k) != v)
    return [ConfigureTopic(name, changes)] if changes else []


def _check_replication(
    name: str, replicas: int, profile: Profile, brokers: int, source: SourceLine | None
) -> list[LeftfoldError]:
    if replicas <= brokers:
        return []
    return [
        LogError(
            "too-few-brokers",
            f"{name} asks for {replicas} replicas, and the cluster has {brokers} brokers",
            why="two replicas on one broker would be lost together",
            fix=f"start {replicas} brokers, or set replication = {brokers} in [profile.{profile.name}]",
            source=source,
        )
    ]


def _check_partitions(topic: Topic[Any], name: str, actual: ObservedTopic) -> list[LeftfoldError]:
    if actual.partitions == topic.partitions:
        return []
    shrink = topic.partitions < actual.partitions
    return [
        LogError(
            "topic-cannot-shrink" if shrink else "topic-cannot-grow",
            f"{name} has {actual.partitions} partitions, the declaration says {topic.partitions}",
            why="Kafka cannot remove partitions"
            if shrink
            else "a key's partition depends on their number: its old and new records would lie in two partitions, "
            "without an order between them",
            fix=f"declare partitions={actual.partitions}, or a new topic with partitions={topic.partitions} and "
            f"log_time='header', and copy it there: leftfold replay {topic.name} --into NEW --follow",
            source=topic.source,
        )
    ]


def _check_foreign(topic: Topic[Any], name: str, profile: Profile, actual: ObservedTopic | None) -> list[LeftfoldError]:
    owner = "it is external" if topic.external else f'profile {profile.name} has topics = "checked"'
    if actual is None:
        return [
            LogError(
                "topic-missing",
                f"topic {name} does not exist",
                why=f"{owner}, so Leftfold does not create it",
                fix="ask its owner to create it",
                source=topic.source,
            )
        ]
    return [*_check_stamps(topic, name, owner, actual), *_check_compaction(topic, name, owner, actual)]


def _check_stamps(topic: Topic[Any], name: str, owner: str, actual: ObservedTopic) -> list[LeftfoldError]:
    wanted = _STAMPED[topic.log_time]
    if actual.configs.get("message.timestamp.type") == wanted:
        return []
    real = "broker" if topic.log_time == "producer" else "producer"
    return [
        LogError(
            "producer-time" if real == "producer" else "broker-time",
            f"topic {name} stamps records with the {real}'s time",
            why=f"late is judged by when the log got a record, and {owner}, so Leftfold does not change it",
            fix=f"ask its owner to set message.timestamp.type={wanted}, or declare log_time={real!r}",
            source=topic.source,
        )
    ]


def _check_compaction(topic: Topic[Any], name: str, owner: str, actual: ObservedTopic) -> list[LeftfoldError]:
    policy = actual.configs.get("cleanup.policy", "delete")
    compacted = "compact" in policy.split(",")
    if compacted == topic.compacted:
        return []
    return [
        LogError(
            "compaction-differs",
            f"topic {name} has cleanup.policy={policy}, the declaration says compacted={topic.compacted}",
            why="compaction loses older records of a key, which an aggregate needs; a table needs the newest for ever; "
            f"and {owner}, so Leftfold does not change it",
            fix=f"declare compacted={compacted}, or ask its owner to change cleanup.policy",
            source=topic.source,
        )
    ]


# Steps that remove builds which nobody can need any more. Pure.


def abandoned(catalog: Catalog, profile: Profile, observed: Observed) -> Iterator[RemoveBuild]:
    place = profile.checkpoints
    elsewhere = place if place and "://" in place and not place.startswith("file:") else None
    for build in observed.stored:
        if _not_needed(build, catalog):
            yield RemoveBuild(build.view, build.id, elsewhere)


def _not_needed(build: StoredBuild, catalog: Catalog) -> bool:
    view = catalog.views.get(build.view)
    if build.role not in ("left", "other") or view is None:
        return False
    if build.role == "left":  # it takes over no readers by itself, and a rebuild makes another build
        return True
    # Only Spark knows whether the build of a function matches the declaration, so such a build is kept.
    return not isinstance(view.definition, View) and BuildId.parse(build.id).fingerprint != view.fingerprint


# Statements of the user for a plan, in addition to the declarations: about the load, outages and machines.


@dataclass(frozen=True)
class PlanOptions:
    """A user's statements about load, outages and machines.

    `rates` and `sizes` (bytes of a record) are by topic. `keys` (active entities) are by topic or view. `handlers` are
    by consumer: the seconds that its handler takes for one record. `needs` decide whether a log is the right tool.
    """

    downtime: int = DOWNTIME  # µs: the longest outage of a reader that must lose nothing
    rates: Mapping[str, float] = field(default_factory=dict)
    sizes: Mapping[str, float] = field(default_factory=dict)
    keys: Mapping[str, int] = field(default_factory=dict)
    handlers: Mapping[str, float] = field(default_factory=dict)
    consumer_rate: float = RECORDS_PER_PARTITION
    catch_up_s: float = 3_600
    needs: Needs = field(default_factory=Needs)
    constants: Constants = field(default_factory=Constants)

    def sizing(self, catalog: Catalog, profile: Profile, observed: Observed) -> Sizing:
        known = {}
        for declared, topic in catalog.topics.items():
            name = profile.topic_name(declared, external=topic.external)
            inputs = Given(
                rate=self.rates.get(declared),
                record_bytes=self.sizes.get(declared),
                keys=self.keys.get(declared),
                catch_up_s=self.catch_up_s,
                consumer_rate=self.consumer_rate,
                brokers=len(observed.cluster.brokers),
            )
            known[declared] = Known(observed.samples.get(name), observed.topics.get(name), inputs)
        return size_catalog(
            catalog,
            known,
            self.constants,
            keys=self.keys,
            namespace=profile.namespace,
            most_offsets=profile.spark.most_offsets,
            handlers=self.handlers,
            needs=self.needs,
        )


# The topics that `apply` would create on an empty cluster, for a user who creates them by other means.


def wanted_topics(catalog: Catalog, profile: Profile, *, brokers: int | None = None) -> tuple[CreateTopic, ...]:
    """The steps of `apply` that create declared topics and Leftfold's own topics on an empty cluster.

    External topics are left out, because their owner creates them. topics = "checked" changes nothing here: it says who
    creates the topics, not how they must be. Without `brokers`, the cluster is taken to have as many brokers as the
    highest declared replication.
    """
    managed = profile.model_copy(update={"topics": "managed"})
    first_plan = plan(catalog, managed, _nothing_there(catalog, profile, brokers))
    for problem in first_plan.problems:
        if problem.code != "topic-missing":  # an external topic may be missing here
            raise problem
    return tuple(step for step in first_plan.steps if isinstance(step, CreateTopic))


def _nothing_there(catalog: Catalog, profile: Profile, brokers: int | None) -> Observed:
    """An empty cluster. Its schemas count as registered, because only the topics are wanted."""
    subjects = {
        subject_of(profile.topic_name(name)): ObservedSubject(topic.compatibility)
        for name, topic in catalog.topics.items()
        if has_schema(topic)
    }
    number = brokers or max((topic.replication for topic in catalog.topics.values()), default=3)
    nodes = tuple(ObservedBroker(node, None, {}) for node in range(number))
    return Observed(ObservedCluster("", 0, nodes, {}), subjects)
