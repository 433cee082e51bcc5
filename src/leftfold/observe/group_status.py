"""The status of consumer groups: their members, and their lag in records and in seconds. Read-only.

A view's position is shown as a group too: a run commits it for display, under the view's name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from leftfold import clock
from leftfold.fold.durations import SECOND
from leftfold.kafka.admin import Admin
from leftfold.kafka.observe import first_unread, observe_groups
from leftfold.kafka.observed import ObservedCluster, ObservedGroup
from leftfold.settings import Kafka


@dataclass(frozen=True)
class PositionStatus:
    partition: int
    position: int  # the offset that the group reads next
    end: int  # the high-water mark
    lag: int  # offsets between the two, as Kafka's own tools count them


@dataclass(frozen=True)
class GroupTopicStatus:
    topic: str  # its name in the cluster
    members: int  # members that read it
    lag: int
    lag_s: float | None  # the age of the oldest record that was not read; 0 if there is none; None if unknown
    positions: tuple[PositionStatus, ...]


@dataclass(frozen=True)
class GroupStatus:
    group: str
    view: str | None  # the view whose position it shows; it never has members
    state: str  # as Kafka names it, in lower case: stable, empty, …
    members: int
    idle: int  # members without a partition
    topics: tuple[GroupTopicStatus, ...]

    @property
    def lag(self) -> int:
        return sum(topic.lag for topic in self.topics)

    @property
    def lag_s(self) -> float | None:
        ages = [topic.lag_s for topic in self.topics]
        return None if None in ages else max((age for age in ages if age is not None), default=0.0)

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "lag": self.lag, "lag_s": self.lag_s}


def group_statuses(kafka: Kafka, admin: Admin, topics: list[str] | None, views: Mapping[str, str]) -> list[GroupStatus]:
    """Return the status of every group that has a position or a member in one of `topics`; None means all topics.

    `views` gives the view whose position a group shows.
    """
    seen = observe_groups(admin, kafka, topics)
    behind = {name: unread for name, group in seen.groups.items() if (unread := _behind(seen, group))}
    waiting, now_us = first_unread(kafka, seen, behind), clock.now_us()
    return [
        GroupStatus(
            name,
            views.get(name),
            group.state.lower(),
            group.members,
            group.idle,
            tuple(
                _of_topic(seen, group, topic, waiting.get(name, {}).get(topic), now_us)
                for topic in sorted({*group.positions, *group.owners})
            ),
        )
        for name, group in sorted(seen.groups.items())
    ]


def _behind(seen: ObservedCluster, group: ObservedGroup) -> dict[str, list[int]]:
    partitions: dict[str, list[int]] = {}
    for topic, number, position, part in seen.places(group):
        if part.end > position:
            partitions.setdefault(topic, []).append(number)
    return partitions


def _of_topic(
    seen: ObservedCluster, group: ObservedGroup, topic: str, waiting: Mapping[int, int] | None, now_us: int
) -> GroupTopicStatus:
    positions = tuple(
        PositionStatus(number, position, part.end, max(0, part.end - position))
        for name, number, position, part in sorted(seen.places(group), key=lambda place: place[1])
        if name == topic
    )
    lag = sum(place.lag for place in positions)
    oldest = min(waiting.values(), default=None) if waiting else None
    age = 0.0 if lag == 0 or waiting == {} else None if oldest is None else max(0, now_us - oldest) / SECOND
    return GroupTopicStatus(topic, group.owners.get(topic, 0), lag, age, positions)
