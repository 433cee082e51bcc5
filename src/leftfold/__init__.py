"""Leftfold: declare events and views once; every view stays true to the log.

Importing this opens no socket, starts no JVM and loads neither pyspark nor confluent_kafka.
"""

from typing import Any as _Any

from leftfold.errors import (
    DeclarationError,
    DeliveryError,
    LeftfoldError,
    LocalError,
    LogError,
    ProjectError,
    RunError,
    StoreError,
)
from leftfold.project import App, open
from leftfold.spec.aggregates import Feature, count, distinct, last, last_n, latest, max, mean, min, sum
from leftfold.spec.event import Event, Personal
from leftfold.spec.features import Features
from leftfold.spec.free import View, view
from leftfold.spec.rows import Provenance, Row
from leftfold.spec.sinks import Changelog, Lake, Online
from leftfold.spec.stream import Stream, stream
from leftfold.spec.table import Table
from leftfold.spec.topic import Topic
from leftfold.spec.vector import Vector, request

__version__ = "0.1.0"

__all__ = [
    "App",
    "Changelog",
    "DeclarationError",
    "DeliveryError",
    "Event",
    "Feature",
    "Features",
    "Lake",
    "LeftfoldError",
    "LocalError",
    "LogError",
    "Online",
    "Personal",
    "ProjectError",
    "Provenance",
    "Row",
    "RunError",
    "StoreError",
    "Stream",
    "Table",
    "Topic",
    "Vector",
    "View",
    "count",
    "distinct",
    "last",
    "last_n",
    "latest",
    "max",
    "mean",
    "min",
    "open",
    "request",
    "stream",
    "sum",
    "view",
]


def load_ipython_extension(ipython: _Any) -> None:
    """`%load_ext leftfold`: a notebook shows declared classes as tables."""
    from leftfold.notebook import load_ipython_extension

    load_ipython_extension(ipython)
