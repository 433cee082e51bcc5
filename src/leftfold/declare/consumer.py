"""Consumers: a function that is called for each record of a topic, with a declared delivery."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import (
    Any,
    Generic,
    Literal,
    ParamSpec,
    Protocol,
    TypeAlias,
    TypedDict,
    TypeVar,
    Union,
    Unpack,
    get_args,
    overload,
)

from leftfold.declare import collector
from leftfold.declare.delivery import Batch, Delivery, Failure, MostDead, Order, Retry
from leftfold.declare.event import Event
from leftfold.declare.names import check_view_name
from leftfold.declare.record import Record
from leftfold.declare.sql import Sql, SqlConnection
from leftfold.declare.stream import check_topics
from leftfold.declare.topic import Topic
from leftfold.errors import DeclarationError, SourceLine, caller
from leftfold.fold.durations import SECOND, Duration, micros

P = ParamSpec("P")
R = TypeVar("R")
E = TypeVar("E", bound=Event)
W = TypeVar("W", bound=Event)  # an event that is written
_Written: TypeAlias = Union[W, Iterable[W], None]  # noqa: UP007 # a type variable has no | at run time
_Returned: TypeAlias = Union[_Written[W], Awaitable[_Written[W]]]  # noqa: UP007

Start = Literal["beginning", "now"] | datetime
MOST_PARALLEL = 1_000  # threads, or tasks of an async handler
_SHORTEST_TIMEOUT = SECOND // 10


@dataclass(frozen=True, eq=False)
class Consumer(Generic[P, R]):
    """A consumer, as made by `@lf.consumer`. A test can call it like the function that it was made from."""

    name: str
    topics: tuple[Topic[Any], ...]
    function: Callable[P, R]
    start: Start  # where a group begins that has no position yet
    delivery: Delivery
    order: Order
    parallel: int
    batch: Batch | None
    to: Topic[Any] | None  # where returned events go
    into: Sql | None  # the database in which it books, in one transaction with its position
    retry: Retry
    failure: Failure
    most_dead: MostDead
    late: Literal["deliver", "skip"]
    timeout_s: float
    in_flight: int
    drain_s: float
    wants_record: bool  # the handler takes the record in addition to the event
    source: SourceLine

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    @property
    def is_async(self) -> bool:
        return inspect.iscoroutinefunction(self.function)

    @property
    def __name__(self) -> str:
        return self.name


class Options(TypedDict, total=False):
    """The options of a consumer that do not change the form of its handler."""

    name: str  # by default the function's name
    order: Order  # by default "key": records of a key one after the other, several keys at once
    parallel: int  # how many calls at once in a process: threads, or tasks of an async handler
    retry: Retry
    # After the last attempt: "dead" writes a dead letter and goes on; "park" also lets later records of its key wait
    # there, so that a re-drive keeps their order; "stop" ends the consumer.
    failure: Failure
    most_dead: MostDead
    late: Literal["deliver", "skip"]  # late records, and those from the future
    timeout: Duration  # of one call; beyond it, the call counts as failed
    in_flight: int  # how many records a process may hold
    drain: Duration  # how long calls under way may take when a partition is given up


class _Each(Protocol[E]):
    """The decorator of a handler that takes one event."""

    @overload
    def __call__(self, function: Callable[[E], R], /) -> Consumer[[E], R]: ...
    @overload
    def __call__(self, function: Callable[[E, Record], R], /) -> Consumer[[E, Record], R]: ...


class _Several(Protocol[E]):
    """The decorator of a handler that takes a batch of events."""

    @overload
    def __call__(self, function: Callable[[list[E]], R], /) -> Consumer[[list[E]], R]: ...
    @overload
    def __call__(self, function: Callable[[list[E], list[Record]], R], /) -> Consumer[[list[E], list[Record]], R]: ...


class _Mapped(Protocol[E, W]):
    """The decorator of a handler that takes one event and returns events of another topic."""

    @overload
    def __call__(self, function: Callable[[E], _Returned[W]], /) -> Consumer[[E], _Returned[W]]: ...
    @overload
    def __call__(self, function: Callable[[E, Record], _Returned[W]], /) -> Consumer[[E, Record], _Returned[W]]: ...


class _Booking(Protocol[E]):
    """The decorator of a handler that takes one event and books it with a connection to a database."""

    @overload
    def __call__(self, function: Callable[[E, SqlConnection], None], /) -> Consumer[[E, SqlConnection], None]: ...
    @overload
    def __call__(
        self, function: Callable[[E, Record, SqlConnection], None], /
    ) -> Consumer[[E, Record, SqlConnection], None]: ...


@overload
def consumer(
    topic: Topic[E] | tuple[Topic[E], ...],
    *,
    start: Start,
    batch: None = None,
    to: None = None,
    into: None = None,
    delivery: Literal["at_most_once", "at_least_once"] = ...,
    **options: Unpack[Options],
) -> _Each[E]: ...
@overload
def consumer(
    topic: Topic[E] | tuple[Topic[E], ...],
    *,
    start: Start,
    batch: Batch,
    to: None = None,
    into: None = None,
    delivery: Literal["at_most_once", "at_least_once"] = ...,
    **options: Unpack[Options],
) -> _Several[E]: ...
@overload
def consumer(
    topic: Topic[E] | tuple[Topic[E], ...],
    *,
    start: Start,
    batch: None = None,
    to: Topic[W],
    into: None = None,
    delivery: Literal["exactly_once"],
    **options: Unpack[Options],
) -> _Mapped[E, W]: ...
@overload
def consumer(
    topic: Topic[E] | tuple[Topic[E], ...],
    *,
    start: Start,
    batch: None = None,
    to: None = None,
    into: Sql,
    delivery: Literal["exactly_once"],
    **options: Unpack[Options],
) -> _Booking[E]: ...
def consumer(
    topic: Any,
    *,
    start: Start,
    batch: Batch | None = None,
    to: Topic[Any] | None = None,
    into: Sql | None = None,
    delivery: Delivery = "at_least_once",
    **options: Unpack[Options],
) -> Any:
    """Declare a function as a consumer of a topic: it is called for each record, or for batches with `batch=`.

    With `to=`, the events that it returns are written to that topic, exactly once. With `into=`, it gets a connection
    to that database, and what it writes with it is committed in one transaction with its position.

    `start` is where it begins without a position of its own: "beginning", "now", or a datetime. It has no default: one
    choice would skip records silently, the other would repeat a fortnight of effects.
    """
    source = caller()
    topics = topic if isinstance(topic, tuple) else (topic,)

    def decorate(function: Callable[..., Any]) -> Consumer[..., Any]:
        name = check_view_name(options.get("name") or function.__name__, source)
        check_topics(name, topics, source)
        _check_delivery(name, delivery, to, into, source)
        _check_to(name, delivery, to, batch, source)
        _check_into(name, delivery, into, function, apart=(to, batch), source=source)
        retry = _retry(name, delivery, options.get("retry"), source)
        order = _order(name, options.get("order"), batch, into, source)
        declared = Consumer(
            name=name,
            topics=topics,
            function=function,
            start=checked_start(name, start, source),
            delivery=delivery,
            order=order,
            parallel=between(name, "parallel", options.get("parallel", 1), MOST_PARALLEL, source),
            batch=batch,
            to=to,
            into=into,
            retry=retry,
            failure=_failure(name, options.get("failure", "dead"), delivery, order, source),
            most_dead=options.get("most_dead") or MostDead(),
            late=one_of(name, "late", options.get("late", "deliver"), ("deliver", "skip"), source),
            timeout_s=max(_SHORTEST_TIMEOUT, micros(options.get("timeout", "60s"), option="timeout", source=source))
            / SECOND,
            in_flight=between(name, "in_flight", options.get("in_flight", 1_000), 100_000, source),
            drain_s=micros(options.get("drain", "10s"), option="drain", source=source) / SECOND,
            wants_record=_wants_record(name, function, into, source),
            source=source,
        )
        collector.declare(declared, source.file)
        return declared

    return decorate


def _wants_record(name: str, function: Callable[..., Any], into: Sql | None, source: SourceLine) -> bool:
    """Return whether a handler takes the record too. With `into`, its last parameter is the connection."""
    parameters = inspect.signature(function).parameters.values()
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    needed = [p for p in positional if p.default is p.empty]
    others = [p for p in parameters if p.kind is p.KEYWORD_ONLY and p.default is p.empty]
    last = "" if into is None else ", db: lf.SqlConnection"
    least = 1 if into is None else 2
    no_connection = (
        into is not None and needed and str(needed[-1].annotation).rpartition(".")[2].strip("'>") == "Record"
    )
    if others or no_connection or not least <= len(needed) <= least + 1:
        takes = "the event, or the event and its lf.Record"
        raise DeclarationError(
            "handler-signature",
            f"{name}({', '.join(str(p) for p in parameters)}) cannot be called for a record",
            why=f"a handler takes {takes}; with batch=, a sequence of each"
            if into is None
            else f"with into=, a handler takes {takes}, and then the connection to the database",
            fix=f"write def {name}(event{last}) or def {name}(event, record: lf.Record{last})",
            source=source,
        )
    return len(needed) > least


def checked_start(name: str, start: Any, source: SourceLine) -> Start:
    if start in ("beginning", "now") or (isinstance(start, datetime) and start.tzinfo is not None):
        return start  # type: ignore[no-any-return] # just checked
    raise DeclarationError(
        "consumer-start",
        f"{name} starts at {start!r}",
        why="a consumer without a position begins at the beginning of the log, at its present end, or at a moment",
        fix='write start="beginning", start="now", or a datetime with a time zone',
        source=source,
    )


def _check_delivery(name: str, delivery: Delivery, to: Any, into: Any, source: SourceLine) -> None:
    one_of(name, "delivery", delivery, get_args(Delivery), source)
    if delivery == "exactly_once" and to is None and into is None:
        raise DeclarationError(
            "exactly-once-nowhere",
            f"{name} asks for delivery exactly once, and writes to no topic and into no database",
            why="its function may do anything, and a crash between what it did and the commit of its position cannot "
            "be undone; only what it writes to Kafka, or into one database, can be one with its position",
            fix="name the topic of the events that it returns: to=…; or the database in which it books: "
            'into=lf.Sql("env:…"); or declare delivery="at_least_once", and give record.id to the other side as '
            "idempotency key",
            source=source,
        )


def _check_to(name: str, delivery: Delivery, to: Any, batch: Batch | None, source: SourceLine) -> None:
    if to is None:
        return
    if not isinstance(to, Topic) or to.external or delivery != "exactly_once" or batch is not None:
        raise DeclarationError(
            "consumer-to",
            f"{name} writes to {to.name if isinstance(to, Topic) else to!r}",
            why="returned events go to a topic of this project, exactly once, each with its own record",
            fix='write to=TOPIC, delivery="exactly_once", and leave batch= out',
            source=source,
        )


def _check_into(
    name: str,
    delivery: Delivery,
    into: Any,
    function: Callable[..., Any],
    *,
    apart: tuple[Any, ...],
    source: SourceLine,
) -> None:
    if into is None:
        return
    if not isinstance(into, Sql):
        why = "a database is named by lf.Sql"
    elif delivery != "exactly_once":
        why = f'its rows and its position are one transaction, which is more than delivery="{delivery}" says'
    elif any(one is not None for one in apart):
        why = (
            "a transaction of the database holds no records of Kafka, and it holds many calls of the handler by itself"
        )
    elif inspect.iscoroutinefunction(function):
        why = "a connection does one thing after the other, so tasks of an event loop would wait for each other"
    else:
        return
    raise DeclarationError(
        "consumer-into",
        f"{name} cannot book into {'a database' if isinstance(into, Sql) else type(into).__name__} as it is declared",
        why=why,
        fix='write into=lf.Sql("env:…"), delivery="exactly_once" and a plain def, and leave to= and batch= out',
        source=source,
    )


def one_of(name: str, option: str, value: Any, known: tuple[Any, ...], source: SourceLine) -> Any:
    if value in known:
        return value
    raise DeclarationError(
        "consumer-option",
        f"{name} has {option}={value!r}",
        why=f"{option}= is one of {', '.join(known)}",
        fix=f"choose one of {', '.join(known)}",
        source=source,
    )


def between(name: str, option: str, value: int, most: int, source: SourceLine) -> int:
    if isinstance(value, int) and 1 <= value <= most:
        return value
    raise DeclarationError(
        "consumer-option",
        f"{name} has {option}={value!r}",
        why=f"{option}= is a whole number from 1 to {most:,}",
        fix=f"write {option}=1 for example",
        source=source,
    )


def _order(name: str, order: Order | None, batch: Batch | None, into: Sql | None, source: SourceLine) -> Order:
    of_partition = batch is not None or into is not None
    if of_partition and order in ("key", "none"):
        raise DeclarationError(
            "consumer-option",
            f"{name} {'takes batches' if into is None else 'books into a database'} with order={order!r}",
            why=f"a {'batch' if into is None else 'transaction'} holds records of one partition, in order",
            fix="leave order= out",
            source=source,
        )
    checked: Order = one_of(name, "order", order or ("partition" if of_partition else "key"), get_args(Order), source)
    return checked


def _failure(name: str, failure: Failure, delivery: Delivery, order: Order, source: SourceLine) -> Failure:
    checked: Failure = one_of(name, "failure", failure, get_args(Failure), source)
    if checked == "park" and (delivery != "at_least_once" or order != "key"):
        raise DeclarationError(
            "consumer-park",
            f'{name} parks keys, and has delivery="{delivery}" and order="{order}"',
            why="parking keeps the order of a key over a re-drive: at most once, nothing is handed over again; exactly "
            "once, a record that fails holds its slice or its partition",
            fix='leave delivery= and order= out, or take failure="dead"',
            source=source,
        )
    return checked


def _retry(name: str, delivery: Delivery, retry: Retry | None, source: SourceLine) -> Retry:
    if delivery != "at_most_once":
        return retry or Retry()
    if retry is not None and retry.attempts > 1:
        raise DeclarationError(
            "retry-at-most-once",
            f"{name} is called at most once, and asks for {retry.attempts} attempts",
            why="a second attempt is a second delivery",
            fix='leave retry= out, or declare delivery="at_least_once"',
            source=source,
        )
    return Retry(attempts=1)
