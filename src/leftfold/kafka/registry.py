"""The schema registry, through its Confluent API: the schema behind each id, and which schema changes are allowed."""

from __future__ import annotations

import json
import re
import ssl
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeVar

from leftfold.errors import ELSEWHERE, LogError, behind, start_or_check
from leftfold.settings import Registry

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import SchemaRegistryClient
    from confluent_kafka.schema_registry.error import SchemaRegistryError

T = TypeVar("T")
_NOT_FOUND = 404
_CONFLICT = 409
# By HTTP status: what the registry refused, and the fix.
_DENIED = {
    401: ("the login", "correct registry.username and registry.password of the profile"),
    403: (
        "what this user asked for",
        "let the user read and register subjects, or set registry.username and registry.password of the profile to one "
        "who may",
    ),
}
# Up to this many ids are asked for one by one. For more, it is shorter to read the registry's own list of all ids.
_ONE_BY_ONE = 200
_BEFORE_A_BATCH = 500  # questions: half a second if the registry takes 8 ms for each, 8 at once
_AT_ONCE = 8  # questions under way: few, because a registry is shared


def subject_of(topic: str) -> str:
    """Return the subject of a topic's values: the name that every registry client uses by default."""
    return f"{topic}-value"


class SchemaRegistry:
    """A registry. Its client is imported with the first question: that takes longer than most questions."""

    def __init__(self, settings: Registry) -> None:
        self._url = re.sub(r"//[^/@]*@", "//", settings.url)  # for messages, so without the password
        conf: dict[str, Any] = {"url": settings.url}
        if settings.username:
            password = settings.password.get_secret_value() if settings.password else ""
            conf["basic.auth.user.info"] = f"{settings.username}:{password}"
        if settings.ca:
            conf["ssl.ca.location"] = settings.ca
        self._conf = conf

    @cached_property
    def _client(self) -> SchemaRegistryClient:
        from confluent_kafka.schema_registry import SchemaRegistryClient

        return SchemaRegistryClient(self._conf)

    def versions(self, subject: str) -> dict[int, str]:
        """Return every schema ever registered for a subject, by id.

        A reader of the whole log must understand all of them.
        """
        schemas: dict[int, str] = {}
        for number in self._numbers(subject):
            version: Any = self._call(partial(self._client.get_version, subject, number), missing=None)
            schemas[int(version.schema_id)] = str(version.schema.schema_str)
        return schemas

    def schema(self, schema_id: int) -> str | None:
        """Return a schema by its id, from any subject; None if the registry never gave out that id."""
        registered = self._call(lambda: self._client.get_schema(schema_id), missing=None)
        return None if registered is None else registered.schema_str

    def schemas(self, ids: Collection[int]) -> dict[int, str]:
        """Return the schemas of those ids that the registry knows.

        For more than 200 ids it first tries the registry's list of all ids, so that unknown ids cost no question.
        """
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            if len(ids) > _ONE_BY_ONE and (given_out := self._given_out(pool, len(ids))) is not None:
                ids = given_out.intersection(ids)
            pairs = zip(ids, pool.map(self.schema, ids), strict=True)
            return {schema_id: schema for schema_id, schema in pairs if schema is not None}

    def given_out(self) -> frozenset[int]:
        """Return every id that the registry knows, of all subjects."""
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            ids = self._given_out(pool, None)
            assert ids is not None
            return ids

    def given_out_if_few(self) -> frozenset[int] | None:
        """Return every id that the registry knows; None if there are too many to ask before every batch."""
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return self._given_out(pool, _BEFORE_A_BATCH)

    def _given_out(self, pool: ThreadPoolExecutor, most: int | None) -> frozenset[int] | None:
        """Return all ids; None if there are more than `most` subjects, or more than `most` versions.

        Deleted versions count too: their records are still in the log.
        """
        none: list[str] = []
        subjects = self._call(lambda: self._client.get_subjects(deleted=True), missing=none)
        if most is not None and len(subjects) > most:
            return None
        numbers = list(pool.map(partial(self._numbers, deleted=True), subjects))
        versions = [(subject, number) for subject, them in zip(subjects, numbers, strict=True) for number in them]
        if most is not None and len(versions) > most:
            return None
        ids = pool.map(lambda version: self._id_of_version(*version), versions)
        return frozenset(schema_id for schema_id in ids if schema_id is not None)

    def _id_of_version(self, subject: str, number: int) -> int | None:
        """Return a version's schema id; None if the version was deleted for good since it was listed."""
        version: Any = self._call(partial(self._client.get_version, subject, number, deleted=True), missing=None)
        return None if version is None else int(version.schema_id)

    def id_of(self, subject: str, schema: str) -> int | None:
        registered = self._call(lambda: self._client.lookup_schema(subject, _avro(schema)), missing=None)
        return None if registered is None else registered.schema_id

    def compatibility(self, subject: str | None) -> str | None:
        """Return a subject's own compatibility rule; None if it has none.

        With None as subject, it returns the global rule, for subjects without their own.
        """
        rule = self._call(lambda: self._client.get_compatibility(subject), missing=None)
        return None if rule is None else str(rule)

    def set_compatibility(self, subject: str, level: str) -> None:
        self._call(lambda: self._client.set_compatibility(subject, level), missing=None)

    def accepts(self, subject: str, schema: str, *, transitive: bool) -> bool:
        """Return whether the registry would accept this schema under the subject's current compatibility.

        It asks version by version. One question about all versions has three problems: Apicurio requires the right to
        write for it, Apicurio compares with all versions under any rule, and Karapace does not know the question.
        """
        latest: list[int | str] = ["latest"]
        return all(
            self._call(partial(self._client.test_compatibility, subject, _avro(schema), version), missing=True)
            for version in (self._numbers(subject) if transitive else latest)
        )

    def register(self, subject: str, schema: str) -> int:
        def refused(error: SchemaRegistryError) -> int:
            if error.http_status_code == _CONFLICT:
                raise incompatible(subject, error.error_message) from error
            raise self._refused(error) from error

        return self._asked(lambda: int(self._client.register_schema(subject, _avro(schema))), refused)

    def forget(self, subject: str) -> None:
        """Delete a subject for good. A registry requires a soft delete first."""
        none: list[int] = []
        if self._numbers(subject):
            self._call(lambda: self._client.delete_subject(subject), missing=none)
            self._call(lambda: self._client.delete_subject(subject, permanent=True), missing=none)

    def _numbers(self, subject: str, *, deleted: bool = False) -> list[int]:
        none: list[int] = []
        return self._call(lambda: self._client.get_versions(subject, deleted=deleted), missing=none)

    def _call(self, ask: Callable[[], T], *, missing: T) -> T:
        def refused(error: SchemaRegistryError) -> T:
            if error.http_status_code == _NOT_FOUND:
                return missing
            raise self._refused(error) from error

        return self._asked(ask, refused)

    def _asked(self, ask: Callable[[], T], refused: Callable[[SchemaRegistryError], T]) -> T:
        from confluent_kafka.schema_registry.common._httpx_compat import httpx  # the httpx that this release uses
        from confluent_kafka.schema_registry.error import SchemaRegistryError

        try:
            return ask()
        except SchemaRegistryError as error:
            return refused(error)
        except (OSError, httpx.TransportError) as error:
            raise self._unreachable(error) from error

    def _unreachable(self, error: Exception) -> LogError:
        if behind(error, ssl.SSLError):
            return LogError(
                "registry-tls",
                f"no TLS connection could be made to the schema registry at {self._url}",
                why=str(error),
                fix="set registry.ca of the profile to the PEM file of the CA that signed its certificate, and let "
                "registry.url begin with https only if it speaks TLS",
            )
        return LogError(
            "registry-unreachable",
            f"no schema registry answered at {self._url}",
            why=str(error) or type(error).__name__,
            fix=start_or_check("registry.url of the profile, and that this machine may connect to it"),
            retriable=True,
        )

    def _refused(self, error: SchemaRegistryError) -> LogError:
        status, says = error.http_status_code, str(error.error_message)
        if status in _DENIED:
            what, fix = _DENIED[status]
            return LogError(
                "registry-denied",
                f"the schema registry at {self._url} refused {what} (HTTP {status})",
                why=says,
                fix=fix,
            )
        return LogError(
            "registry-refused",
            f"the schema registry at {self._url} answered with HTTP {status}",
            why=says,
            fix=f"leftfold logs registry shows the cause; {ELSEWHERE}ask the registry's owner what its log has at this "
            "time",
        )


def incompatible(subject: str, why: str) -> LogError:
    return LogError(
        "schema-incompatible",
        f"the event's new schema breaks readers of {subject}",
        why=why,
        fix="give every added field a default and keep fields without one, or declare a new topic",
    )


def _avro(schema: str) -> Any:
    from confluent_kafka.schema_registry import Schema

    return Schema(json.dumps(json.loads(schema)), "AVRO")
