"""The steps of a plan: frozen values that say what they do, what is dangerous about it, and how to undo it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from leftfold.errors import LeftfoldError
from leftfold.fold.durations import text
from leftfold.hazards.hazard import Hazard
from leftfold.kafka.admin import Admin
from leftfold.kafka.registry import SchemaRegistry
from leftfold.observe.durability import Durability
from leftfold.observe.observation import Observed
from leftfold.plan.changes import ViewChange
from leftfold.sizing.catalog_size import Sizing

# Settings that hold a duration in milliseconds.
_SPANS = ("retention.ms", "delete.retention.ms", "segment.ms", "min.compaction.lag.ms", "max.compaction.lag.ms")
_NO_LIMIT = 2**63 - 1  # Kafka's default of max.compaction.lag.ms

Basis = dict[str, Any] | None  # the observed facts that a step rests on; None: its topic, subject or build is missing


@dataclass(frozen=True)
class CreateTopic:
    """Creates a topic."""

    name: str
    partitions: int
    replication: int
    configs: tuple[tuple[str, str], ...]
    kept: str
    log_time: str

    sign: ClassVar[str] = "+"
    danger: ClassVar[str | None] = None

    def __str__(self) -> str:
        size = f"{_counted(self.partitions, 'partition')}, {_counted(self.replication, 'replica')}"
        return f"+ topic   {self.name}   {size}, {self.kept}, {self.log_time} time"

    @property
    def undo(self) -> str:
        return f"leftfold apply --delete {self.name}, with the records it has by then"

    def done(self, observed: Observed) -> bool:
        topic = observed.topics.get(self.name)
        return topic is not None and topic.partitions == self.partitions and _has(topic.configs, dict(self.configs))

    def basis(self, observed: Observed) -> Basis:
        return _topic_basis(self.name, observed, dict(self.configs))

    def apply(self, admin: Admin, registry: SchemaRegistry) -> None:
        admin.create(self.name, partitions=self.partitions, replication=self.replication, configs=dict(self.configs))


@dataclass(frozen=True)
class ConfigureTopic:
    """Changes settings of an existing topic."""

    name: str
    changes: tuple[tuple[str, str, str], ...]  # setting, from, to

    sign: ClassVar[str] = "~"

    def __str__(self) -> str:
        return f"~ topic   {self.name}   " + ", ".join(
            f"{k}: {_shown(k, old)} → {_shown(k, new)}" for k, old, new in self.changes
        )

    @property
    def danger(self) -> str | None:
        for setting, old, new in self.changes:
            if setting == "retention.ms" and _shorter(old, new):
                return f"records older than {_shown(setting, new)} are deleted within minutes, and are not coming back"
            if setting == "retention.bytes" and _shorter(old, new):
                return f"records beyond {new} bytes of a partition are deleted within minutes, and are not coming back"
            if setting == "cleanup.policy" and "compact" in new and "compact" not in old:
                return "all but the newest record of each key are removed, and are not coming back"
            if setting == "cleanup.policy" and "delete" in new and "delete" not in old:
                return "records older than the topic's retention are deleted, the newest of a key included"
        return None

    @property
    def undo(self) -> str:
        back = ", ".join(f"{k}={old}" for k, old, _ in self.changes)
        return f"set it back: {back}" + ("; what was deleted stays deleted" if self.danger else "")

    def done(self, observed: Observed) -> bool:
        topic = observed.topics.get(self.name)
        return topic is not None and _has(topic.configs, {k: new for k, _, new in self.changes})

    def basis(self, observed: Observed) -> Basis:
        return _topic_basis(self.name, observed, {k: new for k, _, new in self.changes})

    def apply(self, admin: Admin, registry: SchemaRegistry) -> None:
        admin.set_configs(self.name, {k: new for k, _, new in self.changes})


@dataclass(frozen=True)
class DeleteTopic:
    """Deletes a topic with all its records."""

    name: str
    id: str  # of this very topic: a topic created again under the same name is another one
    records: int
    readers: tuple[str, ...]  # consumer groups

    sign: ClassVar[str] = "-"

    def __str__(self) -> str:
        readers = f", read by {', '.join(self.readers)}" if self.readers else ""
        return f"- topic   {self.name}   with {self.records:,} records{readers}"

    @property
    def danger(self) -> str:
        return f"its {self.records:,} records are deleted, and are not coming back"

    @property
    def undo(self) -> str:
        return "cannot be undone"

    def done(self, observed: Observed) -> bool:
        return self.name not in observed.topics

    def basis(self, observed: Observed) -> Basis:
        return _topic_basis(self.name, observed, {})

    def apply(self, admin: Admin, registry: SchemaRegistry) -> None:
        admin.delete(self.name, self.id)


@dataclass(frozen=True)
class SetCompatibility:
    """Sets the compatibility rule of a subject in the registry."""

    subject: str
    before: str | None
    level: str

    danger: ClassVar[str | None] = None

    @property
    def sign(self) -> str:
        return "~" if self.before else "+"

    def __str__(self) -> str:
        change = f"{self.before} → {self.level}" if self.before else self.level
        return f"{self.sign} rule    {self.subject}   compatibility {change}"

    @property
    def undo(self) -> str:
        return f"set the subject's compatibility back to {self.before or 'none of its own'}"

    def done(self, observed: Observed) -> bool:
        subject = observed.subjects.get(self.subject)
        return subject is not None and subject.compatibility == self.level

    def basis(self, observed: Observed) -> Basis:
        subject = observed.subjects.get(self.subject)
        return None if subject is None else {"compatibility": subject.compatibility}

    def apply(self, admin: Admin, registry: SchemaRegistry) -> None:
        registry.set_compatibility(self.subject, self.level)


@dataclass(frozen=True)
class RegisterSchema:
    """Registers the schema of an event."""

    subject: str
    event: str
    schema: str

    sign: ClassVar[str] = "+"
    danger: ClassVar[str | None] = None

    def __str__(self) -> str:
        return f"+ schema  {self.subject}   {self.event}"

    @property
    def undo(self) -> str:
        return "declare the event as it was: the older version is used again; the new one stays registered"

    def done(self, observed: Observed) -> bool:
        subject = observed.subjects.get(self.subject)
        return subject is not None and subject.registered

    def basis(self, observed: Observed) -> Basis:
        subject = observed.subjects.get(self.subject)
        if subject is None:
            return None
        return {"registered": subject.registered, "acceptable": subject.accepted, "versions": len(subject.versions)}

    def apply(self, admin: Admin, registry: SchemaRegistry) -> None:
        registry.register(self.subject, self.schema)


@dataclass(frozen=True)
class RemoveBuild:
    """Removes a build of a view, with all that belongs to it, once nobody can need it any more."""

    view: str
    build: str
    checkpoints: str | None  # the place where its checkpoint stays, if not on this machine

    sign: ClassVar[str] = "-"

    def __str__(self) -> str:
        stays = f"; its checkpoint stays in {self.checkpoints}" if self.checkpoints else " and checkpoint"
        return f"- build   {self.view} {self.build}   rows, receipts{stays}"

    @property
    def danger(self) -> str:
        return "nobody reads it any more, and nobody can go back to it"

    @property
    def undo(self) -> str:
        return f"declare {self.view} as it was, and leftfold rebuild {self.view}"

    def done(self, observed: Observed) -> bool:
        return self.basis(observed) is None

    def basis(self, observed: Observed) -> Basis:
        builds = [b for b in observed.stored if (b.view, b.id) == (self.view, self.build)]
        return {"role": builds[0].role} if builds else None


Step = CreateTopic | ConfigureTopic | DeleteTopic | SetCompatibility | RegisterSchema | RemoveBuild
Remove = Callable[[str, str], None]  # removes a build (view, build id) from every place that stores it


@dataclass(frozen=True)
class Plan:
    """The steps from what exists to what is declared, with their problems, hazards, changes and sizes."""

    steps: tuple[Step, ...]
    problems: tuple[LeftfoldError, ...]  # if there is any, nothing is applied
    hazards: tuple[Hazard, ...] = ()
    changes: tuple[ViewChange, ...] = ()  # no free views: only Spark knows what those do
    sizing: Sizing | None = None  # None if the load is refused
    durability: tuple[tuple[str, Durability], ...] = ()  # of each declared topic that exists or is created, by its name

    @property
    def summary(self) -> str:
        """The closing line of a plan, in Terraform's form."""
        signs = [step.sign for step in self.steps]
        return f"Plan: {signs.count('+')} to add, {signs.count('~')} to change, {signs.count('-')} to delete."

    def apply(
        self,
        admin: Admin,
        registry: SchemaRegistry,
        before: Callable[[Step], None] = lambda _: None,
        remove: Remove = lambda _view, _build: None,
    ) -> Iterator[Step]:
        """Do the steps in the order in which they were shown. Yield each step once it is done.

        Each step is safe to repeat, so the next apply finishes one that died. `before` is called before each step.
        `remove` removes a build.
        """
        if self.problems:
            raise self.problems[0]
        for step in self.steps:
            before(step)
            if isinstance(step, RemoveBuild):
                remove(step.view, step.build)
            else:
                step.apply(admin, registry)
            yield step


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _shown(setting: str, value: str) -> str:
    if setting not in _SPANS or not value.lstrip("-").isdigit():
        return value
    return "for ever" if int(value) < 0 or int(value) == _NO_LIMIT else text(int(value) * 1_000)


def _shorter(old: str, new: str) -> bool:
    """Return whether the new value keeps less than the old one. -1 keeps everything."""
    if not (old.lstrip("-").isdigit() and new.lstrip("-").isdigit()) or int(new) < 0:
        return False
    return int(old) < 0 or int(new) < int(old)


def _has(configs: dict[str, str], wanted: dict[str, str]) -> bool:
    return all(configs.get(k) == v for k, v in wanted.items())


def _topic_basis(name: str, observed: Observed, configs: dict[str, str]) -> Basis:
    """The facts that a step on a topic rests on. If they change between plan and apply, the plan no longer fits."""
    topic = observed.topics.get(name)
    if topic is None:
        return None
    settings = {k: topic.configs.get(k) for k in sorted(configs)}
    return {"id": topic.id, "partitions": topic.partitions, "replicas": topic.replication, **settings}
