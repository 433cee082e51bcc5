"""The guarantees of each store of each view, and of each consumer, after any crash, with their conditions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from leftfold.declare.catalog import Catalog, DeclaredView
from leftfold.declare.companions import dead_topic
from leftfold.declare.consumer import Consumer
from leftfold.declare.delivery import INTO_DATABASE, PROMISES, Delivery, Order
from leftfold.declare.sinks import Promise

_ORDERS: dict[Order, str] = {
    "key": "records of a key in the order of the log",
    "partition": "records of a partition in the order of the log",
    "none": "in any order",
}


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
    delivery: Delivery
    promise: Promise
    order: str  # the order in which its handler gets records, in words
    conditions: tuple[str, ...]  # the promise's own, and those of its options and topics
    members: int  # the most members that have a partition each


def consumer_guarantees(catalog: Catalog) -> Iterator[ConsumerGuarantee]:
    for consumer in catalog.consumers.values():
        promise = PROMISES[consumer.delivery] if consumer.into is None else INTO_DATABASE
        conditions = (*promise.conditions, *_of_consumer(consumer))
        members = useful_members([topic.partitions for topic in consumer.topics])
        yield ConsumerGuarantee(consumer.name, consumer.delivery, promise, _ORDERS[consumer.order], conditions, members)


def useful_members(partitions: Iterable[int]) -> int:
    """The most members of a consumer that have work, by the number of partitions of each of its topics.

    It is that of the topic with the most: the assignor `range` gives the same numbers of each topic to one member.
    """
    return max(partitions)


def _of_consumer(consumer: Consumer[..., Any]) -> Iterator[str]:
    if consumer.to is not None:
        yield (
            f"views and consumers of Leftfold read {consumer.to.name} so; of other groups no broker tells it "
            "(group-not-declared names them)"
        )
    if consumer.failure == "stop":
        yield "a record that fails for the last time stops the consumer, and all records after it wait"
    elif consumer.failure == "park":
        yield (
            "a record that fails for the last time, and all later ones of its key, are handled only if somebody "
            f"re-drives them from {dead_topic(consumer.name)}"
        )
    else:
        yield (
            f"a record that fails for the last time is handled only if somebody re-drives it from "
            f"{dead_topic(consumer.name)}"
        )
    if consumer.late == "skip":
        yield "late records, and those from the future, are not handed over"
    yield (
        "it is not away for longer than its topics keep records, or than brokers keep positions: else it stops "
        "(log-overtaken, position-forgotten), and skips nothing silently"
    )
    for topic in consumer.topics:
        if topic.replication < 2:
            yield f"{topic.name} has one copy: what a broker loses, the consumer never gets"


def _of_topics(view: DeclaredView) -> Iterator[str]:
    for topic in view.reading.topics:
        if topic.log_time == "producer":
            yield f"what is late in {topic.name} is judged by its producers' clocks, and so is which records count"
        if topic.log_time == "header":
            yield f"what is late in {topic.name} is judged by the first log times that its copied records carry"
        if topic.replication < 2:
            yield f"{topic.name} has one copy: what a broker loses, every store of the view loses with it"
