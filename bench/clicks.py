"""A topic of clicks, and a bare Spark batch read of it, with the same decoding as ours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro

import leftfold
from leftfold.declare.schema import avro_schema

EVENT = """\
from datetime import datetime

import leftfold as lf


class Click(lf.Event):
    user_id: str
    item_id: str
    price: float
    at: datetime


"""


def bare_read(app: leftfold.App, session: Any, settings: Mapping[str, str]) -> DataFrame:
    """Read the topic with plain Spark: timestamp, partition, offset, and the event's fields.

    `settings` are those of Kafka's consumer; if empty, Spark's defaults hold.
    """
    records = (
        session.read.format("kafka")
        .option("kafka.bootstrap.servers", app.kafka.bootstrap)
        .option("subscribe", "clicks")
        .options(**settings)
        .load()
    )
    event = from_avro(F.expr("substring(value, 6, length(value) - 5)"), avro_schema(app.catalog.topic("clicks").event))
    decoded: DataFrame = records.select("timestamp", "partition", "offset", event.alias("e")).select("*", "e.*")
    return decoded.drop("e")
