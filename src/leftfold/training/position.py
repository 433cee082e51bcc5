"""The part of a topic that a training set is made from: found by time, frozen as offsets.

A position consists of offsets, schema ids, and the offset up to which re-driven records count. The same position gives
the same records.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from leftfold.declare.catalog import DeclaredView
from leftfold.declare.companions import redrive_topic
from leftfold.declare.free import View
from leftfold.declare.topic import Topic
from leftfold.errors import RunError
from leftfold.fold.reach import CLOCK_SLACK, value_reach
from leftfold.offsets import Ranges
from leftfold.run.deployment import Deployment, TopicPlace

# From a moment (µs; None: from the beginning) to the first offset of each partition that was logged since, and the
# partitions whose oldest records are gone and might have been needed.
Starts = Callable[[int | None], tuple[dict[int, int], Sequence[int]]]


@dataclass(frozen=True)
class FrozenPosition:
    """The part of one topic that was read. The topic has its name in the cluster."""

    topic: str
    id: str  # a topic that is deleted and created again keeps its name, but gets another id
    starts: dict[int, int]
    ends: dict[int, int]
    redriven: int  # re-driven records before this offset (of the re-drive topic) replace their originals
    schemas: tuple[int, ...]  # ids of the writer schemas
    rejected: tuple[int, ...]  # schema ids in records that the registry never gave out

    def as_json(self) -> dict[str, Any]:
        return {
            "topic": self.topic,
            "id": self.id,
            "ranges": Ranges.between({self.topic: self.starts}, {self.topic: self.ends}).as_json(),
            "starts": {str(p): at for p, at in self.starts.items()},
            "ends": {str(p): at for p, at in self.ends.items()},
            "redriven": self.redriven,
            "schemas": list(self.schemas),
            "rejected": list(self.rejected),
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> FrozenPosition:
        return cls(
            document["topic"],
            document["id"],
            {int(p): at for p, at in document["starts"].items()},
            {int(p): at for p, at in document["ends"].items()},
            document["redriven"],
            tuple(document["schemas"]),
            tuple(document["rejected"]),
        )


def read_by(views: Mapping[str, DeclaredView]) -> list[tuple[Topic[Any], list[DeclaredView], frozenset[str]]]:
    """Return each topic that the views read, its readers, and the fields of its events that are decoded.

    All views of one event decode the same fields, so the topics that one view reads together have one shape.
    """
    wanted: dict[str, tuple[Topic[Any], list[DeclaredView]]] = {}
    for view in views.values():
        for topic in view.reading.topics:
            wanted.setdefault(topic.name, (topic, []))[1].append(view)
    return [
        (
            topic,
            readers,
            frozenset().union(*(v.fields for v in views.values() if v.reading.topics[0].event is topic.event)),
        )
        for topic, readers in wanted.values()
    ]


def find_position(
    place: TopicPlace, readers: Sequence[DeclaredView], span: tuple[int, int], deployment: Deployment, starts: Starts
) -> tuple[FrozenPosition, tuple[int, ...]]:
    """Return the position to read for moments in `span` (µs), and the partitions whose needed head is gone.

    It reaches from the first record that a window can need to the last whose transaction has ended by now. If the log
    is in time order and all views have windows, it ends after the last record that a label can see.
    """
    admin, topic, name, partitions = deployment.engines.admin, place.topic, place.name, place.partitions
    ends = admin.stable_offsets(name, partitions)
    definitions = [v.definition for v in readers]
    reaches = [None if isinstance(d, View) else value_reach(d) for d in definitions]
    known = [reach for reach in reaches if reach is not None]
    since = None
    # A copy gets records long after they were first logged, so only a log with the brokers' own times has an end.
    if topic.log_time == "broker" and not topic.compacted and len(known) == len(reaches):
        since = span[0] - max(known) - CLOCK_SLACK
        beyond = span[1] + topic.lateness + CLOCK_SLACK
        for partition, at in admin.offsets_at(name, partitions, beyond).items():
            ends[partition] = ends[partition] if at is None else min(at, ends[partition])
    found, lacking = starts(since)
    begins = {p: min(at, ends[p]) for p, at in found.items()}
    until = 0
    if not topic.compacted:
        redrives = deployment.profile.topic_name(redrive_topic(topic.name))
        until = admin.stable_offsets(redrives, 1)[0] if redrives in admin.partitions([redrives]) else 0
    topic_id = admin.topic_ids([name])[name]
    schemas = tuple(sorted(place.schemas))
    gone = () if topic.compacted else tuple(lacking)
    return FrozenPosition(name, topic_id, begins, ends, until, schemas, ()), gone


def refuse_another(deployment: Deployment, frozen: FrozenPosition) -> None:
    """Raise if the topic was deleted and made again since the position was frozen."""
    topic_id = deployment.engines.admin.topic_ids([frozen.topic]).get(frozen.topic)
    if topic_id != frozen.id:
        raise RunError(
            "history-gone",
            f"topic {frozen.topic} is not the one whose offsets this needs",
            why=f"it was deleted and recreated since: its id was {frozen.id}, and is {topic_id} now",
            fix="make a new training set from what the topic has now",
        )


def gone_from_log(deployment: Deployment, frozen: FrozenPosition, partitions: int) -> RunError | None:
    """Return the error that the log no longer has all records of a position; None if it has."""
    firsts = deployment.engines.admin.start_offsets(frozen.topic, partitions)
    gaps = {p: (at, min(firsts[p], frozen.ends[p])) for p, at in frozen.starts.items() if at < firsts.get(p, 0)}
    gaps = {p: (a, b) for p, (a, b) in gaps.items() if a < b}
    if not gaps:
        return None
    ranges = ", ".join(f"{frozen.topic}/{p}: {a} to {b - 1} ({b - a})" for p, (a, b) in sorted(gaps.items()))
    return RunError(
        "history-gone",
        f"the log no longer has all offsets that this needs: {ranges}",
        why="retention or a person deleted the oldest records of these partitions",
        fix="make a new training set from what the log still has; archive=True keeps what retention deletes",
    )


def schemas_of(deployment: Deployment, frozen: FrozenPosition, known: Mapping[int, str]) -> dict[int, str]:
    """Return the writer schemas of a position by id. Raise if the registry no longer has one of them."""
    found = dict(known)
    for schema_id in frozen.schemas:
        if schema_id not in found and (schema := deployment.engines.registry.schema(schema_id)) is not None:
            found[schema_id] = schema
    missing = [schema_id for schema_id in frozen.schemas if schema_id not in found]
    if missing:
        raise RunError(
            "schema-gone",
            f"the registry no longer has schema {missing[0]}, with which records of {frozen.topic} were read",
            why="without it the same records cannot be read again",
            fix="bring back the registry's schemas; or make a new training set, without --verify",
        )
    return {schema_id: found[schema_id] for schema_id in frozen.schemas}
