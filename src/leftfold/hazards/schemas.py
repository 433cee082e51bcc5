"""Hazards of schemas: schemas that the registry accepts, and old records that a declared event cannot read.

A schema that the registry refuses is a problem of the plan, not a hazard. Its topic is left out here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from leftfold.declare.catalog import DeclaredView
from leftfold.declare.event import EventField, fields_of
from leftfold.declare.schema import avro_schema
from leftfold.declare.topic import Topic
from leftfold.hazards import schema_builds
from leftfold.hazards.avro_reading import MICROS, Misfit, misfit, type_text, written_fields
from leftfold.hazards.hazard import Facts, Hazard, Rule
from leftfold.kafka.registry import subject_of
from leftfold.observe.observation import ObservedSubject

CODES = (
    *schema_builds.CODES,
    "compatibility-below-declared",
    "compatibility-weak",
    "default-changed",
    "old-records-lack-field",
    "old-records-unreadable",
    "time-unit-differs",
)

_REJECTED = (
    "The log may hold records that were written so: views that read the field reject them, and a new build comes to "
    "other values than the one before."
)


def _subjects(facts: Facts) -> Iterator[tuple[Topic[Any], ObservedSubject]]:
    for topic in facts.catalog.topics.values():
        seen = facts.observed.subjects.get(subject_of(facts.name(topic)))
        if seen is not None and (seen.registered or seen.accepted):
            yield topic, seen


# Schemas that the registry accepts -----------------------------------------------------------------------------------


def _covers(level: str, wanted: str) -> bool:
    """Return whether the rule `level` refuses all that the rule `wanted` refuses."""
    ways, asked = _ways(level), _ways(wanted)
    return asked <= ways and ("_TRANSITIVE" in level or "_TRANSITIVE" not in wanted)


def _ways(level: str) -> set[str]:
    if level == "NONE":
        return set()
    return {"BACKWARD", "FORWARD"} if level.startswith("FULL") else {level.removesuffix("_TRANSITIVE")}


def _weak(facts: Facts) -> Iterator[Hazard]:
    for topic, _ in _subjects(facts):
        if _covers(topic.compatibility, "BACKWARD_TRANSITIVE"):
            continue
        last = "BACKWARD" in _ways(topic.compatibility)
        yield Hazard(
            "compatibility-weak",
            "danger" if topic.compatibility == "NONE" else "warning",
            f"topic {facts.name(topic)}",
            f"is declared with compatibility={topic.compatibility!r}: "
            + (
                "a new schema is asked to read records of the one before it only"
                if last
                else "a new schema is not asked to read old records"
            ),
            "A new build reads the log from its start, with records of every schema that it still holds. Those that "
            "the event of that day cannot read are rejected.",
            "leave compatibility= out (FULL_TRANSITIVE), or declare BACKWARD_TRANSITIVE",
            topic.source,
        )


def _below(facts: Facts) -> Iterator[Hazard]:
    for topic, seen in _subjects(facts):
        if seen.compatibility is None or not seen.versions or _covers(seen.compatibility, topic.compatibility):
            continue
        yield Hazard(
            "compatibility-below-declared",
            "warning",
            f"topic {facts.name(topic)}",
            f"its {_schemas(len(seen.versions))} came in under {seen.compatibility}, the declaration says "
            f"{topic.compatibility}",
            "apply sets the rule, and the registry judges only what comes after that: what it let in before stays. "
            "Readers with one of these schemas may not understand records of another.",
            f"let every reader take the newest schema, or declare compatibility={seen.compatibility!r} as it is",
            topic.source,
        )


def _schemas(number: int) -> str:
    return "registered schema" if number == 1 else f"{number} registered schemas"


# Old records, read as the declared event -----------------------------------------------------------------------------


def _old_records(facts: Facts) -> Iterator[Hazard]:
    for topic, seen in _subjects(facts):
        versions = {n: written_fields(text) for n, text in enumerate(seen.versions, 1)}
        if others := [n for n, written in versions.items() if written is None]:
            yield _no_record(facts, topic, _which(others, len(versions)))
        for field in fields_of(topic.event).values():
            by_reason: dict[Misfit, list[int]] = {}
            for number, written in versions.items():
                if written is not None and (reason := misfit(field, written)) is not None:
                    by_reason.setdefault(reason, []).append(number)
            for reason, numbers in by_reason.items():
                yield _misfits(facts, topic, field, reason, _which(numbers, len(versions)), versions[numbers[-1]] or {})


def _which(numbers: Sequence[int], of: int) -> str:
    noun = "schema" if len(numbers) == 1 else "schemas"
    return f"registered {noun} {', '.join(map(str, numbers))} of {of}"


def _misfits(
    facts: Facts, topic: Topic[Any], field: EventField, reason: Misfit, which: str, written: dict[str, dict[str, Any]]
) -> Hazard:
    name = f"{topic.event.__name__}.{field.name}"
    if reason == "unit":
        return Hazard(
            "time-unit-differs",
            "danger",
            f"topic {facts.name(topic)}",
            f"{name} is read as microseconds, and is {type_text(written[field.name]['type'])} in {which}",
            "Avro takes the number as it is, whatever its unit: such a time is read as another moment, and its record "
            "is late or from the future.",
            f"let producers write {MICROS}, under a schema of this event",
            topic.source,
        )
    if reason == "lacks":
        return Hazard(
            "old-records-lack-field",
            "danger",
            f"topic {facts.name(topic)}",
            f"{name} has no default, and {which} {_verb(which, 'does')} not have it",
            _REJECTED,
            f"give {name} a default, or make it optional: {field.name}: … | None = None",
            topic.source,
        )
    actual = "may be missing" if reason == "null" else f"is {type_text(written[field.name]['type'])}"
    return Hazard(
        "old-records-unreadable",
        "danger",
        f"topic {facts.name(topic)}",
        f"{name} is {_kind_text(field)}, and {actual} in {which}",
        _REJECTED,
        f"keep the type of {name}, and add a field of another name, with a default, for the new one",
        topic.source,
    )


def _no_record(facts: Facts, topic: Topic[Any], which: str) -> Hazard:
    return Hazard(
        "old-records-unreadable",
        "danger",
        f"topic {facts.name(topic)}",
        f"holds {topic.event.__name__}, and {which} {_verb(which, 'is')} no record with fields",
        _REJECTED,
        "declare a new topic for the event, and move its producers",
        topic.source,
    )


def _verb(which: str, one: str) -> str:
    return one if "schema " in which else {"is": "are", "does": "do"}[one]


def _kind_text(field: EventField) -> str:
    return f"{'a list of ' if field.repeated else ''}{field.kind}" + (" or missing" if field.optional else "")


def _defaults(facts: Facts) -> Iterator[Hazard]:
    """Judge only schemas that are not registered yet. Until then nobody reads the new default."""
    views: dict[str, list[DeclaredView]] = {}
    for view in facts.catalog.views.values():
        for read in view.reading.topics:
            views.setdefault(read.name, []).append(view)
    for topic, seen in _subjects(facts):
        if seen.registered:
            continue
        versions = [written for text in seen.versions if (written := written_fields(text)) is not None]
        now = {field["name"]: field for field in json.loads(avro_schema(topic.event))["fields"]}
        for name, field in now.items():
            defaults = [written[name]["default"] for written in versions if "default" in written.get(name, {})]
            lacking = sum(name not in written for written in versions)
            if not defaults or "default" not in field or defaults[-1] == field["default"] or not lacking:
                continue
            readers = [view.name for view in views.get(topic.name, ()) if name in view.fields]
            if not readers:
                continue
            yield Hazard(
                "default-changed",
                "danger",
                f"topic {facts.name(topic)}",
                f"{topic.event.__name__}.{name} had the default {json.dumps(defaults[-1])}, and has "
                f"{json.dumps(field['default'])}; {lacking} of {len(versions)} registered schemas lack the field",
                "Records without the field are read with the new default from now on, also old ones. "
                f"{', '.join(readers)} would come to other values when they are computed anew, under the same build.",
                "keep the default, and add a field of another name for what is meant now",
                topic.source,
            )


RULES: tuple[Rule, ...] = (*schema_builds.RULES, _weak, _below, _old_records, _defaults)
