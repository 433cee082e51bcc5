"""All that is known when hazards are looked for. Rules are pure: the same facts, the same hazards."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from leftfold.fold.durations import SECOND
from leftfold.kafka.observed import ObservedTopic
from leftfold.plan.hazards.hazard import Hazard
from leftfold.plan.observe import Observed
from leftfold.plan.sizing.sizing import Sizing
from leftfold.settings import Profile
from leftfold.spec.catalog import Catalog
from leftfold.spec.topic import Topic

# The longest outage of a reader that is to be survived, unless a person says otherwise: a long weekend.
DOWNTIME = 3 * 86_400 * SECOND


@dataclass(frozen=True)
class Facts:
    observed: Observed
    catalog: Catalog  # empty for a cluster of which nothing is declared
    profile: Profile
    downtime: int = DOWNTIME  # µs
    sizing: Sizing | None = None  # None if nothing was sized

    def name(self, topic: Topic[Any]) -> str:
        """As the cluster calls it."""
        return self.profile.topic_name(topic.name, external=topic.external)

    @property
    def undeclared(self) -> list[ObservedTopic]:
        """Topics of which only the cluster tells: of declared ones other rules know more."""
        declared = {self.name(topic) for topic in self.catalog.topics.values()}
        return [topic for name, topic in self.observed.topics.items() if name not in declared]

    def found(self, topic: Topic[Any]) -> ObservedTopic | None:
        return self.observed.topics.get(self.name(topic))


Rule = Callable[[Facts], Iterator[Hazard]]
