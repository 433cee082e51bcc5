"""What the registry is asked, and how its answers are put together. The real one is asked in tests/engine."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest
from confluent_kafka.schema_registry.error import SchemaRegistryError

from leftfold.errors import LeftfoldError
from leftfold.kafka.registry import SchemaRegistry
from leftfold.settings import Registry

SCHEMA = '{"type": "record", "name": "Click", "fields": []}'
GONE = SchemaRegistryError(404, 40402, "there is no such version")


def asking(versions: Any, answers: dict[Any, Any]) -> tuple[SchemaRegistry, list[Any]]:
    """A registry whose client knows these versions, and which of them it was asked about."""
    asked: list[Any] = []

    def test(_subject: str, _schema: Any, version: Any) -> bool:
        asked.append(version)
        if isinstance(answers[version], Exception):
            raise answers[version]
        return bool(answers[version])

    registry = SchemaRegistry(Registry(url="http://127.0.0.1:1"))
    client = mock.Mock(test_compatibility=test)
    client.get_versions.side_effect = [versions]
    registry._client = client
    return registry, asked


def test_a_rule_that_is_not_transitive_is_about_the_latest() -> None:
    registry, asked = asking([1, 2], {"latest": True})
    assert registry.accepts("clicks-value", SCHEMA, transitive=False)
    assert asked == ["latest"]


def test_a_transitive_rule_is_about_every_version() -> None:
    registry, asked = asking([1, 4, 7], {1: True, 4: True, 7: True})
    assert registry.accepts("clicks-value", SCHEMA, transitive=True)
    assert asked == [1, 4, 7]


def test_the_first_version_counts_as_the_latest() -> None:
    registry, _ = asking([1, 2], {1: False, 2: True})
    assert not registry.accepts("clicks-value", SCHEMA, transitive=True)


def test_a_subject_that_is_not_there_takes_anything() -> None:
    assert asking(GONE, {})[0].accepts("clicks-value", SCHEMA, transitive=True)
    assert asking([], {})[0].accepts("clicks-value", SCHEMA, transitive=True)
    assert asking([], {"latest": GONE})[0].accepts("clicks-value", SCHEMA, transitive=False)


def test_a_version_that_was_deleted_meanwhile_is_nobodys() -> None:
    registry, _ = asking([1, 2], {1: GONE, 2: False})
    assert not registry.accepts("clicks-value", SCHEMA, transitive=True)


def test_a_registry_that_refuses_to_answer_has_not_accepted() -> None:
    registry, _ = asking([1], {1: SchemaRegistryError(422, 42201, "cannot be processed")})
    with pytest.raises(LeftfoldError) as caught:
        registry.accepts("clicks-value", SCHEMA, transitive=True)
    assert caught.value.code == "registry-refused"
