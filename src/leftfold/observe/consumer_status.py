"""The status of the groups of declared consumers and stream scorers: members, and lag in records. Read-only."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from leftfold.declare.catalog import Catalog
from leftfold.kafka.admin import Admin
from leftfold.kafka.observe import observe_groups
from leftfold.kafka.observed import ObservedCluster
from leftfold.settings import Kafka


@dataclass(frozen=True)
class ConsumerStatus:
    consumer: str
    kind: Literal["consumer", "scorer"]
    group: str  # its name in the cluster
    state: str | None  # as Kafka names it, in lower case: stable, empty, …; None if there is no such group
    members: int
    lag: int | None  # offsets between position and end; None without a position, or if a database keeps it

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def consumer_statuses(
    admin: Admin, kafka: Kafka, catalog: Catalog, groups: Mapping[str, str], topics: Iterable[str]
) -> list[ConsumerStatus]:
    """Return the status of each consumer. `groups` are the groups of consumers, `topics` those that they read."""
    if not groups:
        return []
    in_database = {name for name, consumer in catalog.consumers.items() if consumer.into is not None}
    seen = observe_groups(admin, kafka, topics)
    return statuses_in(seen, groups, scorers=catalog.scorers.keys(), in_database=in_database)


def statuses_in(
    seen: ObservedCluster, groups: Mapping[str, str], *, scorers: Collection[str], in_database: Collection[str]
) -> list[ConsumerStatus]:
    found = []
    for name, group in groups.items():
        kind: Literal["consumer", "scorer"] = "scorer" if name in scorers else "consumer"
        at = seen.groups.get(group)
        if at is None:
            found.append(ConsumerStatus(name, kind, group, None, 0, None))
        else:
            known = bool(at.positions) and name not in in_database
            lag = sum(seen.lag(at).values()) if known else None
            found.append(ConsumerStatus(name, kind, group, at.state.lower(), at.members, lag))
    return found
