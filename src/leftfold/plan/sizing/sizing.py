"""The sizes of a whole catalog: every topic whose rate is known, every view of those, and what they are together."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from leftfold.kafka.observed import ObservedTopic
from leftfold.kafka.sample import Sample
from leftfold.plan.sizing.constants import Constants
from leftfold.plan.sizing.explain import explain_partitions
from leftfold.plan.sizing.line import Advice, Line, amount, number, table
from leftfold.plan.sizing.load import Given, Load, load_of
from leftfold.plan.sizing.log_size import brokers, log_advice, log_lines
from leftfold.plan.sizing.tools import wrong_tool
from leftfold.plan.sizing.view_size import size_view
from leftfold.spec.catalog import Catalog, DeclaredView
from leftfold.spec.free import View


@dataclass(frozen=True)
class Known:
    """What is known of one topic beside its declaration."""

    sample: Sample | None = None
    observed: ObservedTopic | None = None
    given: Given = field(default_factory=Given)


@dataclass(frozen=True)
class TopicSize:
    topic: str
    load: Load
    lines: tuple[Line, ...]
    advice: tuple[Advice, ...]
    why: tuple[str, ...]  # it has as many partitions as it has, in words

    @property
    def heading(self) -> str:
        rate, size = number(self.load.rate), amount(self.load.record_bytes, "B")
        return f"topic {self.topic}   {rate} records/s ({self.load.rate_from}) of {size}"

    def asks(self) -> Iterator[str]:
        found = {line.name: amount(line.result, line.unit) for line in self.lines}  # of two of a name the last decides
        has = "" if self.load.partitions is None else f", has {number(self.load.partitions)}"
        yield f"{found['partitions, at the least']} at the least{has}"
        yield found["brokers"]
        if "disk in all" in found:
            yield f"{found['disk in all']} on disks"


@dataclass(frozen=True)
class ViewSize:
    view: str
    load: Load
    lines: tuple[Line, ...]
    advice: tuple[Advice, ...]

    def result(self, name: str) -> float | None:
        """None for a line that could not be reckoned: nobody knows the keys."""
        return next((line.result for line in self.lines if line.name == name), None)

    def asks(self) -> Iterator[str]:
        found = {line.name: amount(line.result, line.unit) for line in self.lines}
        yield found["Spark cores"]
        if self.result("freshness, usual") == math.inf:
            yield "falls behind for good"
        else:
            yield f"fresh in {found['freshness, usual']}"
            yield f"an outage of {amount(self.load.downtime_s, 's')} caught up in {found['catch-up']}"
        yield f"{found['online bytes per entity']} online per entity"
        if "state bytes" in found:
            yield f"{found['state bytes']} of state"
        if "online bytes, at most" in found:
            yield f"at most {found['online bytes, at most']} online"


@dataclass(frozen=True)
class Sizing:
    topics: tuple[TopicSize, ...]
    views: tuple[ViewSize, ...]
    totals: tuple[Line, ...]
    unknown: tuple[str, ...]  # topics without a known rate
    unsized: tuple[str, ...]  # views of those, and free ones, of which only Spark knows what they keep
    constants: Constants

    def measured_rate(self, view: str) -> float | None:
        """Records a second in a catch-up, if the constants behind it are of machines that were measured."""
        if not self.constants.measured:
            return None
        return next((v.result("rate of full batches") for v in self.views if v.view == view), None)

    def summary(self) -> Iterator[str]:
        """A line for each topic and view: what it asks for."""
        for topic in self.topics:
            yield f"{topic.heading}: {', '.join(topic.asks())}"
        for view in self.views:
            yield f"view {view.view}   {', '.join(view.asks())}"
        if self.unknown:
            yield f"not sized, because nothing tells their rate: topics {', '.join(self.unknown)}"
        yield f"constants: {self.constants.source}"

    def __str__(self) -> str:
        return "\n\n".join(self._parts())

    def _parts(self) -> Iterator[str]:
        for topic in self.topics:
            yield "\n".join([_section(topic.heading, topic), *(f"  {line}" for line in topic.why)])
        for view in self.views:
            yield _section(f"view {view.view}", view)
        if self.totals:
            yield f"together\n{table(self.totals)}"
        if self.unknown:
            yield f"not sized, because nothing tells their rate: topics {', '.join(self.unknown)}"
        if self.unsized:
            yield (
                "not sized, because they read such a topic, or only Spark knows what they keep: views "
                + ", ".join(self.unsized)
            )
        yield f"constants: {self.constants.source}"

    def as_json(self) -> dict[str, Any]:
        return {
            "topics": [_document(t.topic, t) for t in self.topics],
            "views": [_document(v.view, v) for v in self.views],
            "totals": [line.as_json() for line in self.totals],
            "unknown": list(self.unknown),
            "unsized": list(self.unsized),
            "constants": self.constants.as_json(),
        }


def _section(heading: str, part: TopicSize | ViewSize) -> str:
    return f"{heading}\n{table(part.lines)}"


def _document(name: str, part: TopicSize | ViewSize) -> dict[str, Any]:
    return {
        "name": name,
        "rate": part.load.rate,
        "rate_from": part.load.rate_from,
        "lines": [line.as_json() for line in part.lines],
        "advice": [advice.as_json() for advice in part.advice],
    }


def size_catalog(
    catalog: Catalog,
    known: Mapping[str, Known],
    constants: Constants,
    *,
    keys: Mapping[str, int] | None = None,
    namespace: str = "",
    cores: int | None = None,
) -> Sizing:
    """`known` is by the declared name of a topic, `keys` by that of a view: how many entities it has. Left out, a view
    that is keyed as its topic has as many as that, and of any other nobody knows. `cores`, if given, each view has.
    """
    loads = {name: load for name in catalog.topics if (load := _load(catalog, name, known.get(name, Known())))}
    topics = tuple(
        TopicSize(
            name,
            load,
            log_lines(load, constants),
            (*log_advice(load, constants), *wrong_tool(load, constants)),
            explain_partitions(load, key=" and ".join(key.name for key in catalog.topics[name].key)),
        )
        for name, load in loads.items()
    )
    views, unsized = [], []
    for name, view in catalog.views.items():
        read = [loads.get(topic.name) for topic in view.reading.topics]
        if isinstance(view.definition, View) or None in read:
            unsized.append(name)
            continue
        load = replace(together([one for one in read if one is not None]), keys=_keys(view, loads, keys or {}))
        sized = size_view(view.definition, load, constants, cores=cores, namespace=namespace)
        views.append(ViewSize(name, load, sized.lines, sized.advice))
    unknown = tuple(name for name in catalog.topics if name not in loads)
    return Sizing(topics, tuple(views), tuple(_totals(topics, views, constants)), unknown, tuple(unsized), constants)


def _keys(view: DeclaredView, loads: Mapping[str, Load], said: Mapping[str, int]) -> int | None:
    assert not isinstance(view.definition, View)
    if view.name in said:
        return said[view.name]
    by = {k.name for k in view.definition.keys}
    as_keyed = view.reading.stream is None and all(by == {k.name for k in t.key} for t in view.reading.topics)
    return together([loads[t.name] for t in view.reading.topics]).keys if as_keyed else None


def _load(catalog: Catalog, name: str, known: Known) -> Load | None:
    readers = sum(name in [t.name for t in view.reading.topics] for view in catalog.views.values())
    return load_of(
        catalog.topics[name],
        readers=readers + 1,  # and the intake of the topic
        sample=known.sample,
        observed=known.observed,
        given=known.given,
    )


def together(loads: list[Load]) -> Load:
    """What a view reads of several topics of one event; its keys are taken to be the same ones."""
    if len(loads) == 1:
        return loads[0]
    keys = [load.keys for load in loads if load.keys is not None]
    return Load(
        rate=sum(load.rate for load in loads),
        record_bytes=sum(load.rate * load.record_bytes for load in loads) / sum(load.rate for load in loads),
        keys=max(keys) if len(keys) == len(loads) else None,
        lateness_s=max(load.lateness_s for load in loads),
        downtime_s=max(load.downtime_s for load in loads),
        catch_up_s=min(load.catch_up_s for load in loads),
        partitions=sum(load.partitions or 1 for load in loads),
        rate_from=loads[0].rate_from,
    )


def _totals(topics: tuple[TopicSize, ...], views: list[ViewSize], constants: Constants) -> Iterator[Line]:
    """Brokers are shared: what the busiest topic alone asks for is too few for several."""
    if topics:
        written = sum(t.load.rate * t.load.record_bytes * t.load.replication for t in topics)
        yield Line("written, with replicas", "all topics", _sum(topics, "network in, all brokers"), written, "B/s")
        disk = [line.result for t in topics for line in t.lines if line.name == "disk in all"]
        shown = " + ".join(amount(one, "B") for one in disk)
        if disk:
            yield Line("disk", "all topics", shown, sum(disk), "B")
        most = max(brokers(t.load, constants) for t in topics)
        needed = max(most, -(-int(written) // int(constants.broker_bytes_s)) + 1)
        yield Line(
            "brokers",
            "the larger of what one topic asks for, and all writes ÷ what one broker writes, rounded up, and one more",
            f"max({most}, {amount(written, 'B/s')} ÷ {amount(constants.broker_bytes_s, 'B/s')} + 1)",
            needed,
            "brokers",
        )
    for name, unit in (("Spark cores", "cores"), ("state bytes", "B"), ("online bytes, at most", "B")):
        found = [result for view in views if (result := view.result(name)) is not None]
        if found:
            yield Line(
                name, "all views whose keys are known", " + ".join(amount(r, unit) for r in found), sum(found), unit
            )


def _sum(parts: tuple[TopicSize, ...], name: str) -> str:
    return " + ".join(amount(line.result, line.unit) for part in parts for line in part.lines if line.name == name)
