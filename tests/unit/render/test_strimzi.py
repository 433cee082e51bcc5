"""The cluster, and topics that are what `apply` would create."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from leftfold.plan.diff import wanted_topics
from leftfold.plan.steps import CreateTopic
from leftfold.render.crds import wrong
from leftfold.render.strimzi import strimzi_manifests
from tests.unit.render.projects import EXAMPLES, STRIMZI, for_kubernetes, local

TOPIC = CreateTopic("prod.User_Activity.changelog", 12, 2, (("cleanup.policy", "compact"),), "compacted", "broker")


def by_kind(*topics: CreateTopic, **options: Any) -> dict[str, dict[str, Any]]:
    return {one["kind"]: one for one in strimzi_manifests(topics, replace(STRIMZI, **options))}


def test_a_topic_as_it_is_to_be() -> None:
    made = by_kind(TOPIC)["KafkaTopic"]
    assert made["spec"] == {
        "topicName": "prod.User_Activity.changelog",
        "partitions": 12,
        "replicas": 2,
        "config": {"cleanup.policy": "compact"},
    }
    assert made["metadata"]["name"].startswith("prod.user-activity.changelog-")
    assert made["metadata"]["labels"] == {"strimzi.io/cluster": "shop"}
    assert wrong(made) == []


def test_every_topic_of_a_project_and_nothing_else(tmp_path: Path) -> None:
    app = for_kubernetes(EXAMPLES / "clickstream", tmp_path)
    rendered = [one["spec"] for one in app.render(STRIMZI) if one["kind"] == "KafkaTopic"]
    assert rendered == [
        {"topicName": t.name, "partitions": t.partitions, "replicas": t.replication, "config": dict(t.configs)}
        for t in wanted_topics(app.catalog, app.profile)
    ]
    assert {spec["topicName"] for spec in rendered} >= {"prod.clicks", "prod.leftfold.receipts", "prod.clicks.late"}


def test_only_topics(tmp_path: Path) -> None:
    made = local(EXAMPLES / "clickstream", tmp_path).render(replace(STRIMZI, topics_only=True))
    assert {one["kind"] for one in made} == {"KafkaTopic"}


def test_the_cluster_survives_the_loss_of_a_zone() -> None:
    made = by_kind()
    kafka, pool = made["Kafka"]["spec"]["kafka"], made["KafkaNodePool"]["spec"]
    assert kafka["rack"] == {"topologyKey": "topology.kubernetes.io/zone"}
    (spread,) = pool["template"]["pod"]["topologySpreadConstraints"]
    assert (spread["topologyKey"], spread["maxSkew"]) == ("topology.kubernetes.io/zone", 1)
    assert (pool["replicas"], pool["roles"]) == (3, ["controller", "broker"])
    config = kafka["config"]
    assert (config["default.replication.factor"], config["min.insync.replicas"]) == (3, 2)
    assert config["unclean.leader.election.enable"] is config["auto.create.topics.enable"] is False


def test_nobody_gets_in_without_a_password_or_in_the_clear() -> None:
    (listener,) = by_kind()["Kafka"]["spec"]["kafka"]["listeners"]
    assert (listener["tls"], listener["authentication"]["type"]) == (True, "scram-sha-512")
    assert by_kind()["KafkaUser"]["spec"]["authentication"]["type"] == "scram-sha-512"


def test_disks_outlive_their_resource() -> None:
    (volume,) = by_kind(storage="2Ti")["KafkaNodePool"]["spec"]["storage"]["volumes"]
    assert (volume["type"], volume["size"], volume["deleteClaim"]) == ("persistent-claim", "2Ti", False)


@pytest.mark.parametrize(("asked", "found"), [(None, None), ("4.3.1", "4.3.1")])
def test_kafkas_version_is_the_operators_unless_told(asked: str | None, found: str | None) -> None:
    made = by_kind(kafka_version=asked)["Kafka"]
    assert made["spec"]["kafka"].get("version") == found
    assert wrong(made) == []
