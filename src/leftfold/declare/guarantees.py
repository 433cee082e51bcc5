"""The guarantees of each store of each view, and of each consumer, after any crash, with their conditions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from leftfold.declare.catalog import Catalog, DeclaredView
from leftfold.declare.delivery import INTO_DATABASE, PROMISES
from leftfold.declare.sinks import Promise


@dataclass(frozen=True)
class Guarantee:
    view: str
    sink: str
    promise: Promise
    conditions: tuple[str, ...]  # the promise's own, and those that the view's topics add


def guarantees(catalog: Catalog) -> Iterator[Guarantee]:
    for view in catalog.views.values():
        for sink in view.sinks:
            yield Guarantee(view.name, sink.name, sink.promise, (*sink.promise.conditions, *_of_topics(view)))


@dataclass(frozen=True)
class ConsumerGuarantee:
    consumer: str
    promise: Promise
    conditions: tuple[str, ...]
    members: int  # the most members that have a partition each


def consumer_guarantees(catalog: Catalog) -> Iterator[ConsumerGuarantee]:
    for consumer in catalog.consumers.values():
        promise = PROMISES[consumer.delivery] if consumer.into is None else INTO_DATABASE
        members = sum(topic.partitions for topic in consumer.topics)
        yield ConsumerGuarantee(consumer.name, promise, promise.conditions, members)


def _of_topics(view: DeclaredView) -> Iterator[str]:
    for topic in view.reading.topics:
        if topic.log_time == "producer":
            yield f"what is late in {topic.name} is judged by its producers' clocks, and so is which records count"
        if topic.log_time == "header":
            yield f"what is late in {topic.name} is judged by the first log times that its copied records carry"
        if topic.replication < 2:
            yield f"{topic.name} has one copy: what a broker loses, every store of the view loses with it"
