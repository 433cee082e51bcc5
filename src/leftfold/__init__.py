"""Leftfold: declare events and views once; every view stays true to the log.

Importing this opens no socket, starts no JVM and loads neither pyspark nor confluent_kafka.
"""

from typing import Any as _Any

from leftfold.app import App
from leftfold.app import open as open
from leftfold.declare.aggregates import Feature, count, distinct, last, last_n, latest, mean
from leftfold.declare.aggregates import max as max
from leftfold.declare.aggregates import min as min
from leftfold.declare.aggregates import sum as sum
from leftfold.declare.consumer import Consumer, consumer
from leftfold.declare.delivery import Batch, MostDead, Retry
from leftfold.declare.event import Event, Personal
from leftfold.declare.features import Features
from leftfold.declare.free import View, view
from leftfold.declare.labels import Label, delay, happened
from leftfold.declare.model_source import Canary, MLflow, Model, ModelFile, Onnx, OnnxModel, Remote, RemoteModel
from leftfold.declare.outcome import Outcome
from leftfold.declare.prediction import Prediction, Predictions
from leftfold.declare.record import NotNow, Record, Unprocessable
from leftfold.declare.rows import Provenance, Row
from leftfold.declare.scorer import Scorer, each, scorer
from leftfold.declare.sinks import Changelog, Lake, Online
from leftfold.declare.sql import Sql, SqlConnection
from leftfold.declare.stream import Stream, stream
from leftfold.declare.table import Table
from leftfold.declare.topic import Topic
from leftfold.declare.vector import Vector, request
from leftfold.declare.vector_rows import Rows
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

__version__ = "0.1.0"

# Without max, min, open and sum: `from leftfold import *` must not hide Python's own.
__all__ = [
    "App",
    "Batch",
    "Canary",
    "Changelog",
    "Consumer",
    "DeclarationError",
    "DeliveryError",
    "Event",
    "Feature",
    "Features",
    "Label",
    "Lake",
    "LeftfoldError",
    "LocalError",
    "LogError",
    "MLflow",
    "Model",
    "ModelFile",
    "MostDead",
    "NotNow",
    "Online",
    "Onnx",
    "OnnxModel",
    "Outcome",
    "Personal",
    "Prediction",
    "Predictions",
    "ProjectError",
    "Provenance",
    "Record",
    "Remote",
    "RemoteModel",
    "Retry",
    "Row",
    "Rows",
    "RunError",
    "Scorer",
    "Sql",
    "SqlConnection",
    "StoreError",
    "Stream",
    "Table",
    "Topic",
    "Unprocessable",
    "Vector",
    "View",
    "consumer",
    "count",
    "delay",
    "distinct",
    "each",
    "happened",
    "last",
    "last_n",
    "latest",
    "mean",
    "request",
    "scorer",
    "stream",
    "view",
]


def load_ipython_extension(ipython: _Any) -> None:
    """`%load_ext leftfold`: a notebook shows declared classes as tables."""
    from leftfold.notebook import load_ipython_extension

    load_ipython_extension(ipython)
