"""Renders declarations into manifests, and checks these."""

from __future__ import annotations

import importlib.util

from leftfold.declare.catalog import Catalog
from leftfold.errors import ProjectError
from leftfold.plan.diff import wanted_topics
from leftfold.render.consumers import ConsumerOptions, consumer_manifests
from leftfold.render.crds import check
from leftfold.render.documents import Manifest
from leftfold.render.rights import acls
from leftfold.render.spark import SparkOptions, spark_manifests
from leftfold.render.strimzi import NODES, StrimziOptions, strimzi_manifests
from leftfold.settings import Profile

_LIBRARIES = ("jsonschema", "yaml")


RenderOptions = StrimziOptions | SparkOptions | ConsumerOptions


def render(project: str, catalog: Catalog, profile: Profile, options: RenderOptions) -> list[Manifest]:
    """The manifests, in an order in which they can be applied. The same declarations always give the same manifests."""
    _check_installed()
    if isinstance(options, StrimziOptions):
        topics = wanted_topics(catalog, profile, brokers=None if options.topics_only else NODES)
        manifests = list(strimzi_manifests(topics, acls(catalog, profile), options))
    elif isinstance(options, ConsumerOptions):
        manifests = list(consumer_manifests(project, catalog, profile, options))
    else:
        manifests = list(spark_manifests(project, catalog, profile, options))
    check(manifests)
    return manifests


def _check_installed() -> None:
    missing = [name for name in _LIBRARIES if importlib.util.find_spec(name) is None]
    if missing:
        raise ProjectError(
            "kubernetes-not-installed",
            f"the Python library {missing[0]} is not installed here",
            why="manifests are written as YAML and checked against the schemas of their kinds",
            fix="install it: pip install 'leftfold[kubernetes]'",
        )
