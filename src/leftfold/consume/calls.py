"""The functions that workers call: a person's handler, with the arguments that it asks for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from leftfold.consume.lanes import Work
from leftfold.consume.origins import Origins
from leftfold.consume.slices import SliceWriter
from leftfold.declare.consumer import Consumer


def handling(consumer: Consumer[..., Any], origins: Origins) -> Callable[[Any], Any]:
    """Return a function that calls the handler for a work, or with batches for a list of works."""
    handler: Callable[..., Any] = consumer.function
    record = origins.record
    if consumer.batch is not None:
        if consumer.wants_record:
            return lambda works: handler([w.event for w in works], [record(w) for w in works])
        return lambda works: handler([w.event for w in works])
    if consumer.wants_record:
        return lambda work: handler(work.event, record(work))
    return lambda work: handler(work.event)


def encoding(consumer: Consumer[..., Any], origins: Origins, slices: SliceWriter) -> Callable[[Work], Any]:
    """Return a function that calls the handler and keeps what it returns, encoded."""
    handler: Callable[..., Any] = consumer.function

    def arguments(work: Work) -> tuple[Any, ...]:
        return (work.event, origins.record(work)) if consumer.wants_record else (work.event,)

    def call(work: Work) -> None:
        work.output = slices.encoded(handler(*arguments(work)))

    async def call_async(work: Work) -> None:
        work.output = slices.encoded(await handler(*arguments(work)))

    return call_async if consumer.is_async else call


def booking(consumer: Consumer[..., Any], origins: Origins) -> Callable[[Work, Any], Any]:
    """Return a function that calls the handler with a connection to its database."""
    handler: Callable[..., Any] = consumer.function
    if consumer.wants_record:
        return lambda work, connection: handler(work.event, origins.record(work), connection)
    return lambda work, connection: handler(work.event, connection)
