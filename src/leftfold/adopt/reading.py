"""Decides how to read a topic's records: by the schema that they name, by a registered schema, or from a sample."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from leftfold.adopt import avro, debezium, json_sample, json_schema
from leftfold.adopt.avro import NotARecordError
from leftfold.adopt.fields import FieldShape, merged
from leftfold.adopt.look import Looked
from leftfold.errors import LogError
from leftfold.kafka.decode import schema_id_of
from leftfold.kafka.log_reader import Logged

Source = Literal["avro", "json-schema", "sample"]
Wrapping = Literal["debezium", "connect"]


@dataclass(frozen=True)
class SampledRow:
    """A sampled record: its key as bytes, and its fields as their writer wrote them."""

    key: bytes | None
    fields: dict[str, Any]
    log_us: int


@dataclass(frozen=True)
class TopicReading:
    """The fields of a topic's records, the sampled rows, and remarks for the user."""

    source: Source
    shape: FieldShape
    rows: tuple[SampledRow, ...] = ()
    remarks: tuple[str, ...] = ()
    wrapping: Wrapping | None = None  # the envelope around the fields, which no declaration can read


def read(looked: Looked) -> TopicReading:
    valued = [record for record in looked.records if record.value is not None]
    if any(_schema_id(record) is not None for record in valued):
        return _framed(looked, valued)
    if valued:
        return _bare(looked, valued)
    return _unseen(looked)


def _schema_id(record: Logged) -> int | None:
    return None if record.value is None else schema_id_of(record.value)


def _framed(looked: Looked, valued: Sequence[Logged]) -> TopicReading:
    """Read records that name their schema by its id."""
    name = looked.topic.name
    ids = {_schema_id(record) for record in valued}
    # If no record names a version of the topic's subject, the subject is out of date: the records' writer follows
    # another naming of subjects.
    current = looked.versions if ids & looked.versions.keys() else {}
    schemas = {**looked.others, **current}
    if not schemas:
        why = "its records name schemas that the registry does not know"
        raise cannot(name, why, "ask its owner which registry has them")
    understood = _by_schema(name, schemas)
    rows = []
    for record in valued:
        text = schemas.get(_schema_id(record) or 0)
        fields = avro.values(text, record.value or b"") if text is not None else None
        if fields is not None:
            rows.append((record, fields))
    count, newest = len(rows), next(reversed(schemas))
    remarks = [_counted(looked, f"Avro, {_versions(looked, current)}, newest id {newest}")]
    if count < len(valued):
        remarks.append(f"{len(valued) - count:,} of {len(valued):,} sampled records do not decode: views reject these")
    shape, row_only = understood
    if row_only:
        rows = [(record, fields["after"]) for record, fields in rows if isinstance(fields.get("after"), dict)]
    sampled = tuple(SampledRow(record.key, fields, record.log_us) for record, fields in rows)
    return TopicReading("avro", shape, sampled, tuple(remarks), "debezium" if row_only else None)


def _by_schema(name: str, schemas: dict[int, str]) -> tuple[FieldShape, bool]:
    """The shape that reads records of all these schemas, and whether it is that of the row in Debezium's envelope.

    For Debezium's envelope, only the newest schema is used.
    """
    texts = list(schemas.values())
    newest = texts[-1]
    if json_schema.is_json_schema(newest):
        raise cannot(
            name,
            "its records are JSON behind the five bytes of a schema registry, and views read JSON without them",
            "ask its writer to write plain JSON, or Avro",
        )
    try:
        row = debezium.row_in_schema(newest)
        if row is not None:
            return row, True
        return merged(avro.shape_of(newest), [avro.shape_of(text) for text in texts[:-1]]), False
    except NotARecordError as error:
        raise cannot(name, str(error), "ask its writer to write a record of Avro that is whole in itself") from error


def _versions(looked: Looked, current: dict[int, str]) -> str:
    if not current:
        return "by the schemas that its records name"
    return f"subject {looked.topic.name}-value, {len(current):,} version{'' if len(current) == 1 else 's'}"


def _counted(looked: Looked, how: str) -> str:
    deleted = sum(record.value is None for record in looked.records)
    return f"{how}; {len(looked.records):,} records sampled" + (f", {deleted:,} without a value" if deleted else "")


def _bare(looked: Looked, valued: Sequence[Logged]) -> TopicReading:
    name = looked.topic.name
    parsed = [(record, json_sample.parsed(record.value or b"")) for record in valued]
    objects = [(record, fields) for record, fields in parsed if fields is not None]
    if not objects:
        why = "its records are neither framed for a schema registry nor objects of JSON"
        raise cannot(name, why, "ask its writer to write Avro or JSON")
    registered = next(reversed(looked.versions.values()), None)
    remarks = [_counted(looked, "JSON")]
    if len(objects) < len(valued):
        remarks.append(f"{len(valued) - len(objects):,} of {len(valued):,} sampled records are no objects of JSON")
    wrapping: Wrapping | None = None
    if all(debezium.with_payload(fields) for _, fields in objects):
        wrapping = "connect"
        objects = [(record, fields["payload"]) for record, fields in objects if isinstance(fields["payload"], dict)]
    if debezium.is_envelope([fields for _, fields in objects]):
        wrapping = "debezium"
        objects = [(record, fields["after"]) for record, fields in objects if isinstance(fields["after"], dict)]
    records = [fields for _, fields in objects]
    rows = tuple(SampledRow(record.key, fields, record.log_us) for record, fields in objects)
    if registered is not None and wrapping is None and json_schema.is_json_schema(registered):
        remarks[0] = _counted(looked, f"JSON, {_versions(looked, looked.versions)} of a JSON Schema")
        return TopicReading(
            "json-schema", json_sample.agreed(json_schema.shape_of(registered), records), rows, tuple(remarks)
        )
    if registered is not None:
        remarks.append(f"subject {name}-value has a schema that the records do not carry; it is not used")
    remarks.append(
        "a field that all sampled records have is required, and a number that was always whole is int: "
        "a record that is otherwise is rejected"
    )
    return TopicReading("sample", json_sample.shape_of(records), rows, tuple(remarks), wrapping)


def _unseen(looked: Looked) -> TopicReading:
    """Read a topic without a record to look at, by its registered schema. Raises if there is none."""
    name = looked.topic.name
    if not looked.versions:
        why = "it has neither a registered schema nor a record with a value"
        raise cannot(
            name, why, f"ask its owner for the schema, or wait for records and run leftfold adopt {name} again"
        )
    newest = next(reversed(looked.versions.values()))
    if json_schema.is_json_schema(newest):
        remarks = (
            _counted(looked, f"JSON, {_versions(looked, looked.versions)} of a JSON Schema"),
            "views read plain JSON: records behind the five bytes of a schema registry would be rejected",
        )
        return TopicReading("json-schema", json_schema.shape_of(newest), remarks=remarks)
    shape, row_only = _by_schema(name, looked.versions)
    how = f"Avro, {_versions(looked, looked.versions)}, newest id {next(reversed(looked.versions))}"
    return TopicReading("avro", shape, remarks=(_counted(looked, how),), wrapping="debezium" if row_only else None)


def cannot(topic: str, why: str, fix: str) -> LogError:
    return LogError("cannot-adopt", f"topic {topic} cannot be declared", why=why, fix=fix)
