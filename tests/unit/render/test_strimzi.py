"""The cluster, and topics that are what `apply` would create."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

import leftfold as lf
from leftfold.hazards import consumers
from leftfold.plan.diff import wanted_topics
from leftfold.plan.steps import CreateTopic
from leftfold.render.crds import wrong
from leftfold.render.strimzi import strimzi_manifests
from tests.unit.hazards.judging import facts
from tests.unit.render.projects import EXAMPLES, PROFILE, STRIMZI, for_kubernetes, local, with_consumers

REFERENCE = EXAMPLES.parent / "docs" / "reference" / "project.md"

TOPIC = CreateTopic("prod.User_Activity.changelog", 12, 2, (("cleanup.policy", "compact"),), "compacted", "broker")


def by_kind(*topics: CreateTopic, **options: Any) -> dict[str, dict[str, Any]]:
    return {one["kind"]: one for one in strimzi_manifests(topics, [], replace(STRIMZI, **options))}


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


def test_a_member_that_died_is_noticed_soon() -> None:
    config = by_kind()["Kafka"]["spec"]["kafka"]["config"]
    session = config["group.consumer.session.timeout.ms"]
    assert session == config["group.consumer.min.session.timeout.ms"] == 15_000
    found = facts(with_a_consumer(), group_consumer_session_timeout_ms=session)
    assert [hazard.code for rule in consumers.RULES for hazard in rule(found)] == []


def with_a_consumer() -> Any:
    class Click(lf.Event):
        user: str
        at: datetime

    @lf.consumer(lf.Topic("clicks", Click, key=Click.user, time=Click.at), start="now")
    def notify(click: Click) -> None: ...

    return notify


def test_topics_of_consumers(tmp_path: Path) -> None:
    made = [one["spec"] for one in with_consumers(tmp_path).render(STRIMZI) if one["kind"] == "KafkaTopic"]
    partitions = {spec["topicName"]: spec["partitions"] for spec in made}
    assert partitions["prod.leftfold.consumers"] == partitions["prod.notify.dead"] == partitions["prod.buy.dead"] == 1
    assert partitions["prod.notify.again"] == partitions["prod.buy.again"] == partitions["prod.clicks"]


# Rights -------------------------------------------------------------------------------------------------------------


def documented() -> set[tuple[str, str, str]]:
    """The reference's table of rights: resource, name and operation."""
    text = REFERENCE.read_text().partition("\n## Rights\n")[2].partition("\n## ")[0]
    rows = [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in text.splitlines()]
    kinds = ("Topic", "Group", "TransactionalId", "Cluster")
    return {(row[0], row[1], row[2]) for row in rows if row[0] in kinds}


def rights(made: list[dict[str, Any]]) -> set[tuple[str, str, str]]:
    (user,) = (one for one in made if one["kind"] == "KafkaUser")
    assert user["spec"]["authorization"]["type"] == "simple"
    found = set()
    for acl in user["spec"]["authorization"]["acls"]:
        resource = acl["resource"]
        name = resource.get("name", "kafka-cluster") + ("*" if resource.get("patternType") == "prefix" else "")
        kind = resource["type"][0].upper() + resource["type"][1:]
        found |= {(kind, name, operation) for operation in acl["operations"]}
    return found


def test_the_user_has_the_rights_that_the_reference_lists(tmp_path: Path) -> None:
    made = with_consumers(tmp_path).render(STRIMZI)
    assert rights(made) == documented()
    assert len(documented()) >= 8
    (kafka,) = (one for one in made if one["kind"] == "Kafka")
    assert kafka["spec"]["kafka"]["authorization"] == {"type": "simple"}


def test_rights_of_a_topic_that_somebody_else_owns(tmp_path: Path) -> None:
    app = for_kubernetes(EXAMPLES / "clickstream", tmp_path)
    streams = app.root / "streams.py"
    other = 'lf.Topic("visits", Click, key=Click.user_id, time=Click.at, external=True)'
    streams.write_text(f"{streams.read_text()}\nvisits = {other}\n")
    more = rights(app.render(STRIMZI)) - documented()
    assert more == {("Topic", "visits", operation) for operation in ("DescribeConfigs", "Read", "Write")}


def test_rights_without_a_namespace(tmp_path: Path) -> None:
    app = for_kubernetes(EXAMPLES / "clickstream", tmp_path, PROFILE.replace('namespace = "prod"\n', ""))
    found = rights(app.render(STRIMZI))
    assert {name for kind, name, _ in found if kind == "Topic"} == {"*"}
    assert {name for kind, name, _ in found if kind == "Group"} == {"leftfold.*"}


def test_disks_outlive_their_resource() -> None:
    (volume,) = by_kind(storage="2Ti")["KafkaNodePool"]["spec"]["storage"]["volumes"]
    assert (volume["type"], volume["size"], volume["deleteClaim"]) == ("persistent-claim", "2Ti", False)


@pytest.mark.parametrize(("asked", "found"), [(None, None), ("4.3.1", "4.3.1")])
def test_kafkas_version_is_the_operators_unless_told(asked: str | None, found: str | None) -> None:
    made = by_kind(kafka_version=asked)["Kafka"]
    assert made["spec"]["kafka"].get("version") == found
    assert wrong(made) == []
