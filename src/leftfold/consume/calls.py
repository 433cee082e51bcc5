"""The functions that workers call: a person's handler, with the arguments that it asks for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from leftfold.consume.lanes import Work
from leftfold.consume.origins import Origins
from leftfold.consume.returned import Returned
from leftfold.declare.consumer import Consumer
from leftfold.kafka.log_writer import LogWriter

_ACKNOWLEDGED_S = 30.0  # beyond it, a batch is handled again


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


def encoding(consumer: Consumer[..., Any], origins: Origins, returned: Returned) -> Callable[[Any], Any]:
    """Return a function that calls the handler and keeps what it returns, encoded. Of a batch, it returns a list."""
    handle = handling(consumer, origins)

    def call(work: Work) -> None:
        work.output = returned.encoded(handle(work))

    async def call_async(work: Work) -> None:
        work.output = returned.encoded(await handle(work))

    def call_batch(works: list[Work]) -> None:
        for work, output in zip(works, handle(works), strict=True):
            work.output = returned.encoded(output)

    if consumer.batch is not None:
        return call_batch
    return call_async if consumer.is_async else call


def forwarding(
    consumer: Consumer[..., Any], origins: Origins, returned: Returned, writer: LogWriter
) -> Callable[[Any], Any]:
    """Return a function that handles a batch, writes what came of it, and waits until brokers have acknowledged that.

    A death before the commit means that it is written again: at least once.
    """
    call = encoding(consumer, origins, returned)

    def forward(works: list[Work]) -> None:
        call(works)
        records = [record for work in works for record in work.output or ()]
        writer.write(records).wait(_ACKNOWLEDGED_S)

    return forward


def booking(consumer: Consumer[..., Any], origins: Origins) -> Callable[[Work, Any], Any]:
    """Return a function that calls the handler with a connection to its database."""
    handler: Callable[..., Any] = consumer.function
    if consumer.wants_record:
        return lambda work, connection: handler(work.event, origins.record(work), connection)
    return lambda work, connection: handler(work.event, connection)
