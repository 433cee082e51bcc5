"""The processes that a consumer needs: from the rate of its topics, the time of its handler, and partitions."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from leftfold.declare.consumer import MOST_PARALLEL, Consumer
from leftfold.declare.guarantees import useful_members
from leftfold.sizing.line import Advice, Line
from leftfold.sizing.load import Load
from leftfold.units import amount, counted, number

# The cost of the loop itself for one record: to take, decode, judge, hand over, settle. One process does that with one
# core, because of Python's lock. Measured by `python -m bench consumer`.
RECORD_S = 25e-6


@dataclass(frozen=True)
class ConsumerSize:
    """The sizes of one consumer, and the advice on them."""

    consumer: str
    load: Load
    lines: tuple[Line, ...]
    advice: tuple[Advice, ...]

    def asks(self) -> Iterator[str]:
        results = {line.name: line.result for line in self.lines}
        needed = counted(int(results["consumers needed"]), "process", "processes")
        yield f"{needed} needed, {number(results['consumers, at the least'])} at the least"
        yield f"{number(results['consumers, at the most'])} can have a partition"
        yield f"one handles {number(results['rate of one process'])} records/s"


def size_consumer(consumer: Consumer[..., Any], loads: list[Load], load: Load, *, handler_s: float) -> ConsumerSize:
    """Size one consumer. `loads` are those of its topics, `load` is all of them together.

    `handler_s` are the seconds of one record in the handler; of a batch, its seconds divided by its records.
    """
    members = useful_members([one.partitions or 1 for one in loads])
    sized = _Sized(consumer, load, members, handler_s)
    return ConsumerSize(consumer.name, load, tuple(_lines(sized)), tuple(_advice(sized)))


@dataclass(frozen=True)
class _Sized:
    consumer: Consumer[..., Any]
    load: Load
    members: int  # the most that have a partition
    handler_s: float

    @property
    def busy_s(self) -> float:
        """The seconds for which a record takes one of the calls that may run at once."""
        return self.handler_s + RECORD_S

    @property
    def rate(self) -> float:
        """The records per second of one process."""
        return min(self.consumer.parallel / self.busy_s, 1 / RECORD_S)

    @property
    def wanted(self) -> float:
        """The records per second with which it also catches up with an outage in time."""
        return self.load.rate * (1 + self.load.downtime_s / self.load.catch_up_s)

    @property
    def calls(self) -> int | None:
        """The most calls at once of all processes, if the order of partitions bounds them: one for each partition."""
        return self.load.partitions if self.consumer.order == "partition" else None

    @property
    def most(self) -> float:
        """The records per second of as many processes as have a partition."""
        most = self.members * self.rate
        return most if self.calls is None else min(most, self.calls / self.busy_s)


def _lines(sized: _Sized) -> Iterator[Line]:
    load, rate, one = sized.load, number(sized.load.rate), number(sized.rate)
    yield Line(
        "rate of one process",
        "parallel ÷ (time of the handler + of the loop), at most 1 ÷ time of the loop",
        f"min({sized.consumer.parallel} ÷ ({_ms(sized.handler_s)} + {_ms(RECORD_S)}), 1 ÷ {_ms(RECORD_S)})",
        sized.rate,
        "records/s",
    )
    yield Line(
        "consumers, at the least",
        "records/s ÷ rate of one process, rounded up",
        f"{rate} ÷ {one}",
        math.ceil(load.rate / sized.rate),
        "consumers",
    )
    yield Line(
        "consumers needed",
        "records/s × (1 + longest outage ÷ time to catch up) ÷ rate of one process, rounded up",
        f"{rate} × (1 + {amount(load.downtime_s, 's')} ÷ {amount(load.catch_up_s, 's')}) ÷ {one}",
        math.ceil(sized.wanted / sized.rate),
        "consumers",
    )
    yield Line(
        "consumers, at the most",
        "as many as the topic with the most partitions has: a partition has one member of a group",
        number(sized.members),
        sized.members,
        "consumers",
    )
    if sized.calls is not None:
        yield Line(
            "rate of all, at the most",
            "partitions ÷ (time of the handler + of the loop): in the order of partitions each has one call at a time",
            f"{sized.calls} ÷ ({_ms(sized.handler_s)} + {_ms(RECORD_S)})",
            sized.calls / sized.busy_s,
            "records/s",
        )


def _ms(seconds: float) -> str:
    return f"{seconds * 1_000:g} ms"


def _advice(sized: _Sized) -> Iterator[Advice]:
    load = sized.load
    handles = "handles" if sized.members == 1 else "handle"
    all_of_them = (
        f"{counted(sized.members, 'process', 'processes')}, one for each partition, {handles} {number(sized.most)}"
    )
    if load.rate > sized.most:
        yield Advice(
            "consumer-falls-behind",
            f"{number(load.rate)} records/s arrive, and {all_of_them}",
            "what is not handled now is never handled: the consumer falls further behind until retention overtakes it",
            _fix(sized),
        )
    elif sized.wanted > sized.most:
        left = sized.most - load.rate
        taken = amount(load.rate * load.downtime_s / left, "s") if left else "for ever"
        yield Advice(
            "consumer-slow-to-catch-up",
            f"after an outage of {amount(load.downtime_s, 's')} it takes {taken} to catch up, and "
            f"{amount(load.catch_up_s, 's')} is asked for",
            f"{all_of_them} records/s, of which {number(load.rate)} are those that come in",
            _fix(sized),
        )


def _fix(sized: _Sized) -> str:
    """The advice that lets as many processes as have a partition handle what is wanted."""
    if sized.consumer.batch is not None:
        return (
            f"use a topic with {number(math.ceil(sized.wanted * sized.busy_s))} partitions: a batch is of one partition"
        )
    least = math.ceil(max(sized.wanted * RECORD_S, sized.wanted * sized.busy_s / MOST_PARALLEL))
    partitions = max(sized.members, least)
    calls = max(sized.consumer.parallel, math.ceil(sized.wanted / partitions * sized.busy_s))
    lanes = f"declare parallel={calls}" if sized.calls is None else f'declare order="key" and parallel={calls}'
    if partitions > sized.members:
        return f"{lanes}, and use a topic with {number(partitions)} partitions"
    each = sized.rate if sized.calls is None else 1 / sized.busy_s
    return f"{lanes}, or use a topic with {number(math.ceil(sized.wanted / each))} partitions"
