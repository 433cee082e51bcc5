"""The reasons why Kafka, or Leftfold, is the wrong tool for a topic or a view. Each follows from a user's need.

They do not depend on a sizing: a topic whose rate is not known has them, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from leftfold.declare.catalog import Catalog
from leftfold.sizing.constants import Constants
from leftfold.sizing.line import Advice
from leftfold.sizing.load import Load
from leftfold.units import amount, number

# One Postgres on one machine inserts that many rows a second without tuning.
FEW_RECORDS = 1_000
# Brokers, consumers and Spark are by default set up for records of up to 1 MiB (max.message.bytes). Ten times that is
# a file.
LARGE_RECORD = 1_048_588
# A user at a prompt accepts to wait this long for a record. Any batch of Spark takes longer.
FASTEST_S = 0.1


@dataclass(frozen=True)
class Needs:
    """The needs of a project's users that decide whether a log is the right tool. Topics and views are named."""

    no_replay: frozenset[str] = frozenset()  # topics whose records nobody reads a second time
    queues: frozenset[str] = frozenset()  # topics whose records are tasks, each acknowledged, ranked or delayed alone
    answers: frozenset[str] = frozenset()  # topics whose senders wait for an answer to each record
    largest: Mapping[str, float] = field(default_factory=dict)  # bytes of a topic's largest record
    freshness: Mapping[str, float] = field(default_factory=dict)  # seconds until a record must be in a view's features


@dataclass(frozen=True)
class WrongTool:
    """A topic or view for which another tool is better, and the advice to use that one."""

    kind: Literal["topic", "view"]
    name: str
    advice: Advice

    def as_json(self) -> dict[str, Any]:
        return {self.kind: self.name, **self.advice.as_json()}


def wrong_tools(catalog: Catalog, loads: Mapping[str, Load], needs: Needs, constants: Constants) -> Iterator[WrongTool]:
    """Yield the topics and views of a catalog for which another tool is better. `loads` are by topic."""
    for topic in catalog.topics:
        for advice in _of_topic(topic, loads.get(topic), readers(catalog, topic), needs, constants):
            yield WrongTool("topic", topic, advice)
    for view in catalog.views:
        for advice in _of_view(needs.freshness.get(view), constants):
            yield WrongTool("view", view, advice)


def readers(catalog: Catalog, topic: str) -> int:
    """The number of declared views and consumers that read a topic."""
    views = sum(topic in [t.name for t in view.reading.topics] for view in catalog.views.values())
    return views + sum(topic in [t.name for t in consumer.topics] for consumer in catalog.consumers.values())


def soonest_s(constants: Constants) -> float:
    """The seconds in which a view shows a record at the soonest: a record may wait for one batch before its own."""
    return max(FASTEST_S, 2 * constants.batch_s)


def _of_topic(topic: str, load: Load | None, readers: int, needs: Needs, constants: Constants) -> Iterator[Advice]:
    if topic in needs.no_replay and load is not None and load.rate < FEW_RECORDS and readers <= 1:
        yield _small(load.rate)
    largest = max(needs.largest.get(topic, 0), 0 if load is None else load.record_bytes)
    if largest > LARGE_RECORD:
        yield _large(largest)
    if topic in needs.queues:
        yield _queue()
    if topic in needs.answers:
        yield _answers(constants)


def _small(rate: float) -> Advice:
    return Advice(
        "wrong-tool-small",
        f"{number(rate)} records/s, at most one reader, and no record is read again",
        f"one database handles less than about {number(FEW_RECORDS)} records/s; a log is worth its brokers if records "
        "are read again, or by a second reader",
        "use a Postgres table as a work queue (select … for update skip locked)",
    )


def _large(bytes_: float) -> Advice:
    return Advice(
        "wrong-tool-large",
        f"its records have up to {amount(bytes_, 'B')}, and brokers accept {amount(LARGE_RECORD, 'B')} unless you "
        "raise the limits of brokers, producers and consumers",
        "a large record delays all others of its partition, and fills the memory of producers, brokers and readers",
        "put the bytes into object storage, and their address into the record",
    )


def _queue() -> Advice:
    return Advice(
        "wrong-tool-queue",
        "its records are tasks, each with an acknowledgement, a priority or a delay of its own",
        "a consumer group has 1 position in each partition: it handles records in their order, and one slow or failed "
        "record delays those after it",
        "use a work queue (RabbitMQ, SQS, or a Postgres table with select … for update skip locked), and send an event "
        "when a task is done",
    )


def _answers(constants: Constants) -> Advice:
    return Advice(
        "wrong-tool-answers",
        "its sender waits for an answer to each record",
        "a log carries records one way. An answer needs a second topic, and a view has it after its batch, about "
        f"{amount(1.5 * constants.batch_s, 's')} later",
        "call a service, and send what it decided as an event",
    )


def _of_view(wanted_s: float | None, constants: Constants) -> Iterator[Advice]:
    soonest = soonest_s(constants)
    if wanted_s is None or wanted_s >= soonest:
        return
    yield Advice(
        "wrong-tool-fresh",
        f"you need a record in its features within {amount(wanted_s, 's')}, and a view takes up to "
        f"{amount(soonest, 's')} even without load",
        f"each batch of Spark has a fixed cost of {amount(constants.batch_s, 's')}, and a record may wait for one "
        "batch before its own. More cores do not help",
        "pass the newest values with the request (lf.request), or compute them in a consumer or in Flink",
    )
