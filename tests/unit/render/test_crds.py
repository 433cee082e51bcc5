"""The check finds what Kubernetes would refuse, or drop without a word."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from leftfold.errors import ProjectError
from leftfold.render.crds import SCHEMAS, check, strict, wrong
from tests import crds
from tests.unit.render.projects import CONSUMERS, SPARK, STRIMZI, with_consumers

Manifests = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def rendered(tmp_path_factory: pytest.TempPathFactory) -> Manifests:
    """One of each kind."""
    app = with_consumers(tmp_path_factory.mktemp("project"))
    return {one["kind"]: one for options in (STRIMZI, SPARK, CONSUMERS) for one in app.render(options)}


def at(manifest: dict[str, Any], path: str) -> Any:
    for part in path.split("."):
        manifest = manifest[int(part) if part.isdigit() else part]  # type: ignore[index]
    return manifest


def renamed(name: str, other: str) -> Callable[[Any], None]:
    def change(mapping: Any) -> None:
        mapping[other] = mapping.pop(name)

    return change


def given(name: str, value: Any) -> Callable[[Any], None]:
    return lambda mapping: mapping.update({name: value})


def without(name: str) -> Callable[[Any], None]:
    return lambda mapping: mapping.pop(name)


BROKEN: list[tuple[str, str, Callable[[Any], None], str]] = [
    # misspelt
    ("KafkaTopic", "spec", renamed("partitions", "partition"), "partition"),
    ("KafkaTopic", "spec", given("colour", "red"), "colour"),
    ("Kafka", "spec.kafka", renamed("listeners", "listners"), "listners"),
    ("Kafka", "spec.kafka.rack", renamed("topologyKey", "topologykey"), "topologykey"),
    ("KafkaNodePool", "spec.storage.volumes.0", renamed("deleteClaim", "deleteclaim"), "deleteclaim"),
    ("KafkaNodePool", "spec.template.pod.topologySpreadConstraints.0", renamed("maxSkew", "maxskew"), "maxskew"),
    ("StatefulSet", "spec.template.spec", renamed("serviceAccountName", "serviceAccountname"), "serviceAccountname"),
    ("StatefulSet", "spec.template.spec.containers.0", renamed("envFrom", "envfrom"), "envfrom"),
    ("Service", "spec", renamed("publishNotReadyAddresses", "publishNotReady"), "publishNotReady"),
    ("ServiceAccount", "metadata", renamed("labels", "label"), "label"),
    ("Deployment", "spec.strategy.rollingUpdate", renamed("maxSurge", "maxsurge"), "maxsurge"),
    ("Deployment", "spec.template.spec.containers.0.livenessProbe", renamed("httpGet", "httpget"), "httpget"),
    ("KafkaUser", "spec.authorization.acls.0", renamed("operations", "operation"), "operation"),
    # of the wrong type
    (
        "Deployment",
        "spec.template.spec",
        given("terminationGracePeriodSeconds", "90s"),
        "terminationGracePeriodSeconds",
    ),
    ("KafkaTopic", "spec", given("partitions", "6"), "spec.partitions"),
    ("KafkaTopic", "spec", given("replicas", True), "spec.replicas"),
    ("Kafka", "spec.kafka.listeners.0", given("tls", "yes"), "spec.kafka.listeners.0.tls"),
    ("KafkaNodePool", "spec", given("roles", "broker"), "spec.roles"),
    ("StatefulSet", "spec", given("replicas", 1.5), "spec.replicas"),
    ("StatefulSet", "spec.template.metadata.annotations", given("prometheus.io/port", 9464), "prometheus.io/port"),
    ("ConfigMap", "data", given("workers", 3), "data.workers"),
    ("RoleBinding", "roleRef", given("name", None), "roleRef.name"),
    # not one of those that there are
    ("Kafka", "spec.kafka.listeners.0", given("type", "external"), "spec.kafka.listeners.0.type"),
    ("KafkaNodePool", "spec", given("roles", ["brokr"]), "spec.roles.0"),
    ("KafkaUser", "spec.authentication", given("type", "scram"), "spec.authentication.type"),
    (
        "KafkaUser",
        "spec.authorization.acls.0.resource",
        given("type", "topics"),
        "spec.authorization.acls.0.resource.type",
    ),
    # too small
    ("KafkaTopic", "spec", given("partitions", 0), "spec.partitions"),
    # missing
    ("KafkaTopic", "spec", without("topicName"), "topicName"),
    ("KafkaNodePool", "spec", without("storage"), "storage"),
    ("StatefulSet", "spec", without("selector"), "selector"),
    ("Role", "rules.0", without("verbs"), "verbs"),
    ("KafkaTopic", "metadata", without("name"), "name"),
    # names and kinds
    ("KafkaTopic", "metadata", given("name", "user_activity"), "metadata.name"),
    ("KafkaTopic", "metadata", given("labels", {"strimzi.io/cluster": 1}), "metadata.labels"),
]


def _ids() -> Iterator[str]:
    for kind, path, _, told in BROKEN:
        yield f"{kind}-{path}-{told}"


@pytest.mark.parametrize(("kind", "path", "change", "told"), BROKEN, ids=list(_ids()))
def test_a_broken_one_is_caught(
    rendered: Manifests, kind: str, path: str, change: Callable[[Any], None], told: str
) -> None:
    manifest = copy.deepcopy(rendered[kind])
    assert wrong(manifest) == []
    change(at(manifest, path))
    assert any(told in one for one in wrong(manifest)), wrong(manifest)
    with pytest.raises(ProjectError) as caught:
        check([manifest])
    assert caught.value.code == "manifest-invalid"


@pytest.mark.parametrize("change", [given("kind", "KafkaTopik"), given("apiVersion", "kafka.strimzi.io/v1beta2")])
def test_a_kind_that_there_is_not(rendered: Manifests, change: Callable[[Any], None]) -> None:
    manifest = copy.deepcopy(rendered["KafkaTopic"])
    change(manifest)
    assert wrong(manifest) == [f"there is no kind {manifest['kind']} in {manifest['apiVersion']}"]


def test_everything_wrong_is_told(rendered: Manifests) -> None:
    manifest = copy.deepcopy(rendered["KafkaTopic"])
    manifest["spec"] |= {"partitions": "6", "colour": "red"}
    assert len(wrong(manifest)) == 2


def test_fields_that_a_schema_leaves_open_stay_open(rendered: Manifests) -> None:
    manifest = copy.deepcopy(rendered["KafkaTopic"])
    manifest["spec"]["config"]["some.new.setting"] = {"anything": [1]}
    assert wrong(manifest) == []


@pytest.mark.parametrize(
    ("schema", "made"),
    [
        ({"type": "object", "properties": {}}, {"type": "object", "properties": {}, "additionalProperties": False}),
        ({"type": "object", "x-kubernetes-preserve-unknown-fields": True}, {"type": "object"}),
        ({"x-kubernetes-int-or-string": True}, {"anyOf": [{"type": "integer"}, {"type": "string"}]}),
        (
            {"type": "object", "additionalProperties": {"type": "object"}},
            {"type": "object", "additionalProperties": {"type": "object", "additionalProperties": False}},
        ),
        (
            {"type": "array", "items": {"type": "object"}},
            {"type": "array", "items": {"type": "object", "additionalProperties": False}},
        ),
        (
            {"type": "object", "oneOf": [{"properties": {"a": {}}, "required": ["a"]}]},
            {"type": "object", "oneOf": [{"properties": {"a": {}}, "required": ["a"]}], "additionalProperties": False},
        ),
    ],
)
def test_kubernetes_marks(schema: dict[str, Any], made: dict[str, Any]) -> None:
    assert strict(schema) == made


# Where the schemas come from ----------------------------------------------------------------------------------------


LOCKED = json.loads(crds.LOCK.read_text())


def test_the_schemas_are_those_that_were_made() -> None:
    assert {path.name: crds.sha256(path.read_bytes()) for path in SCHEMAS.iterdir()} == LOCKED["schemas"]
    assert len(LOCKED["schemas"]) == 12


def test_they_were_made_from_the_versions_that_are_named() -> None:
    jars = ("crd-generator", "api", "crd-annotations")
    wanted = {f"io.strimzi:{jar}:{crds.STRIMZI}" for jar in jars} | {f"kubernetes-validate=={crds.KUBERNETES_VALIDATE}"}
    assert set(LOCKED["origins"]) == wanted
    said = {json.loads(path.read_text())["origin"] for path in SCHEMAS.iterdir()}
    assert said == {f"io.strimzi:api:{crds.STRIMZI}", f"Kubernetes {crds.KUBERNETES}"}


@pytest.fixture
def made() -> crds.Made:
    """As if they were made anew, and nothing had changed."""
    return crds.Made({path.name: path.read_text() for path in SCHEMAS.iterdir()}, dict(LOCKED["origins"]))


def test_what_differs_is_named(made: crds.Made) -> None:
    assert crds.differing(made) == []
    assert crds.differing(replace(made, schemas={**made.schemas, "role.json": "{}"})) == ["role.json"]
    assert crds.differing(replace(made, schemas={**made.schemas, "pod.json": "{}"})) == ["pod.json"]
    assert crds.differing(replace(made, origins={**made.origins, "io.strimzi:api:1.2.0": "0"})) == [
        "io.strimzi:api:1.2.0"
    ]
    without_one = {name: text for name, text in made.schemas.items() if name != "kafka.json"}
    assert crds.differing(replace(made, schemas=without_one)) == ["kafka.json"]


def test_a_check_that_cannot_be_done_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(crds.NotAtHandError, match="no mvn to fetch the jars of Strimzi"):
        crds.main(["check"])


def test_what_is_left_of_a_schema() -> None:
    port = {"description": "of a service", "type": ["integer", "null"], "format": "int32"}
    schema = {
        "description": "all of it",
        "x-kubernetes-group-version-kind": [],
        "type": "object",
        "properties": {
            "metadata": {"type": "object"},
            "status": {"type": "object"},
            "spec": {"$ref": "_definitions.json#/$defs/Spec"},
            "managedFields": {"type": "array"},
        },
    }
    spec = {
        "type": "object",
        "properties": {"ports": {"items": port}, "either": {"anyOf": [port]}},
        "x-kubernetes-preserve-unknown-fields": True,
    }
    left = {"type": "integer", "format": "int32"}
    assert crds.bare(schema, {"Spec": spec}) == {
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "properties": {"ports": {"items": left}, "either": {"anyOf": [left]}},
                "x-kubernetes-preserve-unknown-fields": True,
            },
            "managedFields": {},
        },
    }
