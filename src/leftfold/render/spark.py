"""Views as Spark applications on Kubernetes. They are plain Kubernetes objects: no operator has to be installed.

Each application is one pod, the driver, which runs `leftfold run` and asks Kubernetes for its executors itself. A
manifest names Secrets and never contains their content.
"""

from __future__ import annotations

import hashlib
import posixpath
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import urlparse

from leftfold.declare.catalog import Catalog
from leftfold.places import check_checkpoints, check_lake, scheme_of
from leftfold.render.applications import Application, applications
from leftfold.render.documents import Manifest
from leftfold.render.names import label_name
from leftfold.render.pods import SECURITY, Pods, scraped
from leftfold.settings import Profile

# Fixed, because the headless service and network policies name them. They are Spark's defaults for a driver in a pod.
_DRIVER_PORT, _BLOCKS_PORT = 7078, 7079
_CONF = "/etc/leftfold/spark"
_DEFAULTS = "spark-defaults.conf"
# Outside its heap, an executor needs memory for RocksDB and Python workers. This is Spark's own factor for Python jobs.
_OVERHEAD = 0.4
# In addition to the heap, the driver's pod needs memory for the JVM itself, and for Python with Arrow and pandas.
_LEAST_DRIVER_OVERHEAD_MI = 1_024
_PARTITIONS = ("spark.sql.shuffle.partitions", "spark.cores.max")


@dataclass(frozen=True)
class SparkOptions:
    """The options of the manifests for Spark."""

    image: str  # the image of driver and executors, with the project in it
    namespace: str
    secret: str  # its keys become the driver's environment variables, which the profile reads as env:NAME
    groups: tuple[tuple[str, tuple[str, ...]], ...] = ()
    ca_secret: str | None = None  # mounted in the directory of the profile's kafka.ca
    directory: str = "/project"  # the directory of leftfold.toml in the image
    shared: str = "/shared"  # where driver and executors mount the volume of the checkpoints
    claim: str | None = None  # an existing claim for that volume; if None, a claim is rendered
    claim_size: str = "20Gi"
    storage_class: str | None = None  # for the claim that is rendered
    executors: int = 2
    executor_cores: int = 2
    executor_memory_mi: int = 4_096
    driver_memory_mi: int = 2_048
    grace_s: int = 300  # a batch takes seconds; the first one after a long stop takes some minutes
    metrics_port: int = 9_464


@dataclass(frozen=True)
class _Place(Pods):
    """The things that all applications of the project share."""

    options: SparkOptions

    @property
    def account(self) -> str:
        return label_name(self.project)

    @property
    def claim(self) -> str | None:
        """The name of the claim for the volume that pods share; None if neither checkpoints nor lake are on one."""
        places = [p for p in (self.profile.checkpoints, self.profile.lake) if p is not None]
        shared = any(_later(p) or scheme_of(p, self.profile.spark.conf) == "file" for p in places)
        return (self.options.claim or label_name(f"{self.project}-shared")) if shared else None

    @property
    def executor_account(self) -> str:
        return label_name(f"{self.project}-executor")


def spark_manifests(project: str, catalog: Catalog, profile: Profile, options: SparkOptions) -> Iterator[Manifest]:
    place = _Place(project, profile, options.namespace, options.ca_secret, "leftfold", options)
    _check_profile(catalog, place)
    yield from _accounts(place)
    if place.claim and not options.claim:
        yield _claim(place)
    for application in applications(project, catalog, options.groups):
        conf = _conf(application, place)
        yield place.named("v1", "ConfigMap", application.name, data={_DEFAULTS: conf})
        yield _service(application, place)
        yield _stateful_set(application, place, conf)


def _check_profile(catalog: Catalog, place: _Place) -> None:
    """Check that views of the profile can run in pods.

    A value that comes from an environment variable (env:NAME) is not checked: it is known only in the pod.
    """
    profile, options = place.profile, place.options
    places, conf = {"checkpoints": profile.checkpoints, "lake": profile.lake}, profile.spark.conf
    used = {name: at for name, at in places.items() if name != "lake" or catalog.fills_lake}
    known = {name: at for name, at in used.items() if at is not None and not _later(at)}
    if (at := known.get("checkpoints")) is not None:
        check_checkpoints(at, scheme_of(at, conf))
    if (at := known.get("lake")) is not None:
        check_lake(at, scheme_of(at, conf), conf)
    gone = {n for n, p in used.items() if p is None} | {n for n, p in known.items() if not _stays(p, profile, options)}
    has_conf = any(name in profile.spark.conf for name in _PARTITIONS)
    needs = [
        (_is(profile.spark.master, "k8s://"), 'spark.master, such as "k8s://https://kubernetes.default.svc"'),
        *(
            (
                name not in gone,
                f'{name}, such as "{options.shared}/{name}": a pod\'s own disk goes with the pod, and {options.shared} '
                "is what pods share",
            )
            for name in used
        ),
        (
            has_conf,
            f'spark.conf with "{_PARTITIONS[0]}": a checkpoint keeps the number for ever, and it would depend on how '
            "many executors are there when it is made",
        ),
    ]
    place.check_profile(needs)


def _is(value: str | None, part: str) -> bool:
    return value is not None and (part in value or _later(value))


def _later(value: str) -> bool:
    """True if the value is known only in the pod, because it comes from an environment variable."""
    return value.startswith("env:")


def _stays(place: str, profile: Profile, options: SparkOptions) -> bool:
    """True if the place outlives a pod: it is on the volume that pods share, or it is not on a file system of pods."""
    below = PurePosixPath(options.shared) in PurePosixPath(urlparse(place).path).parents
    return below or scheme_of(place, profile.spark.conf) != "file"


def _accounts(place: _Place) -> Iterator[Manifest]:
    """The service accounts and their rights. Executors ask Kubernetes for nothing, and have no token.

    The driver creates and deletes pods, and the ConfigMap that these start from.
    """
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


def _claim(place: _Place) -> Manifest:
    """The claim for a file system that driver and executors mount at once.

    The default storage class of many clusters does not offer such file systems.
    """
    spec = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": place.options.claim_size}}}
    if place.options.storage_class is not None:
        spec["storageClassName"] = place.options.storage_class
    return place.named("v1", "PersistentVolumeClaim", str(place.claim), spec=spec)


def _conf(application: Application, place: _Place) -> str:
    """The content of spark-defaults.conf. Settings in the profile's own spark.conf win, and are left out here."""
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
        "spark.kubernetes.driver.pod.name": f"{name}-0",  # it owns the executors: they are deleted with it
        "spark.kubernetes.namespace": options.namespace,
    }
    if (mount := place.ca_directory) is not None:
        settings[f"spark.kubernetes.executor.secrets.{options.ca_secret}"] = mount
    if place.claim:
        volume = "spark.kubernetes.executor.volumes.persistentVolumeClaim.shared"
        settings |= {f"{volume}.mount.path": options.shared, f"{volume}.options.claimName": place.claim}
    own = {key: value for key, value in settings.items() if key not in place.profile.spark.conf}
    return "".join(f"{key} {value}\n" for key, value in sorted(own.items()))


def _service(application: Application, place: _Place) -> Manifest:
    """The service that gives the driver a host name, even before the driver is ready.

    The driver becomes ready only after its executors have found it.
    """
    ports = {"driver": _DRIVER_PORT, "blocks": _BLOCKS_PORT, "metrics": place.options.metrics_port}
    spec = {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": place.selector(application.name),
        "ports": [{"name": name, "port": port} for name, port in ports.items()],
    }
    return place.named("v1", "Service", application.name, spec=spec)


def _stateful_set(application: Application, place: _Place, conf: str) -> Manifest:
    """The StatefulSet of the driver. A Deployment could start a second driver while an unreachable one still runs."""
    options = place.options
    annotations = {
        "checksum/config": hashlib.sha256(conf.encode()).hexdigest(),  # a changed setting makes a new pod
        **scraped(options.metrics_port),
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
        "selector": {"matchLabels": place.selector(application.name)},
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
    if place.claim:
        mounts.append({"name": "shared", "mountPath": options.shared})
    if (mount := place.ca_directory) is not None:
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
        "securityContext": SECURITY,
        "volumeMounts": mounts,
    }


def _volumes(application: Application, place: _Place) -> list[dict[str, Any]]:
    """The volumes of the driver's pod. The pod itself keeps only logs and locks.

    Offsets and state are in the profile's checkpoints: on the volume that pods share, or in another file system.
    """
    volumes: list[dict[str, Any]] = [
        {"name": "state", "emptyDir": {}},
        {"name": "conf", "configMap": {"name": application.name}},
    ]
    if place.claim:
        volumes.append({"name": "shared", "persistentVolumeClaim": {"claimName": place.claim}})
    if place.ca_directory is not None:
        volumes.append({"name": "ca", "secret": {"secretName": place.options.ca_secret}})
    return volumes
