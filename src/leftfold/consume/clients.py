"""The names and clients that a consumer works with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from leftfold.declare.topic import Topic
from leftfold.kafka.admin import Admin
from leftfold.kafka.consumer_log import ConsumerLog
from leftfold.kafka.registry import SchemaRegistry
from leftfold.settings import Kafka


@dataclass(frozen=True)
class ConsumerNames:
    """The names of a consumer's group and topics in the cluster."""

    group: str
    sources: Mapping[str, Topic[Any]]  # by the name in the cluster
    dead: str
    again: str
    to: str | None = None  # where returned events go


@dataclass(frozen=True)
class LogClients:
    """The clients that all consumers of a process share."""

    kafka: Kafka
    admin: Admin
    registry: SchemaRegistry
    notes: ConsumerLog
