"""A consumer is a Deployment of as many pods as can have work. They are found when they hang, and drained at a stop."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from leftfold.app import App
from leftfold.errors import LeftfoldError, ProjectError
from leftfold.render.crds import wrong
from tests.unit.render.projects import CONSUMERS, EXAMPLES, PROFILE, SPARK, for_kubernetes, with_consumers


@pytest.fixture
def app(tmp_path: Path) -> App:
    return with_consumers(tmp_path)


def deployments(app: App, **options: Any) -> dict[str, dict[str, Any]]:
    made = app.render(replace(CONSUMERS, **options))
    assert [wrong(one) for one in made] == [[]] * len(made)
    return {one["metadata"]["name"]: one["spec"] for one in made if one["kind"] == "Deployment"}


def pod(app: App, name: str = "clickstream-notify", **options: Any) -> dict[str, Any]:
    spec: dict[str, Any] = deployments(app, **options)[name]["template"]["spec"]
    return spec


def container(app: App, name: str = "clickstream-notify", **options: Any) -> dict[str, Any]:
    (one,) = pod(app, name, **options)["containers"]
    return dict(one)


def test_what_is_run(app: App) -> None:
    made = container(app)
    assert [*made["command"], *made["args"]] == [
        *("leftfold", "consume", "--profile", "prod", "--consumers", "notify", "--metrics", "0.0.0.0:9464")
    ]
    assert (made["workingDir"], made["image"]) == ("/project", "registry.example/shop:1")
    assert list(deployments(app)) == ["clickstream-notify", "clickstream-buy", "clickstream-ranker"]


def test_replicas(app: App) -> None:
    assert {spec["replicas"] for spec in deployments(app).values()} == {2}
    made = deployments(app, replicas=(("notify", 6),))
    assert [spec["replicas"] for spec in made.values()] == [6, 2, 2]


def test_a_topic_of_one_partition_has_one_pod(tmp_path: Path) -> None:
    app = with_consumers(tmp_path)
    streams = app.root / "streams.py"
    one = streams.read_text().replace('lf.Topic("clicks", Click, ', 'lf.Topic("clicks", Click, partitions=1, ')
    streams.write_text(one)
    assert {spec["replicas"] for spec in deployments(app).values()} == {1}


def test_more_replicas_than_partitions_are_refused(app: App) -> None:
    with pytest.raises(ProjectError, match="consumer notify is to have 7 replicas, and clicks has 6") as refused:
        app.render(replace(CONSUMERS, replicas=(("notify", 7),)))
    assert refused.value.code == "replicas-beyond-partitions"
    assert "--replicas notify=6" in refused.value.fix


def test_a_consumer_that_is_not_declared(app: App) -> None:
    with pytest.raises(LeftfoldError, match="no consumer 'notfy'"):
        app.render(replace(CONSUMERS, replicas=(("notfy", 2),)))


def test_a_rollout_replaces_one_member_after_the_other(app: App) -> None:
    for spec in deployments(app).values():
        assert spec["strategy"] == {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}


def test_a_stop_waits_for_calls_under_way(app: App) -> None:
    for name, consumer in app.catalog.consumers.items():
        assert pod(app, f"clickstream-{name}")["terminationGracePeriodSeconds"] == consumer.drain_s + 60


def test_probes_ask_what_consume_answers(app: App) -> None:
    made = container(app, metrics_port=9_500)
    ports = {port["name"]: port["containerPort"] for port in made["ports"]}
    for probe, path in (("livenessProbe", "/health/live"), ("readinessProbe", "/health/ready")):
        assert made[probe]["httpGet"] == {"path": path, "port": "metrics"}
    assert ports == {"metrics": 9_500}
    assert made["args"][-1] == "0.0.0.0:9500"
    annotations = deployments(app, metrics_port=9_500)["clickstream-notify"]["template"]["metadata"]["annotations"]
    assert annotations["prometheus.io/port"] == "9500"


def test_secrets_are_named_and_nothing_of_them_is_in_arguments(app: App) -> None:
    made = container(app)
    assert made["envFrom"] == [{"secretRef": {"name": "shop-secrets"}}]
    assert "env" not in made
    assert not any("env:" in argument for argument in made["args"])


def test_sizes(app: App) -> None:
    resources = container(app, cpu="2", memory="1Gi")["resources"]
    assert resources == {"requests": {"cpu": "2", "memory": "1Gi"}, "limits": {"memory": "1Gi"}}


def test_pods_may_do_nothing_in_kubernetes(app: App) -> None:
    (account,) = (one for one in app.render(CONSUMERS) if one["kind"] == "ServiceAccount")
    assert account["automountServiceAccountToken"] is False
    assert pod(app)["serviceAccountName"] == account["metadata"]["name"]
    assert container(app)["securityContext"]["allowPrivilegeEscalation"] is False


def test_the_service_of_a_driver_takes_no_pod_of_a_consumer(app: App) -> None:
    services = [one["spec"]["selector"] for one in app.render(SPARK) if one["kind"] == "Service"]
    labels = [spec["template"]["metadata"]["labels"] for spec in deployments(app).values()]
    assert services
    assert not any(selector.items() <= of.items() for selector in services for of in labels)
    selectors = [spec["selector"]["matchLabels"] for spec in deployments(app).values()]
    own = [[n == m for n in range(3)] for m in range(3)]
    assert [[s.items() <= of.items() for s in selectors] for of in labels] == own


def test_the_ca_is_where_the_profile_says(tmp_path: Path) -> None:
    app = with_consumers(tmp_path)
    spec = pod(app, ca_secret="shop-cluster-ca-cert")
    directory = str(Path(str(app.profile.kafka and app.profile.kafka.ca)).parent)
    assert {"name": "ca", "secret": {"secretName": "shop-cluster-ca-cert"}} in spec["volumes"]
    assert {"name": "ca", "mountPath": directory, "readOnly": True} in spec["containers"][0]["volumeMounts"]


def test_a_profile_without_engines_of_its_own(tmp_path: Path) -> None:
    app = with_consumers(tmp_path, '\n[profile.prod]\nnamespace = "prod"\n')
    with pytest.raises(ProjectError, match="does not say kafka, registry and online") as refused:
        app.render(CONSUMERS)
    assert refused.value.code == "profile-not-for-kubernetes"


def test_a_consumer_needs_nothing_of_spark(tmp_path: Path) -> None:
    lines = [line for line in PROFILE.splitlines() if not line.startswith(("spark", "checkpoints", "lake"))]
    assert len(deployments(with_consumers(tmp_path, "\n".join(lines)))) == 3


def test_a_project_without_consumers(tmp_path: Path) -> None:
    with pytest.raises(LeftfoldError, match="declares no consumer"):
        for_kubernetes(EXAMPLES / "fix_and_replay", tmp_path).render(CONSUMERS)
