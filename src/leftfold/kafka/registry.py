"""The schema registry, through its Confluent API: which bytes mean what, and which changes are allowed."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.common._httpx_compat import httpx  # whichever httpx this release brings
from confluent_kafka.schema_registry.error import SchemaRegistryError

from leftfold.errors import LogError
from leftfold.settings import Registry

T = TypeVar("T")
_NOT_FOUND = 404
_CONFLICT = 409


def subject_of(topic: str) -> str:
    """The naming that every registry client uses unless told otherwise."""
    return f"{topic}-value"


class SchemaRegistry:
    def __init__(self, settings: Registry) -> None:
        self._url = re.sub(r"//[^/@]*@", "//", settings.url)  # for messages: without a password
        conf: dict[str, Any] = {"url": settings.url}
        if settings.username:
            password = settings.password.get_secret_value() if settings.password else ""
            conf["basic.auth.user.info"] = f"{settings.username}:{password}"
        self._client = SchemaRegistryClient(conf)

    def versions(self, subject: str) -> dict[int, str]:
        """Every schema ever registered for a subject, by id: what a reader of the whole log must understand."""
        schemas: dict[int, str] = {}
        for number in self._numbers(subject):
            version: Any = self._call(partial(self._client.get_version, subject, number), missing=None)
            schemas[int(version.schema_id)] = str(version.schema.schema_str)
        return schemas

    def schema(self, schema_id: int) -> str | None:
        """A schema by its id, whatever subject it belongs to; None if the registry never gave out that id."""
        found = self._call(lambda: self._client.get_schema(schema_id), missing=None)
        return None if found is None else found.schema_str

    def id_of(self, subject: str, schema: str) -> int | None:
        found = self._call(lambda: self._client.lookup_schema(subject, _avro(schema)), missing=None)
        return None if found is None else found.schema_id

    def compatibility(self, subject: str | None) -> str | None:
        """A subject's own rule, None if it has none; of no subject the rule for those."""
        found = self._call(lambda: self._client.get_compatibility(subject), missing=None)
        return None if found is None else str(found)

    def set_compatibility(self, subject: str, level: str) -> None:
        self._call(lambda: self._client.set_compatibility(subject, level), missing=None)

    def accepts(self, subject: str, schema: str, *, transitive: bool) -> bool:
        """Whether the registry would take this schema, under the compatibility the subject has now.

        Version by version: a question about all at once takes the right to write in Apicurio, is asked of all under
        any rule there, and is unknown to Karapace.
        """
        latest: list[int | str] = ["latest"]
        return all(
            self._call(partial(self._client.test_compatibility, subject, _avro(schema), version), missing=True)
            for version in (self._numbers(subject) if transitive else latest)
        )

    def register(self, subject: str, schema: str) -> int:
        try:
            return int(self._client.register_schema(subject, _avro(schema)))
        except SchemaRegistryError as error:
            if error.http_status_code == _CONFLICT:
                raise incompatible(subject, error.error_message) from error
            raise self._refused(error) from error
        except (OSError, httpx.TransportError) as error:
            raise self._unreachable(error) from error

    def forget(self, subject: str) -> None:
        """For good. A registry asks for the mark of deletion first."""
        none: list[int] = []
        if self._numbers(subject):
            self._call(lambda: self._client.delete_subject(subject), missing=none)
            self._call(lambda: self._client.delete_subject(subject, permanent=True), missing=none)

    def _numbers(self, subject: str) -> list[int]:
        none: list[int] = []
        return self._call(lambda: self._client.get_versions(subject), missing=none)

    def _call(self, ask: Callable[[], T], *, missing: T) -> T:
        try:
            return ask()
        except SchemaRegistryError as error:
            if error.http_status_code == _NOT_FOUND:
                return missing
            raise self._refused(error) from error
        except (OSError, httpx.TransportError) as error:
            raise self._unreachable(error) from error

    def _unreachable(self, error: Exception) -> LogError:
        return LogError(
            "registry-unreachable",
            f"no schema registry answered at {self._url}",
            why=str(error) or type(error).__name__,
            fix="leftfold status shows what runs; leftfold up starts the local cluster",
            retriable=True,
        )

    def _refused(self, error: SchemaRegistryError) -> LogError:
        return LogError(
            "registry-refused",
            f"the schema registry at {self._url} answered {error.http_status_code}",
            why=str(error.error_message),
            fix="leftfold logs registry (local), or ask the registry's owner",
        )


def incompatible(subject: str, why: str) -> LogError:
    return LogError(
        "schema-incompatible",
        f"the event's new schema breaks readers of {subject}",
        why=why,
        fix="give every added field a default and keep fields without one, or declare a new topic",
    )


def _avro(schema: str) -> Any:
    return Schema(json.dumps(json.loads(schema)), "AVRO")
