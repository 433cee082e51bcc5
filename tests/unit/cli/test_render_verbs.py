"""render, as a person or a program calls it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from leftfold.cli.main import cli
from tests.unit.conftest import TOML, MakeProject
from tests.unit.render.projects import PROFILE


@pytest.fixture
def project(make_project: MakeProject, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = make_project(TOML + PROFILE)
    monkeypatch.chdir(root)
    return root


def render(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["render", *arguments])


def test_yaml_and_nothing_else_on_stdout(project: Path) -> None:
    done = render("strimzi")
    assert done.exit_code == 0
    made = list(yaml.safe_load_all(done.stdout))
    assert [one["kind"] for one in made[:3]] == ["Kafka", "KafkaNodePool", "KafkaUser"]
    assert {one["metadata"]["namespace"] for one in made} == {"shop"}  # the project's name
    assert '"checked"' in done.stderr  # two owners of one topic would undo each other's changes


def test_a_profile_whose_topics_are_somebody_elses_is_told_nothing(project: Path) -> None:
    done = render("strimzi", "--profile", "prod", "--topics-only", "--cluster", "main", "--kube-namespace", "kafka")
    assert (done.exit_code, done.stderr) == (0, "")
    made = list(yaml.safe_load_all(done.stdout))
    assert made[0]["metadata"] == {
        "name": "prod.clicks",
        "namespace": "kafka",
        "labels": {"strimzi.io/cluster": "main"},
    }


def test_json(project: Path) -> None:
    done = render("strimzi", "--json", "--storage", "1Ti", "--kafka-version", "4.3.1")
    assert (done.exit_code, done.stderr) == (0, "")
    read = json.loads(done.stdout)
    assert (read["version"], read["verb"], read["files"]) == (1, "render strimzi", [])
    assert read["manifests"][0]["spec"]["kafka"]["version"] == "4.3.1"
    assert read["manifests"][1]["spec"]["storage"]["volumes"][0]["size"] == "1Ti"


def test_files(project: Path) -> None:
    done = render("strimzi", "--out", "k8s", "--profile", "prod")
    assert (done.exit_code, done.stdout) == (0, "")
    assert "next: kubectl apply -f k8s" in done.stderr
    assert (project / "k8s" / "kafkatopic-prod.clicks.yaml").is_file()
    assert render("spark", "--image", "i", "--out", "k8s", "--profile", "prod").exit_code == 0
    again = render("strimzi", "--out", "k8s", "--profile", "prod", "--memory", "4Gi")
    assert again.exit_code == 1
    assert "kafkanodepool-nodes.yaml" in str(again.exception)
    forced = render("strimzi", "--out", "k8s", "--profile", "prod", "--memory", "4Gi", "--force", "--json")
    assert "k8s/kafkanodepool-nodes.yaml" in json.loads(forced.stdout)["files"]


def test_consumers(project: Path) -> None:
    streams = project / "streams.py"
    streams.write_text(streams.read_text() + '\n\n@lf.consumer(clicks, start="now")\ndef notify(click) -> None: ...\n')
    done = render("consumers", "--profile", "prod", "--image", "shop:1", "--replicas", "notify=3", "--cpu", "2")
    assert done.exit_code == 0, done.output
    made = {one["kind"]: one for one in yaml.safe_load_all(done.stdout)}
    assert list(made) == ["ServiceAccount", "Deployment"]
    assert made["Deployment"]["spec"]["replicas"] == 3
    (container,) = made["Deployment"]["spec"]["template"]["spec"]["containers"]
    assert container["resources"]["requests"]["cpu"] == "2"
    for wrong in ("notify", "notify=0", "notify=many"):
        assert render("consumers", "--profile", "prod", "--image", "i", "--replicas", wrong).exit_code == 2


def test_spark_without_the_secrets_at_hand(project: Path) -> None:
    """Whoever renders, in CI, need not know the passwords."""
    done = render("spark", "--profile", "prod", "--image", "shop:1", "--group", "all=user_activity")
    assert done.exit_code == 0, done.output
    made = {one["kind"]: one for one in yaml.safe_load_all(done.stdout)}
    assert made["StatefulSet"]["metadata"]["name"] == "shop-all"
    (container,) = made["StatefulSet"]["spec"]["template"]["spec"]["containers"]
    assert container["envFrom"] == [{"secretRef": {"name": "shop-secrets"}}]


@pytest.mark.parametrize(
    "arguments",
    [
        ["spark"],
        ["spark", "--image", ""],
        ["spark", "--image", "i", "--group", "all"],
        ["spark", "--image", "i", "--group", "a_b=user_activity"],
        ["spark", "--image", "i", "--executor-memory", "4Gi"],
        ["spark", "--image", "i", "--executors", "0"],
        ["spark", "--image", "i", "--directory", "project"],
        ["strimzi", "--force"],
        ["strimzi", "--storage", "100"],
        ["strimzi", "--storage", "0Gi"],
        ["strimzi", "--cpu", "many"],
        ["strimzi", "--kube-namespace", "Shop_1"],
        ["strimzi", "--kafka-version", "latest"],
    ],
)
def test_wrong_usage(project: Path, arguments: list[str]) -> None:
    done = render(*arguments)
    assert done.exit_code == 2
    assert done.stdout == ""
