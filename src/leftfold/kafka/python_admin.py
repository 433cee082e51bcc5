"""kafka-python's admin client, for the few questions that librdkafka cannot ask."""

from __future__ import annotations

import logging
from typing import Any

from leftfold.settings import Kafka

_TIMEOUT_MS = 20_000


def python_admin(kafka: Kafka) -> Any:
    """To be closed by who opens it."""
    from kafka import KafkaAdminClient  # type: ignore[import-untyped] # it has no types

    logging.getLogger("kafka").setLevel(logging.CRITICAL)  # how busy its event loop is, is not for a person's terminal
    return KafkaAdminClient(**kafka.for_kafka_python(), request_timeout_ms=_TIMEOUT_MS)
