"""An application is one driver that finds its executors, its secrets and its way to stop."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from leftfold.app import App
from leftfold.errors import LeftfoldError, ProjectError
from leftfold.render.documents import as_yaml
from leftfold.render.spark import SparkOptions
from tests.unit.render.projects import EXAMPLES, PROFILE, SPARK, for_kubernetes

Manifest = dict[str, Any]


@pytest.fixture
def app(tmp_path: Path) -> App:
    return for_kubernetes(EXAMPLES / "clickstream", tmp_path)


def named(app: App, name: str = "clickstream-items", options: SparkOptions = SPARK) -> dict[str, Manifest]:
    return {one["kind"]: one for one in app.render(options) if one["metadata"]["name"] == name}


def conf(made: dict[str, Manifest]) -> dict[str, str]:
    lines = made["ConfigMap"]["data"]["spark-defaults.conf"].splitlines()
    return dict(line.split(" ", 1) for line in lines)


def pod(made: dict[str, Manifest]) -> Manifest:
    spec: Manifest = made["StatefulSet"]["spec"]["template"]["spec"]
    return spec


def container(made: dict[str, Manifest]) -> Manifest:
    (one,) = pod(made)["containers"]
    return dict(one)


def test_each_topic_has_its_application(app: App) -> None:
    sets = {one["metadata"]["name"]: one for one in app.render(SPARK) if one["kind"] == "StatefulSet"}
    assert list(sets) == ["clickstream-clicks", "clickstream-items"]


def test_what_is_run(app: App) -> None:
    made = container(named(app, "clickstream-all", replace(SPARK, groups=(("all", ("user_activity", "item")),))))
    assert [*made["command"], *made["args"]] == [
        *("leftfold", "run", "--profile", "prod", "--views", "user_activity,item", "--metrics", "0.0.0.0:9464")
    ]
    assert (made["workingDir"], made["image"]) == ("/project", "registry.example/shop:1")


def test_never_two_drivers_at_once(app: App) -> None:
    assert named(app)["StatefulSet"]["spec"]["replicas"] == 1


def test_executors_find_their_driver(app: App) -> None:
    made = named(app)
    service, spec = made["Service"], made["StatefulSet"]["spec"]
    name = service["metadata"]["name"]
    assert (spec["serviceName"], service["spec"]["clusterIP"]) == (name, "None")
    assert service["spec"]["publishNotReadyAddresses"] is True
    assert service["spec"]["selector"] == spec["selector"]["matchLabels"]
    assert spec["selector"]["matchLabels"].items() <= spec["template"]["metadata"]["labels"].items()
    settings = conf(made)
    assert settings["spark.driver.host"] == f"{name}-0.{name}.shop.svc"
    assert settings["spark.kubernetes.driver.pod.name"] == f"{name}-0"
    ports = {port["name"]: port["port"] for port in service["spec"]["ports"]}
    assert int(settings["spark.driver.port"]) == ports["driver"]
    assert int(settings["spark.driver.blockManager.port"]) == ports["blocks"]


def test_the_selector_of_one_application_takes_no_other(app: App) -> None:
    selectors = [one["spec"]["selector"] for one in app.render(SPARK) if one["kind"] == "Service"]
    assert len({tuple(one.items()) for one in selectors}) == len(selectors) == 2


def test_settings_reach_spark(app: App) -> None:
    made = named(app)
    variable = {"name": "SPARK_CONF_DIR", "value": "/etc/leftfold/spark"}
    mount = {"name": "conf", "mountPath": "/etc/leftfold/spark", "readOnly": True}
    assert variable in container(made)["env"]
    assert mount in container(made)["volumeMounts"]
    assert {"name": "conf", "configMap": {"name": "clickstream-items"}} in pod(made)["volumes"]


def test_sizes(app: App) -> None:
    options = replace(SPARK, executors=5, executor_cores=4, executor_memory_mi=8_192, driver_memory_mi=4_096)
    made = named(app, options=options)
    settings = conf(made)
    assert [settings[f"spark.executor.{name}"] for name in ("instances", "cores", "memory")] == ["5", "4", "8192m"]
    assert settings["spark.driver.memory"] == "4096m"
    assert container(made)["resources"]["limits"] == {"memory": "5734Mi"}  # the heap and 0.4 of it
    assert container(named(app))["resources"]["limits"] == {"memory": "3072Mi"}  # ... and at least 1 GiB


def test_the_profiles_own_settings_win(tmp_path: Path) -> None:
    own = PROFILE.replace('partitions" = 8', 'partitions" = 8, "spark.executor.instances" = 9')
    settings = conf(named(for_kubernetes(EXAMPLES / "clickstream", tmp_path, own)))
    assert "spark.executor.instances" not in settings
    assert "spark.executor.cores" in settings


def test_a_stop_waits_for_the_batch(app: App) -> None:
    assert pod(named(app))["terminationGracePeriodSeconds"] == 300
    assert pod(named(app, options=replace(SPARK, grace_s=900)))["terminationGracePeriodSeconds"] == 900


def test_prometheus_finds_it(app: App) -> None:
    made = named(app, options=replace(SPARK, metrics_port=9999))
    annotations = made["StatefulSet"]["spec"]["template"]["metadata"]["annotations"]
    assert {k: v for k, v in annotations.items() if k.startswith("prometheus")} == {
        "prometheus.io/scrape": "true",
        "prometheus.io/port": "9999",
        "prometheus.io/path": "/metrics",
    }
    assert container(made)["args"][-1] == "0.0.0.0:9999"


def test_a_changed_setting_is_a_new_pod(app: App) -> None:
    def annotation(options: SparkOptions) -> str:
        template = named(app, options=options)["StatefulSet"]["spec"]["template"]
        return str(template["metadata"]["annotations"]["checksum/config"])

    assert annotation(SPARK) == annotation(SPARK) != annotation(replace(SPARK, executors=3))


def test_only_the_driver_may_make_pods(app: App) -> None:
    made = app.render(SPARK)
    (binding,) = (one for one in made if one["kind"] == "RoleBinding")
    (role,) = (one for one in made if one["kind"] == "Role")
    accounts = {one["metadata"]["name"]: one for one in made if one["kind"] == "ServiceAccount"}
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert [subject["name"] for subject in binding["subjects"]] == [pod(named(app))["serviceAccountName"]]
    executor = conf(named(app))["spark.kubernetes.authenticate.executor.serviceAccountName"]
    assert accounts[executor]["automountServiceAccountToken"] is False
    assert executor not in [subject["name"] for subject in binding["subjects"]]


# Secrets ------------------------------------------------------------------------------------------------------------


def test_secrets_are_named_and_never_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_PASSWORD", "hunter2")
    monkeypatch.setenv("REDIS_URL", "redis://:hunter3@redis")
    app = for_kubernetes(EXAMPLES / "clickstream", tmp_path)
    assert app.profile.online is not None
    assert app.profile.online.url.get_secret_value() == "redis://:hunter3@redis"  # known here, and yet
    assert "hunter" not in as_yaml(app.render(SPARK))
    assert container(named(app))["envFrom"] == [{"secretRef": {"name": "shop-secrets"}}]


def test_the_certificate_is_where_the_profile_says_on_driver_and_executors(app: App) -> None:
    made = named(app, options=replace(SPARK, ca_secret="shop-cluster-ca-cert"))
    assert {"name": "ca", "mountPath": "/etc/kafka", "readOnly": True} in container(made)["volumeMounts"]
    assert {"name": "ca", "secret": {"secretName": "shop-cluster-ca-cert"}} in pod(made)["volumes"]
    assert conf(made)["spark.kubernetes.executor.secrets.shop-cluster-ca-cert"] == "/etc/kafka"
    assert "ca" not in [volume["name"] for volume in pod(named(app))["volumes"]]


# Checkpoints --------------------------------------------------------------------------------------------------------


def test_driver_and_executors_share_a_volume(app: App) -> None:
    made = app.render(replace(SPARK, storage_class="nfs", claim_size="50Gi"))
    (claim,) = (one for one in made if one["kind"] == "PersistentVolumeClaim")
    name = claim["metadata"]["name"]
    assert claim["spec"] == {
        "accessModes": ["ReadWriteMany"],
        "resources": {"requests": {"storage": "50Gi"}},
        "storageClassName": "nfs",
    }
    mine = named(app)
    assert {"name": "shared", "persistentVolumeClaim": {"claimName": name}} in pod(mine)["volumes"]
    assert {"name": "shared", "mountPath": "/shared"} in container(mine)["volumeMounts"]
    volume = "spark.kubernetes.executor.volumes.persistentVolumeClaim.shared"
    settings = conf(mine)
    assert (settings[f"{volume}.options.claimName"], settings[f"{volume}.mount.path"]) == (name, "/shared")


def test_a_volume_that_is_there_already(app: App) -> None:
    options = replace(SPARK, claim="efs")
    assert "PersistentVolumeClaim" not in [one["kind"] for one in app.render(options)]
    assert {"name": "shared", "persistentVolumeClaim": {"claimName": "efs"}} in pod(named(app, options=options))[
        "volumes"
    ]


def test_hdfs_needs_no_volume(tmp_path: Path) -> None:
    own = PROFILE.replace('"/shared/shop', '"hdfs://names/shop')
    app = for_kubernetes(EXAMPLES / "clickstream", tmp_path, own)
    assert "PersistentVolumeClaim" not in [one["kind"] for one in app.render(SPARK)]
    assert "shared" not in as_yaml(app.render(SPARK))


def test_an_object_store_cannot_hold_checkpoints(tmp_path: Path) -> None:
    app = for_kubernetes(EXAMPLES / "clickstream", tmp_path, PROFILE.replace("/shared/shop/c", "s3a://lake/shop/c"))
    with pytest.raises(LeftfoldError) as caught:
        app.render(SPARK)
    assert caught.value.code == "checkpoint-not-fenced"


# Profiles that cannot run there -------------------------------------------------------------------------------------

ENGINES = PROFILE[PROFILE.index("kafka =") : PROFILE.index("checkpoints =")]


@pytest.mark.parametrize(
    ("taken_out", "told"),
    [
        (ENGINES, "kafka, registry and online"),
        ('master = "k8s://https://kubernetes.default.svc", ', "spark.master"),
        ("k8s://https", "spark://https"),
        ('checkpoints = "/shared/shop/checkpoints"\n', "checkpoints"),
        ("/shared/shop/checkpoints", "/lake/shop/checkpoints"),
        ('"spark.sql.shuffle.partitions" = 8', "spark.sql.shuffle.partitions"),
    ],
)
def test_a_profile_that_cannot_run_in_pods(tmp_path: Path, taken_out: str, told: str) -> None:
    other = told if "/" in told else ""
    app = for_kubernetes(EXAMPLES / "clickstream", tmp_path, PROFILE.replace(taken_out, other))
    with pytest.raises(ProjectError) as caught:
        app.render(SPARK)
    assert caught.value.code == "profile-not-for-kubernetes"
    if not other:
        assert told in caught.value.why


def test_all_that_is_missing_is_told_at_once(tmp_path: Path) -> None:
    app = for_kubernetes(EXAMPLES / "clickstream", tmp_path, "[profile.prod]\n")
    with pytest.raises(LeftfoldError) as caught:
        app.render(SPARK)
    assert all(word in caught.value.why for word in ("kafka", "spark.master", "checkpoints", "shuffle.partitions"))
    assert "lake," not in caught.value.why  # no view has one


def test_a_lake_needs_a_place_that_stays(tmp_path: Path) -> None:
    app = for_kubernetes(EXAMPLES / "clickstream", tmp_path, PROFILE.replace("/shared/shop/lake", "/lake"))
    streams = app.root / "streams.py"
    streams.write_text(
        streams.read_text().replace("by=Click.user_id)", "by=Click.user_id, to=[lf.Online(), lf.Lake()])")
    )
    with pytest.raises(LeftfoldError) as caught:
        app.render(SPARK)
    assert 'lake, such as "/shared/lake"' in caught.value.why


def test_a_certificate_that_the_profile_does_not_know(tmp_path: Path) -> None:
    app = for_kubernetes(EXAMPLES / "clickstream", tmp_path, PROFILE.replace(', ca = "/etc/kafka/ca.crt"', ""))
    assert app.render(SPARK)
    with pytest.raises(LeftfoldError) as caught:
        app.render(replace(SPARK, ca_secret="shop-cluster-ca-cert"))
    assert "kafka.ca" in caught.value.why


def test_places_that_only_the_pod_will_know(tmp_path: Path) -> None:
    own = PROFILE.replace('"/shared/shop/checkpoints"', '"env:CHECKPOINTS"')
    app = for_kubernetes(EXAMPLES / "clickstream", tmp_path, own)
    assert yaml.safe_load_all(as_yaml(app.render(SPARK)))
