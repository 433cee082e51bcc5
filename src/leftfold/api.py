"""The public names: what `leftfold` offers under its own name. It imports this when one of them is first asked for."""

from leftfold.app import App, open
from leftfold.declare.aggregates import Feature, count, distinct, last, last_n, latest, max, mean, min, sum
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
    "max",
    "mean",
    "min",
    "open",
    "request",
    "scorer",
    "stream",
    "sum",
    "view",
]
