"""Views as Spark applications on Kubernetes, in plain objects: no operator has to be installed.

Each application is one pod that runs `leftfold run`, the driver, which asks Kubernetes for its executors itself. A
manifest names Secrets and never holds what is in them.
"""

from __future__ import annotations

import hashlib
import posixpath
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from leftfold.errors import ProjectError
from leftfold.render.applications import Application, applications
from leftfold.render.documents import Manifest
from leftfold.render.names import label_name
from leftfold.settings import Profile
from leftfold.spec.catalog import Catalog
from leftfold.spec.sinks import Lake

# Fixed, because the headless service and network policies name them; they are Spark's own for a driver in a pod.
_DRIVER_PORT, _BLOCKS_PORT = 7078, 7079
_CONF = "/etc/leftfold/spark"
_DEFAULTS = "spark-defaults.conf"
# Outside its heap an executor has RocksDB and Python workers. Spark's own factor where it knows that Python is run.
_OVERHEAD = 0.4
# Beside its heap the driver's pod has the JVM's own memory, and Python with Arrow and pandas.
_LEAST_DRIVER_OVERHEAD_MI = 1_024
_PARTITIONS = ("spark.sql.shuffle.partitions", "spark.cores.max")


@dataclass(frozen=True)
class SparkOptions:
    image: str  # of driver and executors alike, with the project in it
    namespace: str
    secret: str  # its keys become the environment of the driver: what the profile takes from env:NAME
    groups: tuple[tuple[str, tuple[str, ...]], ...] = ()
    ca_secret: str | None = None  # mounted where the profile's kafka.ca is
    directory: str = "/project"  # of leftfold.toml in the image
    executors: int = 2
    executor_cores: int = 2
    executor_memory_mi: int = 4_096
    driver_memory_mi: int = 2_048
    grace_s: int = 300  # a batch takes seconds, and one after a long stop some minutes
    metrics_port: int = 9_464


@dataclass(frozen=True)
class _Place:
    """What all applications of the project share."""

    project: str
    profile: Profile
    options: SparkOptions

    @property
    def account(self) -> str:
        return label_name(self.project)

    @property
    def executor_account(self) -> str:
        return label_name(f"{self.project}-executor")

    def named(self, api: str, kind: str, name: str, **content: Any) -> Manifest:
        metadata = {"name": name, "namespace": self.options.namespace, "labels": self.labels(name)}
        return {"apiVersion": api, "kind": kind, "metadata": metadata, **content}

    def labels(self, name: str) -> dict[str, str]:
        return {
            "app.kubernetes.io/name": "leftfold",
            "app.kubernetes.io/instance": name,
            "app.kubernetes.io/part-of": label_name(self.project),
        }


def spark_manifests(project: str, catalog: Catalog, profile: Profile, options: SparkOptions) -> Iterator[Manifest]:
    _check_profile(catalog, profile, options)
    place = _Place(project, profile, options)
    yield from _accounts(place)
    for application in applications(project, catalog, options.groups):
        conf = _conf(application, place)
        yield place.named("v1", "ConfigMap", application.name, data={_DEFAULTS: conf})
        yield _service(application, place)
        yield _stateful_set(application, place, conf)


def _check_profile(catalog: Catalog, profile: Profile, options: SparkOptions) -> None:
    """All that is missing, at once. What comes from a variable that is not set here is not judged."""
    lakes = any(isinstance(sink, Lake) for view in catalog.views.values() for sink in view.sinks) or any(
        topic.archive for topic in catalog.topics.values()
    )
    has_conf = any(name in profile.spark.conf for name in _PARTITIONS)
    gone = "a pod's disk goes with the pod"
    wanted = [
        (profile.kafka is not None, 'kafka, registry and online: pods cannot reach the cluster of "leftfold up"'),
        (_is(profile.spark.master, "k8s://"), 'spark.master, such as "k8s://https://kubernetes.default.svc"'),
        (_is(profile.checkpoints, "://"), f'checkpoints, such as "s3a://bucket/checkpoints": {gone}'),
        (not lakes or _is(profile.lake, "://"), f'lake, such as "s3a://bucket/lake": {gone}'),
        (
            has_conf,
            f'spark.conf with "{_PARTITIONS[0]}": a checkpoint keeps the number for ever, and it would depend on how '
            "many executors are there when it is made",
        ),
        (
            options.ca_secret is None or (profile.kafka is not None and profile.kafka.ca is not None),
            "kafka.ca, the file that --ca-secret holds",
        ),
    ]
    missing = [what for there, what in wanted if not there]
    if missing:
        raise ProjectError(
            "profile-not-for-kubernetes",
            f"profile {profile.name} cannot run in pods: it does not say {missing[0].partition(':')[0]}",
            why="; ".join(missing),
            fix=f"add it to [profile.{profile.name}], or choose another one with --profile; "
            "docs/guide/kubernetes.md has an example",
        )


def _is(value: str | None, part: str) -> bool:
    return value is not None and (part in value or value.startswith("env:"))


def _accounts(place: _Place) -> Iterator[Manifest]:
    """The driver makes and ends pods, with the ConfigMap that they start from. Executors ask Kubernetes for nothing."""
    api, account = "rbac.authorization.k8s.io", place.account
    subject = {"kind": "ServiceAccount", "name": account, "namespace": place.options.namespace}
    rule = {
        "apiGroups": [""],
        "resources": ["pods", "configmaps", "services", "persistentvolumeclaims"],
        "verbs": ["create", "delete", "deletecollection", "get", "list", "patch", "watch"],
    }
    yield place.named("v1", "ServiceAccount", account)
    yield place.named("v1", "ServiceAccount", place.executor_account, automountServiceAccountToken=False)
    yield place.named(f"{api}/v1", "Role", account, rules=[rule])
    yield place.named(
        f"{api}/v1",
        "RoleBinding",
        account,
        roleRef={"apiGroup": api, "kind": "Role", "name": account},
        subjects=[subject],
    )


def _conf(application: Application, place: _Place) -> str:
    """Spark's file of defaults. What the profile's own spark.conf says wins over it, and is left out here."""
    name, options = application.name, place.options
    settings = {
        "spark.driver.bindAddress": "0.0.0.0",
        "spark.driver.blockManager.port": _BLOCKS_PORT,
        "spark.driver.host": f"{name}-0.{name}.{options.namespace}.svc",
        "spark.driver.memory": f"{options.driver_memory_mi}m",
        "spark.driver.port": _DRIVER_PORT,
        "spark.executor.cores": options.executor_cores,
        "spark.executor.instances": options.executors,
        "spark.executor.memory": f"{options.executor_memory_mi}m",
        "spark.executor.memoryOverheadFactor": _OVERHEAD,
        "spark.kubernetes.authenticate.executor.serviceAccountName": place.executor_account,
        "spark.kubernetes.container.image": options.image,
        "spark.kubernetes.driver.pod.name": f"{name}-0",  # executors belong to it: they go when it is deleted
        "spark.kubernetes.namespace": options.namespace,
    }
    if (mount := _ca_mount(place)) is not None:
        settings[f"spark.kubernetes.executor.secrets.{options.ca_secret}"] = mount
    own = {key: value for key, value in settings.items() if key not in place.profile.spark.conf}
    return "".join(f"{key} {value}\n" for key, value in sorted(own.items()))


def _ca_mount(place: _Place) -> str | None:
    kafka = place.profile.kafka
    return posixpath.dirname(kafka.ca) if place.options.ca_secret and kafka and kafka.ca else None


def _service(application: Application, place: _Place) -> Manifest:
    """Gives the driver a name before it is ready: its executors have to find it for it to become so."""
    ports = {"driver": _DRIVER_PORT, "blocks": _BLOCKS_PORT, "metrics": place.options.metrics_port}
    spec = {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": _selector(application),
        "ports": [{"name": name, "port": port} for name, port in ports.items()],
    }
    return place.named("v1", "Service", application.name, spec=spec)


def _selector(application: Application) -> dict[str, str]:
    return {"app.kubernetes.io/name": "leftfold", "app.kubernetes.io/instance": application.name}


def _stateful_set(application: Application, place: _Place, conf: str) -> Manifest:
    """Not a Deployment: that may start a second driver while the first still runs on a machine out of reach."""
    options = place.options
    annotations = {
        "checksum/config": hashlib.sha256(conf.encode()).hexdigest(),  # a changed setting is a new pod
        "prometheus.io/path": "/metrics",
        "prometheus.io/port": str(options.metrics_port),
        "prometheus.io/scrape": "true",
    }
    template = {
        "metadata": {"labels": place.labels(application.name), "annotations": annotations},
        "spec": {
            "serviceAccountName": place.account,
            "terminationGracePeriodSeconds": options.grace_s,  # SIGTERM ends `run` after its batch
            "containers": [_container(application, place)],
            "volumes": _volumes(application, place),
        },
    }
    spec = {
        "replicas": 1,
        "serviceName": application.name,
        "selector": {"matchLabels": _selector(application)},
        "template": template,
    }
    return place.named("apps/v1", "StatefulSet", application.name, spec=spec)


def _container(application: Application, place: _Place) -> dict[str, Any]:
    options = place.options
    memory = options.driver_memory_mi + max(_LEAST_DRIVER_OVERHEAD_MI, int(options.driver_memory_mi * _OVERHEAD))
    mounts = [
        {"name": "state", "mountPath": posixpath.join(options.directory, ".leftfold")},
        {"name": "conf", "mountPath": _CONF, "readOnly": True},
    ]
    if (mount := _ca_mount(place)) is not None:
        mounts.append({"name": "ca", "mountPath": mount, "readOnly": True})
    ports = {"driver": _DRIVER_PORT, "blocks": _BLOCKS_PORT, "metrics": options.metrics_port}
    return {
        "name": "driver",
        "image": options.image,
        "workingDir": options.directory,
        "command": ["leftfold", "run"],
        "args": [
            *("--profile", place.profile.name),
            *("--views", ",".join(application.views)),
            *("--metrics", f"0.0.0.0:{options.metrics_port}"),
        ],
        "env": [{"name": "SPARK_CONF_DIR", "value": _CONF}],
        "envFrom": [{"secretRef": {"name": options.secret}}],
        "ports": [{"name": name, "containerPort": port} for name, port in ports.items()],
        "resources": {"requests": {"cpu": "1", "memory": f"{memory}Mi"}, "limits": {"memory": f"{memory}Mi"}},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": mounts,
    }


def _volumes(application: Application, place: _Place) -> list[dict[str, Any]]:
    """Logs and locks are all that is kept in the pod; offsets and state are in the checkpoints."""
    volumes: list[dict[str, Any]] = [
        {"name": "state", "emptyDir": {}},
        {"name": "conf", "configMap": {"name": application.name}},
    ]
    if _ca_mount(place) is not None:
        volumes.append({"name": "ca", "secret": {"secretName": place.options.ca_secret}})
    return volumes
