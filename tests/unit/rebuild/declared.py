"""Definitions, and a source, for tests that need no engine."""

from __future__ import annotations

from datetime import datetime
from functools import cache

import leftfold as lf
from leftfold.fold.definition import Definition
from leftfold.settings import Kafka
from leftfold.spark.source import Source


class Click(lf.Event):
    user_id: str
    at: datetime


clicks = lf.Topic("clicks", Click, key=Click.user_id, time=Click.at, lateness="10m")


class Activity(lf.Features, of=clicks, by=Click.user_id):
    clicks_1h = lf.count("1h")
    clicks_24h = lf.count("24h")


class Ever(lf.Features, of=clicks, by=Click.user_id):
    clicks = lf.count(None)


@cache
def activity() -> Definition:
    return Activity.__leftfold_definition__


@cache
def lifetime() -> Definition:
    return Ever.__leftfold_definition__


def source() -> Source:
    return Source(("clicks",), (2,), Kafka(bootstrap="b:1"), Click, frozenset({"user_id", "at"}), "avro", {})
