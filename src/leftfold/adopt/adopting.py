"""Makes a topic's declaration, and a report for the user, from what was seen of the topic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from leftfold.adopt import debezium
from leftfold.adopt.choices import Choice, Chosen, Undecided, key_choice, time_choice
from leftfold.adopt.declaration import Declaration, class_name, rendered
from leftfold.adopt.fields import FieldShape, Found, LeftOut
from leftfold.adopt.json_sample import moment
from leftfold.adopt.look import Looked
from leftfold.adopt.options import TopicOptions, options_of, seen_lines
from leftfold.adopt.reading import SampledRow, Source, TopicReading, cannot, read
from leftfold.declare.topic_options import checked_name
from leftfold.errors import DeclarationError
from leftfold.errors import SourceLine as Place
from leftfold.fold.durations import SECOND, micros

_LATENESS = micros("10m", option="lateness")


@dataclass(frozen=True)
class Adopted:
    """The declaration of a topic as text, and what the user should know of it."""

    topic: str
    event: str
    format: Literal["avro", "json"]
    source: Source
    debezium: bool
    fields: tuple[Found, ...]
    left_out: tuple[LeftOut, ...]
    undecided: tuple[Undecided, ...]
    sampled: int  # number of records
    text: str


def adopt(looked: Looked) -> Adopted:
    name = looked.topic.name
    _check_name(name)
    seen = read(looked)
    if not seen.shape.found:
        raise cannot(name, "none of its fields can be declared", "ask its writer to write plain values as fields")
    event = class_name(seen.shape.name, name)
    options = _options(looked, seen)
    key = _key(looked, seen, event, options)
    shape = _never_missing(seen.shape, key.field) if isinstance(key, Chosen) else seen.shape
    time = None if options.compacted else time_choice(name, event, shape)
    format_: Literal["avro", "json"] = "avro" if seen.source == "avro" else "json"
    advice: tuple[str, ...] = ()
    columns = debezium.key_columns(looked.key_schema, [record.key for record in looked.records])
    if seen.wrapping == "debezium":
        advice = debezium.advice(name, columns, json_values=format_ == "json")
    declaration = Declaration(
        name,
        event,
        shape,
        format_,
        key,
        time,
        options,
        remarks=(*seen_lines(looked.topic), *seen.remarks),
        advice=advice,
        likely_key=columns[0] if len(columns) == 1 and columns[0] in {f.name for f in shape.found} else None,
        lateness_note=_lateness_note(time, seen.rows),
    )
    return Adopted(
        name,
        event,
        format_,
        seen.source,
        seen.wrapping == "debezium",
        shape.found,
        shape.left_out,
        tuple(choice for choice in (key, time) if isinstance(choice, Undecided)),
        len(looked.records),
        rendered(declaration),
    )


def _check_name(name: str) -> None:
    try:
        checked_name(name, Place("", 0))
    except DeclarationError as error:
        raise cannot(name, error.why, "ask its owner to mirror it under such a name") from error


def _options(looked: Looked, seen: TopicReading) -> TopicOptions:
    options = options_of(looked.topic)
    if seen.wrapping != "debezium" or options.compacted:
        return options
    policy = looked.topic.configs.get("cleanup.policy", "delete")
    note = f"as the topic of rows has to be; {looked.topic.name} has cleanup.policy={policy}"
    stamped = options.log_time_note.partition(":")[0]  # no record is late in a compacted topic
    return replace(
        options, compacted=True, compacted_note=note, retention=None, retention_note="", log_time_note=stamped
    )


def _key(looked: Looked, seen: TopicReading, event: str, options: TopicOptions) -> Choice:
    """Choose the key. It stays undecided if the fields are inside an envelope or a payload.

    Views do not find such fields, whatever the key is.
    """
    name = looked.topic.name
    if seen.wrapping == "debezium":
        return Undecided(
            f"{name} holds Debezium's envelope, and {event} is the row in it",
            "views read the fields of a record, not those inside its `after`",
            "set the connector as the comment above says, then adopt the topic that it writes rows to",
        )
    if seen.wrapping == "connect":
        return Undecided(
            f"{name} holds Connect's schema and payload, and {event} is the payload",
            "views read the fields of a record, not those inside its `payload`",
            "set value.converter.schemas.enable=false on the connector, then adopt the topic that it writes to",
        )
    return key_choice(name, event, seen.shape, seen.rows, compacted=options.compacted)


def _never_missing(shape: FieldShape, key: str) -> FieldShape:
    field = next(f for f in shape.found if f.name == key)
    if not field.optional:
        return shape
    note = "may be null by its schema; as the key it may not, and a record without it is rejected"
    return shape.replacing(field.noting(note, optional=False, default=None))


def _lateness_note(time: Choice | None, rows: Sequence[SampledRow]) -> str:
    """A note on how late the sampled records are, so that the user can choose a better value than the default."""
    if not isinstance(time, Chosen):
        return ""
    times = ((row.log_us, row.fields.get(time.field)) for row in rows)
    lags = [log_us - at for log_us, v in times if (at := v if isinstance(v, int) else moment(v)) is not None]
    if not lags:
        return "the default; no record was there to measure"
    late = sum(lag > _LATENESS for lag in lags)
    span = f"{min(lags) / SECOND:,.1f} s to {max(lags) / SECOND:,.1f} s after {time.field}"
    return f"the default; sampled records reached the log {span}" + (
        f": {late:,} of {len(lags):,} late" if late else ""
    )
