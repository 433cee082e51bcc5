"""What a new build of a view has to read, and whether the log still has it.

A new build reads the log from its start, whatever its windows need: so counts are of all that the log holds. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from leftfold.fold.definition import Definition
from leftfold.fold.durations import SECOND
from leftfold.fold.latest import Latest
from leftfold.kafka.observed import ObservedCluster, ObservedTopic

_UNITS = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))
_FOR_EVER = "-1"  # Kafka's word for no limit


@dataclass(frozen=True)
class History:
    """Whether a topic still holds every record that the values depend on."""

    topic: str  # as declared
    verdict: Literal["complete", "incomplete", "unknown"]
    why: str

    def __str__(self) -> str:
        return f"history of {self.topic}: {self.verdict}: {self.why}"


@dataclass(frozen=True)
class Rebuild:
    reach: int | None  # µs before a read that its values depend on; None: all that ever happened
    records: int  # at most
    seconds: float | None  # for that many; None if nobody measured how fast the view is
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
class Log:
    """The log as it was observed. A topic that was not seen does not exist."""

    cluster: ObservedCluster
    names: Mapping[str, str]  # from a declared topic to the cluster's name of it
    records_per_s: float | None = None  # what the view was measured to fold
    archived: frozenset[str] = frozenset()  # declared topics with archive=True

    def rebuild(self, definition: Definition | Latest) -> Rebuild:
        found = {o.topic: self.cluster.topics.get(self.names.get(o.topic, o.topic)) for o in definition.origins}
        records = sum(topic.records for topic in found.values() if topic is not None)
        rate = self.records_per_s
        back = reach(definition)
        return Rebuild(
            back,
            records,
            None if rate is None else records / rate,
            tuple(self._told(name, _history(name, topic, definition, back)) for name, topic in found.items()),
        )

    def _told(self, name: str, history: History) -> History:
        """What the log lacks a stream cannot read; the archive may have it."""
        if name not in self.archived or history.verdict == "complete":
            return history
        return replace(history, why=f"{history.why}; leftfold rebuild also reads what is archived")


def reach(definition: Definition | Latest) -> int | None:
    """How far before a read the log time of a record can lie that its values depend on; None: any time.

    A window begins up to a step before it is long, and an event may be stamped ahead of its log time. Lateness does not
    add to it: what is late was logged after it happened, so it lies nearer to the read.
    """
    if isinstance(definition, Latest) or definition.lifetime:
        return None
    return max(f.window + f.step for f in definition.windowed if f.window is not None) + definition.future


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
    kept = topic.configs.get("retention.ms", "")
    if topic.configs.get("retention.bytes", _FOR_EVER) != _FOR_EVER:
        return History(name, "unknown", f"{deleted}, and retention.bytes deletes by size, whatever the time")
    if not kept.lstrip("-").isdigit():
        return History(name, "unknown", f"{deleted}, and how long it keeps records was not seen")
    if kept == _FOR_EVER:
        return History(name, "unknown", f"{deleted} although it is kept for ever: somebody did that")
    retention = int(kept) * 1_000
    if retention < needed:
        short = f"{deleted}: kept {span(retention)}, needed {span(needed)}"
        return History(name, "incomplete", f"{short}; windows are too small until they have filled again")
    return History(
        name, "complete", f"kept {span(retention)}, needed {span(needed)}, if only retention deleted records"
    )


def span(us: int) -> str:
    """A duration to its two largest units, rounded up: for people, where `durations.text` is exact."""
    seconds = -(-us // SECOND)
    for place, (unit, size) in enumerate(_UNITS[:-1]):
        if seconds >= size:
            smaller, least = _UNITS[place + 1]
            count, rest = divmod(-(-seconds // least) * least, size)
            return f"{count}{unit} {rest // least}{smaller}" if rest else f"{count}{unit}"
    return f"{seconds}s"
