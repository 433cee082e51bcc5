"""Hazards of a changed event for a view that still runs with its old declaration."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from leftfold.declare.event import EventField, fields_of
from leftfold.declare.free import View
from leftfold.declare.topic import Topic
from leftfold.fold.build_id import BuildId
from leftfold.fold.values import Kind
from leftfold.hazards.hazard import Facts, Hazard, Rule
from leftfold.observe.observation import ObservedBuild

CODES = ("change-breaks-running-view",)

# By format and by the kind that a running view expects: the new kinds of a field that it still accepts.
_TAKES: dict[str, dict[Kind, frozenset[Kind]]] = {
    "avro": {
        "string": frozenset({"string", "bytes"}),
        "bytes": frozenset({"string", "bytes"}),
        "float": frozenset({"int", "float"}),
    },
    "json": {
        "string": frozenset({"string", "bytes", "int", "float", "bool", "datetime"}),
        "float": frozenset({"int", "float"}),
    },
}


def _running(facts: Facts) -> Iterator[Hazard]:
    for build in facts.observed.builds:
        if not build.followed or build.definition.get("stream") or build.definition.get("code"):
            continue  # the fields that a function reads are not known
        view = facts.catalog.views.get(build.view)
        free = view is not None and isinstance(view.definition, View)
        if view is not None and not free and BuildId.parse(build.id).fingerprint == view.fingerprint:
            continue
        for origin in build.definition.get("origins", ()):
            topic = facts.catalog.topics.get(origin[0])
            if topic is not None:
                yield from _breaks(facts, topic, build)


def _breaks(facts: Facts, topic: Topic[Any], build: ObservedBuild) -> Iterator[Hazard]:
    fields = fields_of(topic.event)
    for name, kind in sorted(_read_kinds(build.definition).items()):
        field = fields.get(name)
        if field is not None and (kind is None or field.kind in _TAKES[topic.format].get(kind, {kind})):
            continue
        yield Hazard(
            "change-breaks-running-view",
            "danger",
            f"view {build.view}",
            f"{build.id} reads {name} of topic {facts.name(topic)}, "
            + (
                f"which {topic.event.__name__} no longer has"
                if field is None
                else f"as {kind}, and it is {field.kind} now"
            ),
            f"Until the view runs with the new declaration, {_until(topic, kind, field)}.",
            "start the views with the new declaration before any producer, or keep the field as it was",
            topic.source,
        )


def _until(topic: Topic[Any], kind: Kind | None, field: EventField | None) -> str:
    if field is None:
        return "records without the field count with its old default, or are rejected if it had none"
    if topic.format == "avro" and {kind, field.kind} == {"int", "datetime"}:  # both are numbers to Avro
        return "it takes the numbers that producers send for what they were before"
    return "it rejects the records that producers send in the new shape"


def _read_kinds(definition: dict[str, Any]) -> dict[str, Kind | None]:
    """The fields that a build of windows or of a table reads, each with the kind it expects; None for any kind."""
    kinds: dict[str, Kind | None] = {key[0]: key[1] for key in definition.get("keys", ())}
    for column in definition.get("columns", ()):
        if isinstance(column, list):  # a column of a table: name, field, kind, ...
            kinds[column[1]] = column[2]
        else:
            if column["field"]:
                kinds[column["field"]] = kinds.get(column["field"]) if _counts(column) else column["kind"]
            kinds |= _compared(column["where"])
    for rule in definition.get("rules", ()):
        kinds |= _compared(rule)
    if definition.get("time"):
        kinds[definition["time"]] = "datetime"
    return kinds


def _counts(column: dict[str, Any]) -> bool:
    """Return whether the column counts. A count accepts values of any kind; the column's kind is that of the number."""
    return bool(column["aggregate"] == "count")


def _compared(tree: Any) -> dict[str, Kind | None]:
    match tree:
        case ["field", str(name), str(kind)]:
            return {name: kind}  # type: ignore[dict-item] # the text is a kind
        case list():
            return {name: kind for part in tree for name, kind in _compared(part).items()}
    return {}


RULES: tuple[Rule, ...] = (_running,)
