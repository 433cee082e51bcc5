"""The project's Kafka as resources of the Strimzi operator: a cluster of three nodes, a user, and every topic.

The cluster is a starting point for users who have none. The topics are exactly those that `apply` would create.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from leftfold.plan.steps import CreateTopic
from leftfold.render.documents import Manifest
from leftfold.render.names import resource_name

API = "kafka.strimzi.io/v1"
NODES = 3  # the fewest that can lose one and still accept writes with min.insync.replicas=2
PORT = 9093
_SESSION_MS = 15_000  # three heartbeats of 5 s, Kafka's default
_POOL = "nodes"
_ZONE = "topology.kubernetes.io/zone"  # the label that cloud providers put on machines


@dataclass(frozen=True)
class StrimziOptions:
    """The options of the manifests for Strimzi."""

    cluster: str  # name of the Kafka resource, and value of a KafkaTopic's label
    namespace: str
    storage: str = "100Gi"  # per node, as are cpu and memory
    cpu: str = "2"
    memory: str = "8Gi"
    kafka_version: str | None = None  # if None, the operator chooses
    topics_only: bool = False  # True if the cluster exists already


def strimzi_manifests(
    topics: Sequence[CreateTopic], rights: Iterable[dict[str, Any]], options: StrimziOptions
) -> Iterator[Manifest]:
    """The manifests of the cluster, of a user with these rights (ACLs of Strimzi), and of the topics."""
    if not options.topics_only:
        yield _kafka(options)
        yield _node_pool(options)
        yield _user(rights, options)
    for topic in topics:
        yield _topic(topic, options)


def _resource(
    kind: str, name: str, options: StrimziOptions, spec: dict[str, Any], *, labelled: bool = True
) -> Manifest:
    """A resource of Strimzi. Its label says to which Kafka it belongs; the operator ignores a resource without it.

    Only the Kafka resource itself needs no label.
    """
    labels = {"labels": {"strimzi.io/cluster": options.cluster}} if labelled else {}
    return {
        "apiVersion": API,
        "kind": kind,
        "metadata": {"name": name, "namespace": options.namespace, **labels},
        "spec": spec,
    }


def _kafka(options: StrimziOptions) -> Manifest:
    listener = {
        "name": "tls",
        "port": PORT,
        "type": "internal",
        "tls": True,
        "authentication": {"type": "scram-sha-512"},  # the default of a profile
    }
    config = {
        "auto.create.topics.enable": False,  # a misspelt name is an error, not a new topic
        "default.replication.factor": 3,
        # A member that died keeps its partitions until its session ends: by default for 45 s, which is also the least.
        "group.consumer.min.session.timeout.ms": _SESSION_MS,
        "group.consumer.session.timeout.ms": _SESSION_MS,
        "min.insync.replicas": 2,
        "offsets.topic.replication.factor": 3,
        "transaction.state.log.min.isr": 2,
        "transaction.state.log.replication.factor": 3,
        "unclean.leader.election.enable": False,  # a replica that lacks records never becomes the leader
    }
    version = {"version": options.kafka_version} if options.kafka_version else {}
    kafka = {
        **version,
        "listeners": [listener],
        "authorization": {"type": "simple"},  # Kafka's own ACLs; the operator itself is not bound by them
        "rack": {"topologyKey": _ZONE},
        "config": config,
    }
    spec = {"kafka": kafka, "entityOperator": {"topicOperator": {}, "userOperator": {}}}
    return _resource("Kafka", options.cluster, options, spec, labelled=False)


def _node_pool(options: StrimziOptions) -> Manifest:
    volume = {
        "id": 0,
        "type": "persistent-claim",
        "size": options.storage,
        "kraftMetadata": "shared",
        "deleteClaim": False,  # records outlive a resource that was deleted by mistake
    }
    # From `rack`, Kafka only knows the zone of a node. This keeps two nodes out of one zone while another has none.
    spread = {
        "maxSkew": 1,
        "topologyKey": _ZONE,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"strimzi.io/cluster": options.cluster, "strimzi.io/pool-name": _POOL}},
    }
    spec = {
        "replicas": NODES,
        "roles": ["controller", "broker"],
        "storage": {"type": "jbod", "volumes": [volume]},
        "resources": {
            "requests": {"cpu": options.cpu, "memory": options.memory},
            "limits": {"memory": options.memory},
        },
        "template": {"pod": {"topologySpreadConstraints": [spread]}},
    }
    return _resource("KafkaNodePool", _POOL, options, spec)


def _user(rights: Iterable[dict[str, Any]], options: StrimziOptions) -> Manifest:
    """The Kafka user. The operator makes its password and keeps it in a Secret of the same name."""
    spec = {
        "authentication": {"type": "scram-sha-512"},
        "authorization": {"type": "simple", "acls": list(rights)},
    }
    return _resource("KafkaUser", "leftfold", options, spec)


def _topic(topic: CreateTopic, options: StrimziOptions) -> Manifest:
    spec = {
        "topicName": topic.name,
        "partitions": topic.partitions,
        "replicas": topic.replication,
        "config": dict(topic.configs),
    }
    return _resource("KafkaTopic", resource_name(topic.name), options, spec)
