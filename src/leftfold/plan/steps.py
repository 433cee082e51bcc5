"""From what is declared and what is there to the steps between: frozen values, each of which says what it does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from leftfold.errors import LeftfoldError, LogError, Source
from leftfold.fold.durations import text
from leftfold.kafka.admin import Admin, ObservedTopic
from leftfold.kafka.registry import SchemaRegistry, incompatible, subject_of
from leftfold.plan.companions import Companion, check_names, check_owned_by_others, companions
from leftfold.plan.observe import Observed, has_schema
from leftfold.settings import Profile
from leftfold.spec.catalog import Catalog
from leftfold.spec.schema import avro_schema
from leftfold.spec.topic import LogTime, Topic

# Late is judged by when the log got a record: by a broker's clock, unless the topic declares to believe its producers.
_STAMPED: dict[LogTime, str] = {"broker": "LogAppendTime", "producer": "CreateTime"}


@dataclass(frozen=True)
class CreateTopic:
    name: str
    partitions: int
    replication: int
    configs: tuple[tuple[str, str], ...]
    kept: str
    log_time: str

    def __str__(self) -> str:
        size = f"{_counted(self.partitions, 'partition')}, {_counted(self.replication, 'replica')}"
        return f"+ topic   {self.name}   {size}, {self.kept}, {self.log_time} time"

    def apply(self, admin: Admin, registry: SchemaRegistry) -> None:
        admin.create(self.name, partitions=self.partitions, replication=self.replication, configs=dict(self.configs))


@dataclass(frozen=True)
class ConfigureTopic:
    name: str
    changes: tuple[tuple[str, str, str], ...]  # setting, from, to

    def __str__(self) -> str:
        return f"~ topic   {self.name}   " + ", ".join(f"{k}: {old} → {new}" for k, old, new in self.changes)

    def apply(self, admin: Admin, registry: SchemaRegistry) -> None:
        admin.set_configs(self.name, {k: new for k, _, new in self.changes})


@dataclass(frozen=True)
class SetCompatibility:
    subject: str
    before: str | None
    level: str

    def __str__(self) -> str:
        change = f"{self.before} → {self.level}" if self.before else self.level
        return f"{'~' if self.before else '+'} rule    {self.subject}   compatibility {change}"

    def apply(self, admin: Admin, registry: SchemaRegistry) -> None:
        registry.set_compatibility(self.subject, self.level)


@dataclass(frozen=True)
class RegisterSchema:
    subject: str
    event: str
    schema: str

    def __str__(self) -> str:
        return f"+ schema  {self.subject}   {self.event}"

    def apply(self, admin: Admin, registry: SchemaRegistry) -> None:
        registry.register(self.subject, self.schema)


Step = CreateTopic | ConfigureTopic | SetCompatibility | RegisterSchema


@dataclass(frozen=True)
class Plan:
    steps: tuple[Step, ...]
    problems: tuple[LeftfoldError, ...]  # with any of these nothing is applied

    def apply(self, admin: Admin, registry: SchemaRegistry) -> Iterator[Step]:
        """Do the steps, in the order in which they were shown, yielding each once it is done.

        Each is safe to repeat, so an apply that died is finished by the next one.
        """
        if self.problems:
            raise self.problems[0]
        for step in self.steps:
            step.apply(admin, registry)
            yield step


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def plan(catalog: Catalog, profile: Profile, observed: Observed) -> Plan:
    steps: list[Step] = []
    problems: list[LeftfoldError] = check_names(catalog, profile)
    for declared, topic in catalog.topics.items():
        name = profile.topic_name(declared, external=topic.external)
        found = observed.topics.get(name)
        if topic.external or profile.topics == "checked":
            problems += _check_foreign(topic, name, profile, found)
        elif found is None:
            replicas = _replication(topic, profile)
            problems += _check_replication(name, replicas, profile, observed.brokers, topic.source)
            steps.append(_create(topic, name, profile))
        else:
            problems += _check_partitions(topic, name, found)
            steps += _configure(name, _configs(topic, profile), found)
    for companion in companions(catalog, profile, observed):
        companion_steps, companion_problems = _companion(companion, profile, observed)
        steps += companion_steps
        if not any(p.code == "too-few-brokers" for p in problems):  # said once is enough
            problems += companion_problems
    for declared, topic in catalog.topics.items():
        if has_schema(topic):
            subject_steps, subject_problems = _subject(topic, profile.topic_name(declared), observed)
            steps += subject_steps
            problems += subject_problems
    return Plan(tuple(steps), tuple(problems))


def _companion(wanted: Companion, profile: Profile, observed: Observed) -> tuple[list[Step], list[LeftfoldError]]:
    found = observed.topics.get(wanted.name)
    if profile.topics == "checked":
        return [], check_owned_by_others(wanted, profile, found)
    if found is None:
        configs = tuple(sorted(wanted.configs.items()))
        step = CreateTopic(wanted.name, wanted.partitions, wanted.replication, configs, wanted.kept, "broker")
        return [step], _check_replication(wanted.name, wanted.replication, profile, observed.brokers, wanted.source)
    return _configure(wanted.name, wanted.configs, found), []  # any number of partitions does


def _subject(topic: Topic[Any], name: str, observed: Observed) -> tuple[list[Step], list[LeftfoldError]]:
    subject, schema = subject_of(name), avro_schema(topic.event)
    seen = observed.subjects[subject]
    steps: list[Step] = []
    if seen.compatibility != topic.compatibility:
        steps.append(SetCompatibility(subject, seen.compatibility, topic.compatibility))
    if not seen.registered:
        if not seen.accepted:
            why = f"the registry tested it under {seen.compatibility or topic.compatibility} and would refuse it"
            return [], [incompatible(subject, why)]
        steps.append(RegisterSchema(subject, topic.event.__name__, schema))
    return steps, []


def _replication(topic: Topic[Any], profile: Profile) -> int:
    return min(topic.replication, profile.replication or topic.replication)


def _configs(topic: Topic[Any], profile: Profile) -> dict[str, str]:
    # A table that is down for longer than a tombstone is kept misses a deletion for good; Kafka's default is a day.
    tombstones = {"delete.retention.ms": str(7 * 86_400_000)}
    kept = tombstones if topic.retention is None else {"retention.ms": str(topic.retention // 1_000)}
    return {
        "cleanup.policy": "compact" if topic.compacted else "delete",
        "message.timestamp.type": _STAMPED[topic.log_time],
        "min.insync.replicas": str(max(1, _replication(topic, profile) - 1)),  # survives the loss of any one broker
        **kept,
        "unclean.leader.election.enable": "false",
    }


def _create(topic: Topic[Any], name: str, profile: Profile) -> CreateTopic:
    configs = tuple(sorted(_configs(topic, profile).items()))
    kept = "compacted" if topic.retention is None else f"kept {text(topic.retention)}"
    return CreateTopic(name, topic.partitions, _replication(topic, profile), configs, kept, topic.log_time)


def _configure(name: str, wanted: dict[str, str], found: ObservedTopic) -> list[Step]:
    changes = tuple((k, found.configs.get(k, "?"), v) for k, v in wanted.items() if found.configs.get(k) != v)
    return [ConfigureTopic(name, changes)] if changes else []


def _check_replication(
    name: str, replicas: int, profile: Profile, brokers: int, source: Source | None
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


def _check_partitions(topic: Topic[Any], name: str, found: ObservedTopic) -> list[LeftfoldError]:
    if found.partitions == topic.partitions:
        return []
    shrink = topic.partitions < found.partitions
    return [
        LogError(
            "topic-cannot-shrink" if shrink else "topic-cannot-grow",
            f"{name} has {found.partitions} partitions, the declaration says {topic.partitions}",
            why="Kafka cannot remove partitions"
            if shrink
            else "a key's partition depends on their number: its old and new records would lie in two partitions, "
            "without an order between them",
            fix=f"declare partitions={found.partitions}, or a new topic with {topic.partitions} and move its producers",
            source=topic.source,
        )
    ]


def _check_foreign(topic: Topic[Any], name: str, profile: Profile, found: ObservedTopic | None) -> list[LeftfoldError]:
    owner = "it is external" if topic.external else f'profile {profile.name} has topics = "checked"'
    if found is None:
        return [
            LogError(
                "topic-missing",
                f"topic {name} does not exist",
                why=f"{owner}, so Leftfold does not create it",
                fix="ask its owner to create it",
                source=topic.source,
            )
        ]
    return [*_check_stamps(topic, name, owner, found), *_check_compaction(topic, name, owner, found)]


def _check_stamps(topic: Topic[Any], name: str, owner: str, found: ObservedTopic) -> list[LeftfoldError]:
    wanted = _STAMPED[topic.log_time]
    if found.configs.get("message.timestamp.type") == wanted:
        return []
    real = "producer" if topic.log_time == "broker" else "broker"
    return [
        LogError(
            "producer-time" if real == "producer" else "broker-time",
            f"topic {name} stamps records with the {real}'s time",
            why=f"late is judged by when the log got a record, and {owner}, so Leftfold does not change it",
            fix=f"ask its owner to set message.timestamp.type={wanted}, or declare log_time={real!r}",
            source=topic.source,
        )
    ]


def _check_compaction(topic: Topic[Any], name: str, owner: str, found: ObservedTopic) -> list[LeftfoldError]:
    policy = found.configs.get("cleanup.policy", "delete")
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
