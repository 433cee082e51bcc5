"""The shape of every hazard that a plan reports, and the facts that the rules read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from leftfold.declare.catalog import Catalog
from leftfold.declare.topic import Topic
from leftfold.errors import SourceLine
from leftfold.fold.durations import SECOND
from leftfold.kafka.observed import ObservedTopic
from leftfold.observe.observation import Observed
from leftfold.settings import Profile, group_id
from leftfold.sizing.catalog_size import Sizing

# danger: records, their order or correct values can be lost, or personal data that must be erased can stay.
# warning: it will cause trouble, but nothing is lost.
# note: nothing is wrong; it is told because only a person can judge it.
Level = Literal["danger", "warning", "note"]
_SIGNS: dict[Level, str] = {"danger": "!", "warning": "·", "note": "–"}


@dataclass(frozen=True)
class Hazard:
    """A danger, warning or note of a plan.

    `code` never changes its meaning; it is a heading of docs/reference/hazards.md.
    """

    code: str
    level: Level
    subject: str  # "topic clicks", "view user_activity", "group billing", "broker 2", "cluster", "online store"
    what: str  # one sentence, with the numbers
    why: str  # at most two sentences
    fix: str
    source: SourceLine | None = None

    def __str__(self) -> str:
        at = f"   ({self.source})" if self.source else ""
        first = f"{_SIGNS[self.level]} {self.level}[{self.code}] {self.subject}: {self.what}{at}"
        return f"{first}\n    why: {self.why}\n    fix: {self.fix}"

    @property
    def rank(self) -> int:
        """The place of its level among all: dangers are read first."""
        return list(_SIGNS).index(self.level)

    def as_json(self) -> dict[str, Any]:
        return {
            "code": self.code,
            "level": self.level,
            "subject": self.subject,
            "what": self.what,
            "why": self.why,
            "fix": self.fix,
            "source": str(self.source) if self.source else None,
        }


# Facts are all that a rule knows. Rules are pure: the same facts give the same hazards.


# The longest outage of a reader that must lose nothing, unless the user says otherwise: a long weekend.
DOWNTIME = 3 * 86_400 * SECOND


@dataclass(frozen=True)
class Facts:
    """All that a rule knows when it looks for hazards."""

    observed: Observed
    catalog: Catalog  # empty if nothing is declared for the cluster
    profile: Profile
    downtime: int = DOWNTIME  # µs
    sizing: Sizing | None = None  # None if nothing was sized

    def name(self, topic: Topic[Any]) -> str:
        """The topic's name in the cluster."""
        return self.profile.topic_name(topic.name, external=topic.external)

    def group(self, consumer: str) -> str:
        """The name of a declared consumer's group."""
        return group_id(self.profile.namespace, consumer)

    @property
    def undeclared(self) -> list[ObservedTopic]:
        """The topics that are not declared. Other rules, which know more, judge the declared ones."""
        declared = {self.name(topic) for topic in self.catalog.topics.values()}
        return [topic for name, topic in self.observed.topics.items() if name not in declared]

    def found(self, topic: Topic[Any]) -> ObservedTopic | None:
        return self.observed.topics.get(self.name(topic))


Rule = Callable[[Facts], Iterator[Hazard]]
