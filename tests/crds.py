"""Makes the schemas that manifests are checked with: `python -m tests.crds write` writes them anew.

Strimzi's come from its own generator, run on its own jars (fetched by Maven; it needs Java 21). Those of Kubernetes are
its published OpenAPI definitions, as the Python package kubernetes-validate carries them (fetched by pip, not
installed). Of both the descriptions are left out, and what nobody writes by hand: `status`, and the history in
`metadata`.

crds.lock.json says what they were made from and what came of it, by sha256, so that a test without Java 21 or a network
knows them. `python -m tests.crds check` makes them once more, and fails if anything differs or is not at hand.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from leftfold.render.crds import SCHEMAS

LOCK = Path(__file__).with_name("crds.lock.json")
STRIMZI = "1.2.0"
KUBERNETES = "1.30.0"  # the oldest that is worth supporting; what it takes, later ones take
KUBERNETES_VALIDATE = "1.37.0"
_JARS = ("crd-generator", "api", "crd-annotations")
_CLASSES = ("kafka.Kafka", "nodepool.KafkaNodePool", "topic.KafkaTopic", "user.KafkaUser")
_KINDS = (
    "configmap-v1",
    "deployment-apps-v1",
    "persistentvolumeclaim-v1",
    "role-rbac-v1",
    "rolebinding-rbac-v1",
    "service-v1",
    "serviceaccount-v1",
    "statefulset-apps-v1",
)
_KEPT_MARKS = ("x-kubernetes-int-or-string", "x-kubernetes-preserve-unknown-fields", "x-kubernetes-validations")

Schema = dict[str, Any]


class NotAtHandError(Exception):
    """What the schemas are made from cannot be had on this machine."""


@dataclass(frozen=True)
class Made:
    schemas: dict[str, str]  # texts, by the names of their files
    origins: dict[str, str]  # sha256 of what they were made from

    def lock(self) -> dict[str, dict[str, str]]:
        return {
            "origins": self.origins,
            "schemas": {name: sha256(text.encode()) for name, text in self.schemas.items()},
        }


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def make() -> Made:
    with tempfile.TemporaryDirectory(prefix="leftfold-crds-") as directory:
        parts = [_strimzi(Path(directory)), _kubernetes(Path(directory))]
    schemas = {name: text for part in parts for name, text in part.schemas.items()}
    origins = {name: digest for part in parts for name, digest in part.origins.items()}
    return Made(dict(sorted(schemas.items())), origins)


def _strimzi(home: Path) -> Made:
    classpath = _classpath(home)
    _generate(home, classpath)
    schemas = {}
    for name in _CLASSES:
        crd = json.loads((home / f"{name}.json").read_text())["spec"]
        (version,) = crd["versions"]
        schema = version["schema"]["openAPIV3Schema"]
        made = {
            "apiVersion": f"{crd['group']}/{version['name']}",
            "kind": crd["names"]["kind"],
            "origin": f"io.strimzi:api:{STRIMZI}",
            "schema": bare(schema, {}),
        }
        schemas[f"{made['kind'].lower()}.json"] = _text(made)
    jars = {Path(jar).name: Path(jar) for jar in classpath.split(os.pathsep)}
    origins = {f"io.strimzi:{jar}:{STRIMZI}": sha256(jars[f"{jar}-{STRIMZI}.jar"].read_bytes()) for jar in _JARS}
    return Made(schemas, origins)


def _classpath(home: Path) -> str:
    needed = "".join(
        f"<dependency><groupId>io.strimzi</groupId><artifactId>{name}</artifactId><version>{STRIMZI}</version>"
        "</dependency>"
        for name in _JARS
    )
    (home / "pom.xml").write_text(
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion><groupId>leftfold</groupId>'
        f"<artifactId>crds</artifactId><version>1</version><dependencies>{needed}</dependencies></project>"
    )
    goal = ["dependency:build-classpath", f"-Dmdep.outputFile={home / 'classpath'}"]
    _fetch([shutil.which("mvn") or "mvn", "-B", "-q", *goal], home, f"the jars of Strimzi {STRIMZI}")
    return (home / "classpath").read_text().strip()


def _fetch(command: list[str], home: Path, what: str) -> None:
    try:
        done = subprocess.run(command, cwd=home, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise NotAtHandError(f"there is no {command[0]} to fetch {what} with") from error
    if done.returncode:
        raise NotAtHandError(f"{what} cannot be fetched: {(done.stdout + done.stderr).strip()[-500:]}")


def _generate(home: Path, classpath: str) -> None:
    wanted = [f"io.strimzi.api.kafka.model.{name}={home / name}.json" for name in _CLASSES]
    generator = ["io.strimzi.crdgenerator.CrdGenerator", "--target-kube", "1.30+", "--crd-api-version", "v1", *wanted]
    subprocess.run([_java(), "-cp", classpath, *generator], cwd=home, capture_output=True, check=True)


def _java() -> str:
    """One that is new enough: the jars are of Java 21."""
    installed = sorted(Path("/usr/lib/jvm").glob("*/bin/java")) if Path("/usr/lib/jvm").is_dir() else []
    homes = [Path(home, "bin", "java") for home in [os.environ.get("JAVA_HOME")] if home]
    for java in [*homes, Path(shutil.which("java") or "java"), *installed]:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
        version = re.search(r'version "(\d+)', said)
        if version and int(version[1]) >= 21:
            return str(java)
    raise NotAtHandError("there is no Java 21 or later")


def _kubernetes(home: Path) -> Made:
    package = f"kubernetes-validate=={KUBERNETES_VALIDATE}"
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:", "--dest", "."]
    _fetch([*pip, package], home, package)
    (wheel,) = home.glob("*.whl")
    schemas = {}
    with zipfile.ZipFile(wheel) as files:
        inside = f"kubernetes_validate/kubernetes-json-schema/v{KUBERNETES}-local"
        definitions = json.loads(files.read(f"{inside}/_definitions.json"))["$defs"]
        for name in _KINDS:
            schema = json.loads(files.read(f"{inside}/{name}.json"))
            (kind,) = schema["x-kubernetes-group-version-kind"]
            made = {
                "apiVersion": f"{kind['group']}/{kind['version']}".removeprefix("/"),
                "kind": kind["kind"],
                "origin": f"Kubernetes {KUBERNETES}",
                "schema": bare(schema, definitions),
            }
            schemas[f"{kind['kind'].lower()}.json"] = _text(made)
    return Made(schemas, {package: sha256(wheel.read_bytes())})


def bare(schema: Schema, definitions: dict[str, Schema]) -> Schema:
    """A whole document's schema: without `status`, and with `metadata` left to the check's own words."""
    made = _inlined(schema, definitions)
    made["properties"] = {k: v for k, v in made["properties"].items() if k not in ("status", "metadata")}
    return made


def _inlined(schema: Schema, definitions: dict[str, Schema]) -> Schema:
    if "$ref" in schema:
        return _inlined(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    made: Schema = {}
    for key, value in schema.items():
        if key in ("description", "example", "$schema", "$id") or (key.startswith("x-") and key not in _KEPT_MARKS):
            continue
        if key == "type" and isinstance(value, list):
            made[key] = value[0]  # or null, which nobody has to write
        elif key == "properties":
            made[key] = {name: _property(name, one, definitions) for name, one in value.items()}
        elif key in ("items", "additionalProperties") and isinstance(value, dict):
            made[key] = _inlined(value, definitions)
        elif key in ("anyOf", "oneOf", "allOf"):
            made[key] = [_inlined(one, definitions) for one in value]
        else:
            made[key] = value
    return made


def _property(name: str, schema: Schema, definitions: dict[str, Schema]) -> Schema:
    return {} if name == "managedFields" else _inlined(schema, definitions)


def _text(made: dict[str, Any]) -> str:
    return json.dumps(made, indent=0, separators=(",", ":")) + "\n"


def write(made: Made) -> None:
    SCHEMAS.mkdir(exist_ok=True)
    for name, text in made.schemas.items():
        (SCHEMAS / name).write_text(text)
        sys.stderr.write(f"{name}: {len(text):,} bytes\n")
    LOCK.write_text(json.dumps(made.lock(), indent=1) + "\n")


def differing(made: Made) -> list[str]:
    """Schemas that are not what is made now, and origins that are not what the lock says."""
    there = {path.name: path.read_text() for path in SCHEMAS.iterdir()}
    locked = json.loads(LOCK.read_text())["origins"]
    pairs = [(there, made.schemas), (locked, made.origins)]
    return [name for then, now in pairs for name in sorted({*then, *now}) if then.get(name) != now.get(name)]


def main(asked: list[str]) -> int:
    if asked not in (["write"], ["check"]):
        sys.exit("python -m tests.crds write|check")
    made = make()
    if asked == ["write"]:
        write(made)
        return 0
    wrong = differing(made)
    sys.stderr.write(f"not as they are made: {', '.join(wrong)}\n" if wrong else "all as they are made\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
