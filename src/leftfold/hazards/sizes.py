"""Hazards of sizes: all advice of the sizing, and disks that are too small for the expected records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from leftfold.errors import SourceLine
from leftfold.hazards.hazard import Facts, Hazard, Level, Rule
from leftfold.sizing.line import Advice
from leftfold.units import counted, size

_LOSES = frozenset({"consumer-falls-behind", "view-falls-behind"})  # retention deletes records before they are read
CODES = (
    *_LOSES,
    "batch-small",
    "brokers-few",
    "consumer-slow-to-catch-up",
    "cores-idle",
    "disk-short",
    "partitions-few",
    "store-busy",
    "store-large",
    "view-busy",
    "view-large",
    "view-not-fresh",
    "view-slow-to-catch-up",
    "wrong-tool-answers",
    "wrong-tool-fresh",
    "wrong-tool-large",
    "wrong-tool-queue",
    "wrong-tool-small",
)


def _advised(facts: Facts) -> Iterator[Hazard]:
    if facts.sizing is None:
        return
    for topic in facts.sizing.topics:
        yield from _of_topic(facts, topic.topic, topic.advice)
    for view in facts.sizing.views:
        yield from _of_view(facts, view.view, view.advice)
    for consumer in facts.sizing.consumers:
        named = facts.catalog.consumers.get(consumer.consumer)
        yield from _hazards(consumer.advice, f"consumer {consumer.consumer}", None if named is None else named.source)
    for wrong in facts.sizing.wrong_tools:
        yield from (_of_topic if wrong.kind == "topic" else _of_view)(facts, wrong.name, [wrong.advice])


def _of_topic(facts: Facts, name: str, advice: Iterable[Advice]) -> Iterator[Hazard]:
    topic = facts.catalog.topics.get(name)
    subject = name if topic is None else facts.name(topic)
    return _hazards(advice, f"topic {subject}", None if topic is None else topic.source)


def _of_view(facts: Facts, name: str, advice: Iterable[Advice]) -> Iterator[Hazard]:
    view = facts.catalog.views.get(name)
    return _hazards(advice, f"view {name}", None if view is None else view.source)


def _hazards(advice: Iterable[Advice], subject: str, source: SourceLine | None) -> Iterator[Hazard]:
    for one in advice:
        level: Level = "danger" if one.code in _LOSES else "warning"
        yield Hazard(one.code, level, subject, one.what, f"{one.why[0].upper()}{one.why[1:]}.", one.fix, source)


def _disk(facts: Facts) -> Iterator[Hazard]:
    """Judge by the brokers that exist, because the sizing may be for another number of brokers.

    Skip a profile without its own Kafka: such a local cluster is for trying things.
    """
    brokers = facts.observed.cluster.brokers
    reporting = [b for b in brokers if b.disks and all(disk.total > 0 for disk in b.disks)]
    if facts.sizing is None or facts.profile.kafka is None or not reporting:
        return
    needed = [line.result for t in facts.sizing.topics for line in t.lines if line.name == "disk in all"]
    each = sum(needed) / len(brokers)
    room, id = min((sum(disk.total for disk in broker.disks), broker.id) for broker in reporting)
    if each <= room:
        return
    yield Hazard(
        "disk-short",
        "danger",
        f"broker {id}",
        f"{counted(len(needed), 'topic')} will take {size(sum(needed))}, {size(each)} on each of "
        f"{counted(len(brokers), 'broker')}, and its disks hold {size(room)}",
        "A broker takes a disk that is full out of use, and stops if it has no other. The other copies then lie on "
        "disks that are as full.",
        "use larger disks or more brokers, or declare a shorter retention",
    )


RULES: tuple[Rule, ...] = (_advised, _disk)
