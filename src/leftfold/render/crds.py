"""Checks manifests against the schemas that Kubernetes itself would use.

Depending on the request, Kubernetes silently drops an unknown field or refuses the whole document. Here an unknown
field is always an error. Rules that a schema writes in CEL (x-kubernetes-validations) are not evaluated.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from leftfold.errors import ProjectError
from leftfold.render.documents import Manifest

# Written by `python -m tests.crds write`, with the generator that Strimzi itself uses for its CRDs.
SCHEMAS = Path(__file__).with_name("schemas")

_NAME = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
_TEXTS = {"type": "object", "additionalProperties": {"type": "string"}}
_METADATA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "pattern": _NAME, "maxLength": 253},
        "namespace": {"type": "string", "pattern": r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", "maxLength": 63},
        "labels": _TEXTS,
        "annotations": _TEXTS,
    },
    "required": ["name"],
}


def check(manifests: Iterable[Manifest]) -> None:
    for manifest in manifests:
        if errors := wrong(manifest):
            raise ProjectError(
                "manifest-invalid",
                f"{manifest.get('kind')} {_name(manifest)} is not what Kubernetes takes: {errors[0]}",
                why="; ".join(errors[1:4]) or "the schema of its kind says so",
                fix="correct the option that this comes from; if there is none, it is a fault of Leftfold: report it",
            )


def wrong(manifest: Manifest) -> list[str]:
    """All errors that the schema of its kind finds in the manifest, each with its place in the document."""
    kind = (str(manifest.get("apiVersion")), str(manifest.get("kind")))
    if kind not in _kinds():
        return [f"there is no kind {kind[1]} in {kind[0]}"]
    errors = sorted(_validator(*kind).iter_errors(manifest), key=lambda e: [str(part) for part in e.absolute_path])
    return [f"{'.'.join(str(part) for part in error.absolute_path) or 'document'}: {error.message}" for error in errors]


def _name(manifest: Manifest) -> str:
    metadata = manifest.get("metadata")
    return str(metadata.get("name", "?")) if isinstance(metadata, dict) else "?"


@cache
def _kinds() -> dict[tuple[str, str], dict[str, Any]]:
    files = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(SCHEMAS.glob("*.json"))]
    return {(one["apiVersion"], one["kind"]): one["schema"] for one in files}


@cache
def _validator(api_version: str, kind: str) -> Any:
    from jsonschema import Draft4Validator

    schema = strict(_kinds()[api_version, kind])
    schema["properties"]["metadata"] = strict(_METADATA)
    schema["required"] = [*schema.get("required", []), "apiVersion", "kind", "metadata"]
    if kind == "KafkaTopic":
        # Strimzi takes a missing value from elsewhere, for example the topic's name from the name of the resource.
        schema["properties"]["spec"]["required"] = ["topicName", "partitions", "replicas"]
    return Draft4Validator(schema)


def strict(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema as standard JSON Schema. It refuses unknown fields, except where Kubernetes keeps them.

    Extensions of Kubernetes (x-kubernetes-...) are translated or dropped.
    """
    standard = {key: _strict_part(key, value) for key, value in schema.items() if not key.startswith("x-kubernetes-")}
    if schema.get("x-kubernetes-int-or-string"):
        standard.pop("type", None)
        standard["anyOf"] = [{"type": "integer"}, {"type": "string"}]
    open_ended = schema.get("x-kubernetes-preserve-unknown-fields") or "additionalProperties" in schema
    if schema.get("type") == "object" and not open_ended:
        standard["additionalProperties"] = False
    return standard


def _strict_part(key: str, value: Any) -> Any:
    if key == "properties":
        return {name: strict(one) for name, one in value.items()}
    if key in ("items", "additionalProperties") and isinstance(value, dict):
        return strict(value)
    if key in ("anyOf", "oneOf", "allOf"):
        return [{k: _strict_part(k, v) for k, v in one.items()} for one in value]
    return value
