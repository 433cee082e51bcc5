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


# Many ids at once ---------------------------------------------------------------------------------------------------


def giving_out(subjects: dict[str, dict[int, int]]) -> tuple[SchemaRegistry, list[int]]:
    """A registry that has these ids by subject and version, and for which ids it was asked one by one."""
    asked: list[int] = []
    known = {schema_id for versions in subjects.values() for schema_id in versions.values()}

    def get_schema(schema_id: int) -> Any:
        asked.append(schema_id)
        if schema_id not in known:
            raise GONE
        return mock.Mock(schema_str=SCHEMA)

    def get_version(subject: str, number: int, **_: Any) -> Any:
        return mock.Mock(schema_id=subjects[subject][number])

    registry = SchemaRegistry(Registry(url="http://127.0.0.1:1"))
    registry._client = mock.Mock(
        get_schema=get_schema,
        get_version=get_version,
        get_subjects=lambda **_: list(subjects),
        get_versions=lambda subject, **_: list(subjects[subject]),
    )
    return registry, asked


def test_few_ids_are_asked_for_one_by_one() -> None:
    registry, asked = giving_out({"a": {1: 3}})
    assert registry.schemas({3, 70, 80}) == {3: SCHEMA}
    assert sorted(asked) == [3, 70, 80]


def test_of_many_ids_only_those_that_were_given_out_are_asked_for() -> None:
    registry, asked = giving_out({"a": {1: 3, 2: 9}, "b": {1: 5}})
    assert registry.schemas({5, 9, *range(1_000_000, 1_010_000)}) == {5: SCHEMA, 9: SCHEMA}
    assert sorted(asked) == [5, 9]
    assert registry.given_out() == {3, 5, 9}
    assert registry.given_out_if_few() == frozenset({3, 5, 9})


def test_a_registry_of_more_schemas_than_ids_is_asked_for_the_ids() -> None:
    registry, asked = giving_out({f"s{n}": {1: n} for n in range(1_000)})
    wanted = {7, *range(1_000_000, 1_000_300)}
    assert registry.schemas(wanted) == {7: SCHEMA}
    assert len(asked) == len(wanted)
    assert registry.given_out_if_few() is None
