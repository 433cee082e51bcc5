"""How to provoke errors of adopting a topic."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import click

from leftfold.adopt import look as look_module
from leftfold.adopt.adopting import adopt
from leftfold.adopt.look import Looked, look
from leftfold.cli.adopt_verb import adopt as verb
from leftfold.kafka.log_reader import Logged
from leftfold.settings import Kafka
from tests import clusters
from tests.golden.causes import HEAD, Cause, project

FRAMED_JSON = b'\x00\x00\x00\x00\x01{"id": 1}'
JSON_SCHEMA = '{"type": "object", "properties": {"id": {"type": "integer"}}}'


def undecided(tmp: Path) -> None:
    text = adopt(_looked(b'{"id": 1, "at": "2026-01-05T12:00:00Z"}')).text
    _ = project(tmp, HEAD + text).catalog


def missing(_tmp: Path) -> None:
    nothing: Any = SimpleNamespace()
    with mock.patch.object(look_module, "observe_cluster", return_value=clusters.seen_cluster()):
        look("orders", Kafka(bootstrap="nowhere:1"), nothing, nothing)


def exists(tmp: Path) -> None:
    (tmp / "orders.py").write_text("mine")
    command: Any = verb
    with click.Context(verb):
        command.callback("orders", tmp / "orders.py", None, False)


def _looked(value: bytes, *schemas: str, name: str = "orders") -> Looked:
    versions = dict(enumerate(schemas, start=1))
    records = (Logged(name, 0, 0, 1_790_000_000_000_000, True, None, value),)
    return Looked(clusters.seen_topic(name), versions, {}, None, records)


def cannot(value: bytes, *schemas: str, name: str = "orders") -> Cause:
    def cause(_tmp: Path) -> None:
        adopt(_looked(value, *schemas, name=name))

    return cause


CAUSES: dict[str, Cause] = {
    "undecided": undecided,
    "topic-missing/adopt": missing,
    "adopt-file-exists": exists,
    "cannot-adopt": cannot(FRAMED_JSON, JSON_SCHEMA),
    "cannot-adopt/bytes": cannot(b"\xff\xfe"),
    "cannot-adopt/fields": cannot(b'{"deep": {"x": 1}}'),
    "cannot-adopt/name": cannot(b'{"id": 1}', name="_schemas"),
    "cannot-adopt/schema": cannot(FRAMED_JSON, '{"type": "enum", "name": "A", "symbols": ["B"]}'),
    "cannot-adopt/unknown": cannot(FRAMED_JSON),
}
