"""The sizes of a whole catalog: every topic with a known rate, its views and consumers, and the totals."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from leftfold.declare.catalog import Catalog, DeclaredView
from leftfold.declare.free import View
from leftfold.kafka.observed import ObservedTopic
from leftfold.kafka.sample import Sample
from leftfold.sizing.constants import Constants
from leftfold.sizing.consumer_size import ConsumerSize, size_consumer
from leftfold.sizing.line import Advice, Line, table
from leftfold.sizing.load import Given, Load, load_of
from leftfold.sizing.log_size import brokers, explain_partitions, log_advice, log_lines
from leftfold.sizing.view_size import size_view
from leftfold.sizing.wrong_tool import Needs, WrongTool, readers, wrong_tools
from leftfold.units import amount, number


@dataclass(frozen=True)
class Known:
    """The facts about one topic that are known in addition to its declaration."""

    sample: Sample | None = None
    observed: ObservedTopic | None = None
    given: Given = field(default_factory=Given)


@dataclass(frozen=True)
class TopicSize:
    """The sizes of one topic, and the advice on them."""

    topic: str
    load: Load
    lines: tuple[Line, ...]
    advice: tuple[Advice, ...]
    why: tuple[str, ...]  # the reasons for its number of partitions, in words

    @property
    def heading(self) -> str:
        rate, size = number(self.load.rate), amount(self.load.record_bytes, "B")
        return f"topic {self.topic}   {rate} records/s ({self.load.rate_from}) of {size}"

    def asks(self) -> Iterator[str]:
        amounts = {line.name: amount(line.result, line.unit) for line in self.lines}  # the last line of a name counts
        has = "" if self.load.partitions is None else f", has {number(self.load.partitions)}"
        yield f"{amounts['partitions, at the least']} at the least{has}"
        yield amounts["brokers"]
        if "disk in all" in amounts:
            yield f"{amounts['disk in all']} on disks"


@dataclass(frozen=True)
class ViewSize:
    """The sizes of one view, and the advice on them."""

    view: str
    load: Load
    lines: tuple[Line, ...]
    advice: tuple[Advice, ...]

    def result(self, name: str) -> float | None:
        """The result of a line; None if the line is missing, because the number of keys is not known."""
        return next((line.result for line in self.lines if line.name == name), None)

    def asks(self) -> Iterator[str]:
        amounts = {line.name: amount(line.result, line.unit) for line in self.lines}
        yield amounts["Spark cores"]
        if self.result("freshness, usual") == math.inf:
            yield "falls behind for good"
        else:
            yield f"fresh in {amounts['freshness, usual']}"
            caught_up = f"an outage of {amount(self.load.downtime_s, 's')} caught up in {amounts['catch-up']}"
            if (more := self.result("cores, to catch up")) is not None and more > (self.result("Spark cores") or 0):
                in_time = amount(self.load.catch_up_s, "s")
                caught_up += f" (in {in_time} with {amounts['cores, to catch up']})"
            yield caught_up
        yield f"{amounts['online bytes per entity']} online per entity"
        if "state bytes" in amounts:
            yield f"{amounts['state bytes']} of state"
        if "online bytes, at most" in amounts:
            yield f"at most {amounts['online bytes, at most']} online"


@dataclass(frozen=True)
class Sizing:
    """The sizes of all topics, views and consumers of a catalog, with totals."""

    topics: tuple[TopicSize, ...]
    views: tuple[ViewSize, ...]
    consumers: tuple[ConsumerSize, ...]
    totals: tuple[Line, ...]
    unknown: tuple[str, ...]  # topics without a known rate
    unsized: tuple[str, ...]  # views of such topics, and free views: only Spark knows what these keep
    untimed: tuple[str, ...]  # consumers whose handler's time, or topic's rate, is not known
    wrong_tools: tuple[WrongTool, ...]
    constants: Constants

    def measured_rate(self, view: str) -> float | None:
        """The records per second of a view in a catch-up; None if the constants were not measured."""
        if not self.constants.measured:
            return None
        return next((v.result("rate of full batches") for v in self.views if v.view == view), None)

    def summary(self) -> Iterator[str]:
        """Yield one line for each topic, view and consumer, with what it needs."""
        for topic in self.topics:
            yield f"{topic.heading}: {', '.join(topic.asks())}"
        for view in self.views:
            yield f"view {view.view}   {', '.join(view.asks())}"
        for consumer in self.consumers:
            yield f"consumer {consumer.consumer}   {', '.join(consumer.asks())}"
        yield from self._not_sized()
        yield f"constants: {self.constants.source}"

    def __str__(self) -> str:
        return "\n\n".join(self._parts())

    def _parts(self) -> Iterator[str]:
        for topic in self.topics:
            yield "\n".join([_section(topic.heading, topic), *(f"  {line}" for line in topic.why)])
        for view in self.views:
            yield _section(f"view {view.view}", view)
        for consumer in self.consumers:
            yield _section(f"consumer {consumer.consumer}", consumer)
        if self.totals:
            yield f"together\n{table(self.totals)}"
        yield from self._not_sized()
        if self.unsized:
            yield (
                "not sized, because they read such a topic, or only Spark knows what they keep: views "
                + ", ".join(self.unsized)
            )
        yield f"constants: {self.constants.source}"

    def _not_sized(self) -> Iterator[str]:
        if self.unknown:
            yield f"not sized, because nothing tells their rate: topics {', '.join(self.unknown)}"
        if self.untimed:
            yield (
                f"not sized, because nothing tells their rate or how long a record takes (--handler "
                f"{self.untimed[0]}=5ms): consumers {', '.join(self.untimed)}"
            )

    def as_json(self) -> dict[str, Any]:
        return {
            "topics": [_document(t.topic, t) for t in self.topics],
            "views": [_document(v.view, v) for v in self.views],
            "consumers": [_document(c.consumer, c) for c in self.consumers],
            "totals": [line.as_json() for line in self.totals],
            "unknown": list(self.unknown),
            "unsized": list(self.unsized),
            "untimed": list(self.untimed),
            "wrong_tools": [wrong.as_json() for wrong in self.wrong_tools],
            "constants": self.constants.as_json(),
        }


def _section(heading: str, part: TopicSize | ViewSize | ConsumerSize) -> str:
    return f"{heading}\n{table(part.lines)}"


def _document(name: str, part: TopicSize | ViewSize | ConsumerSize) -> dict[str, Any]:
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
    most_offsets: int | None = None,
    handlers: Mapping[str, float] | None = None,
    needs: Needs | None = None,
) -> Sizing:
    """Size all topics, views and consumers of a catalog.

    `known` is by the declared name of a topic. `keys` is the number of entities by the name of a view. A view that is
    not in `keys` has as many entities as its topic, if it has the topic's key. Otherwise the number is not known.
    `cores`, if given, is the number of cores of each view. `most_offsets` is the profile's, if it has one. `handlers`
    are the seconds of one record in a consumer's handler; a consumer that is not in it is not sized. `needs` are those
    of the users.
    """
    needs = needs or Needs()
    loads = {name: load for name in catalog.topics if (load := _load(catalog, name, known.get(name, Known())))}
    topics = tuple(
        TopicSize(
            name,
            load,
            log_lines(load, constants),
            tuple(log_advice(load, constants)),
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
        load = replace(
            together([one for one in read if one is not None]),
            keys=_keys(view, loads, keys or {}),
            freshness_s=needs.freshness.get(name),
            most_offsets=most_offsets,
        )
        sized = size_view(view.definition, load, constants, cores=cores, namespace=namespace)
        views.append(ViewSize(name, load, sized.lines, sized.advice))
    consumers = tuple(_consumers(catalog, loads, handlers or {}))
    timed = {consumer.consumer for consumer in consumers}
    return Sizing(
        topics=topics,
        views=tuple(views),
        consumers=consumers,
        totals=tuple(_totals(topics, views, constants)),
        unknown=tuple(name for name in catalog.topics if name not in loads),
        unsized=tuple(unsized),
        untimed=tuple(name for name in catalog.consumers if name not in timed),
        wrong_tools=tuple(wrong_tools(catalog, loads, needs, constants)),
        constants=constants,
    )


def _consumers(catalog: Catalog, loads: Mapping[str, Load], handlers: Mapping[str, float]) -> Iterator[ConsumerSize]:
    for name, consumer in catalog.consumers.items():
        read = [loads[topic.name] for topic in consumer.topics if topic.name in loads]
        if name in handlers and len(read) == len(consumer.topics):
            yield size_consumer(consumer, read, together(read), handler_s=handlers[name])


def _keys(view: DeclaredView, loads: Mapping[str, Load], said: Mapping[str, int]) -> int | None:
    assert not isinstance(view.definition, View)
    if view.name in said:
        return said[view.name]
    by = {k.name for k in view.definition.keys}
    as_keyed = view.reading.stream is None and all(by == {k.name for k in t.key} for t in view.reading.topics)
    return together([loads[t.name] for t in view.reading.topics]).keys if as_keyed else None


def _load(catalog: Catalog, name: str, known: Known) -> Load | None:
    return load_of(
        catalog.topics[name],
        # The intake of the topic reads it, too.
        readers=readers(catalog, name) + 1,
        sample=known.sample,
        observed=known.observed,
        given=known.given,
    )


def together(loads: list[Load]) -> Load:
    """The load of a reader of several topics of one event. The topics are taken to have the same keys."""
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
        declared_rate=sum(load.declared_rate or 0.0 for load in loads) or None,
    )


def _totals(topics: tuple[TopicSize, ...], views: list[ViewSize], constants: Constants) -> Iterator[Line]:
    """Yield the totals. Topics share the brokers, so those that the busiest topic needs may be too few for all."""
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
        results = [result for view in views if (result := view.result(name)) is not None]
        if results:
            yield Line(
                name, "all views whose keys are known", " + ".join(amount(r, unit) for r in results), sum(results), unit
            )


def _sum(parts: tuple[TopicSize, ...], name: str) -> str:
    return " + ".join(amount(line.result, line.unit) for part in parts for line in part.lines if line.name == name)
