"""The records that a new build of a view has to read, and whether the log still holds them.

A new build reads the log from its start, whatever its windows need. So counts cover all that the log holds. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from leftfold.fold.definition import Definition
from leftfold.fold.durations import SECOND
from leftfold.fold.latest import Latest
from leftfold.fold.reach import value_reach
from leftfold.kafka.observed import ObservedCluster, ObservedTopic
from leftfold.units import span

_FOR_EVER = "-1"  # Kafka's word for no limit


@dataclass(frozen=True)
class History:
    """The verdict on whether a topic still holds every record that the values depend on."""

    topic: str  # as declared
    verdict: Literal["complete", "incomplete", "unknown"]
    why: str

    def __str__(self) -> str:
        return f"history of {self.topic}: {self.verdict}: {self.why}"


@dataclass(frozen=True)
class RebuildEstimate:
    """The records that a new build reads, the time it takes, and whether the log still has them."""

    reach: int | None  # µs before a read from which its values need records; None: all that ever happened
    records: int  # at most
    seconds: float | None  # time to read that many; None if the view's speed was not measured
    histories: tuple[History, ...]

    @property
    def complete(self) -> bool:
        return all(history.verdict == "complete" for history in self.histories)

    def lines(self) -> list[str]:
        if not self.records and self.complete:
            return ["nothing to read: the log is empty"]
        count = f"at most {self.records:,} records"
        if self.seconds is not None:
            count += f", about {span(round(self.seconds * SECOND))}"
        elif self.records:
            count += "; how long is not known: leftfold plan --probe measures"
        needed = "all of the log" if self.reach is None else f"the last {span(self.reach)}"
        return [f"reads the log from its start: {count}", f"needs {needed}", *map(str, self.histories)]

    def as_json(self) -> dict[str, Any]:
        return {
            "reach_s": None if self.reach is None else self.reach / SECOND,
            "at_most_records": self.records,
            "seconds": None if self.seconds is None else round(self.seconds, 1),
            "history": [{"topic": h.topic, "verdict": h.verdict, "why": h.why} for h in self.histories],
        }


@dataclass(frozen=True)
class TopicLog:
    """The log as it was observed. A topic that was not seen counts as not existing."""

    cluster: ObservedCluster
    names: Mapping[str, str]  # from a topic's declared name to its name in the cluster
    records_per_s: float | None = None  # the measured speed of the view
    archived: frozenset[str] = frozenset()  # declared topics with archive=True

    def rebuild(self, definition: Definition | Latest) -> RebuildEstimate:
        topics = {o.topic: self.cluster.topics.get(self.names.get(o.topic, o.topic)) for o in definition.origins}
        records = sum(topic.records for topic in topics.values() if topic is not None)
        rate = self.records_per_s
        back = value_reach(definition)
        return RebuildEstimate(
            back,
            records,
            None if rate is None else records / rate,
            tuple(self._with_archive(name, _history(name, topic, definition, back)) for name, topic in topics.items()),
        )

    def _with_archive(self, name: str, history: History) -> History:
        """Mention the archive if the history of an archived topic is not complete.

        A stream cannot read what the log lacks, but the archive may have it.
        """
        if name not in self.archived or history.verdict == "complete":
            return history
        return replace(history, why=f"{history.why}; leftfold rebuild also reads what is archived")


def _history(name: str, topic: ObservedTopic | None, definition: Definition | Latest, needed: int | None) -> History:
    if topic is None:
        return History(name, "complete", "the topic is new")
    policy = topic.configs.get("cleanup.policy", "delete").split(",")
    if isinstance(definition, Latest) and definition.code is None and policy == ["compact"]:
        return History(name, "complete", "compaction keeps the newest record of every key")
    if "compact" in policy:
        return History(name, "unknown", "compaction deletes older records of a key")
    gone = sum(p.start for p in topic.spread)
    if not gone:
        return History(name, "complete", "nothing of it was ever deleted")
    deleted = f"the first {gone:,} offsets are deleted"
    if isinstance(definition, Latest):
        return History(name, "unknown", f"{deleted}, and what the function needs of them is not known")
    return _retained(name, topic, needed, deleted)


def _retained(name: str, topic: ObservedTopic, needed: int | None, deleted: str) -> History:
    if needed is None:
        return History(name, "incomplete", f"{deleted}, and it has a feature of everything that ever happened")
    retention_ms = topic.configs.get("retention.ms", "")
    if topic.configs.get("retention.bytes", _FOR_EVER) != _FOR_EVER:
        return History(name, "unknown", f"{deleted}, and retention.bytes deletes by size, whatever the time")
    if not retention_ms.lstrip("-").isdigit():
        return History(name, "unknown", f"{deleted}, and how long it keeps records was not seen")
    if retention_ms == _FOR_EVER:
        return History(name, "unknown", f"{deleted} although it is kept for ever: somebody did that")
    retention = int(retention_ms) * 1_000
    if retention < needed:
        short = f"{deleted}: kept {span(retention)}, needed {span(needed)}"
        return History(name, "incomplete", f"{short}; windows are too small until they have filled again")
    return History(
        name, "complete", f"kept {span(retention)}, needed {span(needed)}, if only retention deleted records"
    )
