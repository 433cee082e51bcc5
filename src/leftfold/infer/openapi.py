"""The OpenAPI document of a server, rendered from declarations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from leftfold.declare.scorer import Scorer
from leftfold.declare.vector import Vector

_TYPES = {
    "string": {"type": "string"},
    "int": {"type": "integer", "format": "int64"},
    "float": {"type": "number", "format": "double"},
    "bool": {"type": "boolean"},
    "datetime": {"type": "string", "format": "date-time"},
    "bytes": {"type": "string", "format": "byte"},
    None: {"type": "string"},  # a key of a free view, whose kind is known when it runs
}
_PROVENANCE = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {
            "view": _TYPES["string"],
            "build": _TYPES["string"],
            "batch": _TYPES["int"],
            "found": _TYPES["bool"],
        },
    },
}
_PROBLEM = {"type": "object", "properties": {"error": _TYPES["string"], "what": _TYPES["string"]}}


def openapi(title: str, scorers: Mapping[str, Scorer[Any, Any]], vectors: Mapping[str, type[Vector]]) -> dict[str, Any]:
    paths: dict[str, Any] = {}
    for name, scorer in scorers.items():
        paths[f"/score/{name}"] = {"post": _score(name, scorer)}
    for name, vector in vectors.items():
        paths[f"/features/{name}"] = {"get": _features(name, vector), "post": _many_features(name, vector)}
    return {"openapi": "3.1.0", "info": {"title": title, "version": "1"}, "paths": paths}


def _given(vector: type[Vector]) -> dict[str, Any]:
    kinds = {**vector.__leftfold_keys__, **{i.name: i.kind for i in vector.__leftfold_definition__.inputs}}
    return {name: _TYPES[kind] for name, kind in kinds.items()}


def _object(properties: Mapping[str, Any], *, required: bool = True) -> dict[str, Any]:
    described: dict[str, Any] = {"type": "object", "properties": dict(properties)}
    return {**described, "required": list(properties)} if required else described


def _answers(schema: Mapping[str, Any], *codes: int) -> dict[str, Any]:
    problems = {str(code): _content("a problem", _PROBLEM) for code in codes}
    return {"200": _content("the answer", schema), **problems}


def _content(description: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": schema}}}


def _score(name: str, scorer: Scorer[Any, Any]) -> dict[str, Any]:
    fields = scorer.prediction.__leftfold_fields__
    answers = {field: _TYPES[fields[field].kind] for field in scorer.prediction.__leftfold_answers__}
    texts = ("prediction_id", "model", "version", "role", "outcome")
    answer = {
        **answers,
        **dict.fromkeys(texts, _TYPES["string"]),
        "reason": {"type": ["string", "null"]},
        "scored_at": _TYPES["datetime"],
        "took_us": _TYPES["int"],
        "provenance": _PROVENANCE,
    }
    return {
        "operationId": f"score_{name}",
        "summary": (scorer.prediction.__doc__ or f"Score by {name}").strip().splitlines()[0],
        "requestBody": {"required": True, **_content("keys and requests", _object(_given(scorer.vector)))},
        "responses": _answers(_object(answer), 400, 413, 422, 500, 503),
    }


def _row(vector: type[Vector]) -> dict[str, Any]:
    values = {
        name: {"type": "array", "items": _TYPES[kind.kind]}
        if kind.repeated
        else {"oneOf": [_TYPES[kind.kind], {"type": "null"}]}
        for name, kind in vector.__leftfold_kinds__.items()
    }
    held = {"values": _object(values), "read_at": _TYPES["datetime"], "found": _TYPES["bool"]}
    return _object({**held, "provenance": _PROVENANCE})


def _features(name: str, vector: type[Vector]) -> dict[str, Any]:
    return {
        "operationId": f"features_{name}",
        "summary": f"Read one row of {name}",
        "parameters": [
            {"name": given, "in": "query", "required": True, "schema": schema}
            for given, schema in _given(vector).items()
        ],
        "responses": _answers(_row(vector), 400, 503),
    }


def _many_features(name: str, vector: type[Vector]) -> dict[str, Any]:
    many = {"type": "array", "items": _object(_given(vector))}
    return {
        "operationId": f"features_{name}_many",
        "summary": f"Read many rows of {name}",
        "requestBody": {"required": True, **_content("keys and requests of each row", many)},
        "responses": _answers({"type": "array", "items": _row(vector)}, 400, 413, 503),
    }
