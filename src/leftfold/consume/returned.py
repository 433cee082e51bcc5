"""Events that a handler returns, encoded for the topic that they go to."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from leftfold.consume.clients import ConsumerNames, LogClients
from leftfold.declare.consumer import Consumer
from leftfold.declare.event import Event
from leftfold.errors import RunError
from leftfold.kafka.producer import encoder_of, key_encoder
from leftfold.kafka.transactions import Outgoing


class Returned:
    """Encodes what the handler of one consumer returns. Any thread may call it."""

    def __init__(self, consumer: Consumer[..., Any], names: ConsumerNames, clients: LogClients) -> None:
        assert consumer.to is not None
        assert names.to is not None
        self._consumer = consumer
        self._to = names.to
        self._topic = consumer.to
        self._key = key_encoder(tuple(key.name for key in consumer.to.key))
        self._encode = encoder_of(consumer.to, names.to, clients.registry)

    def encoded(self, returned: Any) -> list[Outgoing]:
        """Return the records for what a handler returned: an event, several, or None."""
        if returned is None:
            return []
        several = isinstance(returned, Iterable) and not isinstance(returned, Event)  # an event can be iterated over
        return [self._outgoing(event) for event in (returned if several else (returned,))]

    def _outgoing(self, event: Any) -> Outgoing:
        if type(event) is not self._topic.event:
            raise RunError(
                "handler-returns",
                f"{self._consumer.name} returned {type(event).__name__}",
                why=f"Leftfold writes what it returns to {self._topic.name}, which holds {self._topic.event.__name__}",
                state="nothing is committed past this record",
                fix=f"return {self._topic.event.__name__}, several of them, or nothing",
                source=self._consumer.source,
            )
        fields = event.__dict__
        return Outgoing(self._to, self._key(fields), self._encode(fields), [])
