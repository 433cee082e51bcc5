"""The manifest of a training set: what it was made from, and a digest of its rows. It lies next to their files."""

from __future__ import annotations

import importlib.metadata
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from leftfold.declare.catalog import DeclaredView
from leftfold.errors import ProjectError
from leftfold.fold.profiles import ColumnProfile, as_document
from leftfold.fold.vector import VectorDefinition
from leftfold.places import local_path
from leftfold.run.deployment import Deployment
from leftfold.training.options import TrainingOptions
from leftfold.training.position import FrozenPosition

VERSION = 1
# Spark and pandas skip a name with an underscore when they read a directory.
FILE = "_training_set.json"


@dataclass(frozen=True)
class Basis:
    """The sources of the rows."""

    positions: Mapping[str, FrozenPosition]  # by declared topic
    builds: Mapping[str, str]  # by view: the build that was read, or whose readers the labels stand for
    last: Mapping[str, int]  # by view: the newest of its batches that counted
    lakes: Mapping[str, int]  # by free view: the version of its lake's table
    label_columns: Sequence[str]


@dataclass(frozen=True)
class StoredRows:
    """A summary of the files' rows."""

    digest: str
    logged: Mapping[str, int]  # by feature: for how many rows it was taken from the prediction, and not computed
    profiles: Callable[[Sequence[str]], dict[str, ColumnProfile]]  # of the columns with these names


def described(
    vector: VectorDefinition,
    options: TrainingOptions,
    views: Mapping[str, DeclaredView],
    profiled: Sequence[str],
    basis: Basis,
    stored: StoredRows,
) -> dict[str, Any]:
    """Return the manifest of rows that were written. `profiled` are the columns whose distribution is kept."""
    return {
        "version": VERSION,
        "release": importlib.metadata.version("leftfold"),
        "vector": vector.as_json(),
        "options": options.as_json(),
        "views": {
            name: {"fingerprint": view.fingerprint, "build": basis.builds.get(name), "last": basis.last.get(name)}
            for name, view in views.items()
        },
        "topics": {name: position.as_json() for name, position in basis.positions.items()},
        "lakes": dict(basis.lakes),
        "label_columns": list(basis.label_columns),
        "features": [part.name for part in vector.parts],
        "logged": dict(stored.logged),
        "rows": int(stored.digest.partition("-")[0]),
        "digest": stored.digest,
        "profile": as_document(stored.profiles(profiled)),
    }


def manifest_of(directory: str, deployment: Deployment) -> dict[str, Any]:
    """Return the manifest of a training set. Only for a directory that is not on a local disk, Spark is needed."""
    text = _text(directory, deployment)
    try:
        manifest: dict[str, Any] | None = None if text is None else json.loads(text)
    except json.JSONDecodeError:  # whoever wrote it died before the end
        manifest = None
    if manifest is None or manifest.get("version") != VERSION:
        raise ProjectError(
            "no-training-set",
            f"{directory} holds no training set that this release knows",
            why="it has no manifest: it is something else, or whoever wrote it died before it was whole"
            if manifest is None
            else f"its manifest is of version {manifest.get('version')}, this release reads {VERSION}",
            fix="name a directory that leftfold training-set --out has written to its end",
        )
    return manifest


def _text(directory: str, deployment: Deployment) -> str | None:
    path = local_path(directory, deployment.profile.spark.conf)
    if path is None:
        from leftfold.spark.files import read_text

        return read_text(deployment.session(), f"{directory}/{FILE}")
    try:
        return (path / FILE).read_text()
    except (FileNotFoundError, NotADirectoryError):
        return None
