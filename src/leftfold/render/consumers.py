"""Consumers as Deployments on Kubernetes: each pod runs `leftfold consume`, as one member of the consumer's group.

A manifest names Secrets and never contains their content.
"""

from __future__ import annotations

import math
import posixpath
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from leftfold.declare.catalog import Catalog
from leftfold.declare.consumer import Consumer
from leftfold.declare.guarantees import useful_members
from leftfold.errors import ProjectError
from leftfold.render.documents import Manifest
from leftfold.render.names import label_name
from leftfold.render.pods import SECURITY, Pods, scraped
from leftfold.settings import Profile

# If one is lost, the other has its partitions after a session.
_REPLICAS = 2
# After the drain a process commits, and leaves its group. Brokers that are slow get their time; then it ends anyway.
_AFTER_DRAIN_S = 60


@dataclass(frozen=True)
class ConsumerOptions:
    """The options of the manifests for consumers."""

    image: str  # with Leftfold and the project in it
    namespace: str
    secret: str  # its keys become environment variables, which the profile reads as env:NAME
    replicas: tuple[tuple[str, int], ...] = ()  # by consumer; two of those that are not named
    ca_secret: str | None = None  # mounted in the directory of the profile's kafka.ca
    directory: str = "/project"  # the directory of leftfold.toml in the image
    cpu: str = "500m"  # of each pod, as is memory
    memory: str = "512Mi"
    metrics_port: int = 9_464


def consumer_manifests(
    project: str, catalog: Catalog, profile: Profile, options: ConsumerOptions
) -> Iterator[Manifest]:
    pods = Pods(project, profile, options.namespace, options.ca_secret, "leftfold-consumer")
    pods.check_profile()
    asked = {catalog.consumer(name).name: count for name, count in options.replicas}
    account = label_name(f"{project}-consumers")
    yield pods.named("v1", "ServiceAccount", account, automountServiceAccountToken=False)
    for consumer in catalog.chosen_consumers():
        yield _deployment(consumer, _replicas(consumer, asked.get(consumer.name)), account, pods, options)


def _replicas(consumer: Consumer[..., Any], asked: int | None) -> int:
    most = useful_members([topic.partitions for topic in consumer.topics])
    if asked is None:
        return min(_REPLICAS, most)
    if asked > most:
        names = [topic.name for topic in consumer.topics]
        largest = names[0] if len(names) == 1 else f"the largest of {', '.join(names)}"
        raise ProjectError(
            "replicas-beyond-partitions",
            f"consumer {consumer.name} is to have {asked} replicas, and {largest} has {most} partitions",
            why="a partition is read by one member of a group: the others would run and be idle",
            fix=f"give --replicas {consumer.name}={most} at most; a larger parallel= lets each handle more at once",
            source=consumer.source,
        )
    return asked


def _deployment(
    consumer: Consumer[..., Any], replicas: int, account: str, pods: Pods, options: ConsumerOptions
) -> Manifest:
    """The Deployment of one consumer. The group itself sees to it that a partition has one reader.

    A rollout stops one pod, which leaves its group, and then starts the next. A pod in addition would be a member more
    than there may be partitions, and would move partitions twice.
    """
    name = label_name(f"{pods.project}-{consumer.name}")
    volumes: list[dict[str, Any]] = [{"name": "state", "emptyDir": {}}]
    if pods.ca_directory is not None:
        volumes.append({"name": "ca", "secret": {"secretName": options.ca_secret}})
    template = {
        "metadata": {"labels": pods.labels(name), "annotations": scraped(options.metrics_port)},
        "spec": {
            "serviceAccountName": account,
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": math.ceil(consumer.drain_s) + _AFTER_DRAIN_S,
            "containers": [_container(consumer, pods, options)],
            "volumes": volumes,
        },
    }
    spec = {
        "replicas": replicas,
        "selector": {"matchLabels": pods.selector(name)},
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
        "template": template,
    }
    return pods.named("apps/v1", "Deployment", name, spec=spec)


def _container(consumer: Consumer[..., Any], pods: Pods, options: ConsumerOptions) -> dict[str, Any]:
    mounts: list[dict[str, Any]] = [{"name": "state", "mountPath": posixpath.join(options.directory, ".leftfold")}]
    if pods.ca_directory is not None:
        mounts.append({"name": "ca", "mountPath": pods.ca_directory, "readOnly": True})
    return {
        "name": "consumer",
        "image": options.image,
        "workingDir": options.directory,
        "command": ["leftfold", "consume"],
        "args": [
            *("--profile", pods.profile.name),
            *("--consumers", consumer.name),
            *("--metrics", f"0.0.0.0:{options.metrics_port}"),
        ],
        "envFrom": [{"secretRef": {"name": options.secret}}],
        "ports": [{"name": "metrics", "containerPort": options.metrics_port}],
        "resources": {
            "requests": {"cpu": options.cpu, "memory": options.memory},
            "limits": {"memory": options.memory},
        },
        # A handler that computes can keep Python from answering for seconds. After a minute the process is given up.
        "livenessProbe": {**_probe("/health/live"), "periodSeconds": 10, "timeoutSeconds": 5, "failureThreshold": 6},
        "readinessProbe": {**_probe("/health/ready"), "periodSeconds": 5, "timeoutSeconds": 5},
        "securityContext": SECURITY,
        "volumeMounts": mounts,
    }


def _probe(path: str) -> dict[str, Any]:
    return {"httpGet": {"path": path, "port": "metrics"}}
