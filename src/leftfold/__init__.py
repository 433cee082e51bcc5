"""Leftfold: declare events and views once; every view stays true to the log.

Importing this opens no socket, starts no JVM and loads neither pyspark nor confluent_kafka.
"""

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
from leftfold.spec.aggregates import Feature, count, last, sum
from leftfold.spec.event import Event
from leftfold.spec.features import Features, Provenance
from leftfold.spec.topic import Topic

__version__ = "0.1.0"

__all__ = [
    "App",
    "DeclarationError",
    "DeliveryError",
    "Event",
    "Feature",
    "Features",
    "LeftfoldError",
    "LocalError",
    "LogError",
    "ProjectError",
    "Provenance",
    "RunError",
    "StoreError",
    "Topic",
    "count",
    "last",
    "open",
    "sum",
]
