"""Chooses the key and the event time of an adopted topic. Where the records leave a doubt, the user must decide."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from leftfold.adopt.debezium import key_names
from leftfold.adopt.fields import FieldShape, Found
from leftfold.adopt.reading import SampledRow
from leftfold.kafka.decode import schema_id_of

_NAMED = 6  # candidates in a message


@dataclass(frozen=True)
class Undecided:
    """A choice that the user must make, in the words of an error."""

    what: str
    why: str
    fix: str


@dataclass(frozen=True)
class Chosen:
    """A field that was chosen, with a note that says why."""

    field: str
    note: str


Choice = Chosen | Undecided


def key_choice(topic: str, event: str, shape: FieldShape, rows: Sequence[SampledRow], *, compacted: bool) -> Choice:
    """Choose the only field whose text equals the record's key in every sampled record."""
    candidates = [f for f in shape.found if f.can_be_key]
    what = f"the key of {topic} is not decided"
    fix = _fix(
        "key", event, candidates, none="ask its writer to add a str or int field that names what a record is about"
    )
    if not rows:
        return Undecided(what, "there was no record to compare its key with the fields", fix)
    keys = {row.key for row in rows}
    without = sum(row.key is None for row in rows)
    if without:
        some = (
            "the sampled records have no key" if without == len(rows) else f"{without:,} of {len(rows):,} have no key"
        )
        return Undecided(what, f"{some}, so Kafka does not keep those of one entity in order", fix)
    if form := _form(keys):
        lost = "; a lf.Table would never see a row deleted, because a deletion has only this key" if compacted else ""
        return Undecided(what, f"the records' keys are {form}, and Leftfold's keys are the text of a field{lost}", fix)
    same = [f for f in candidates if all(row.key == _text(row.fields.get(f.name)) for row in rows)]
    if len(same) != 1:
        matches = f"{_names(same)} all equal it" if same else "no field equals it"
        return Undecided(what, f"of {len(rows):,} sampled records' keys, {matches}", fix)
    if len(keys) == 1:
        why = f"{same[0].name} equals it, but all {len(rows):,} sampled records have one and the same key"
        return Undecided(what, why, fix)
    return Chosen(same[0].name, f"equals the record's key in all {len(rows):,} sampled records, {len(keys):,} keys")


def _text(value: Any) -> bytes | None:
    return None if value is None else str(value).encode(errors="replace")


def _form(keys: set[bytes | None]) -> str | None:
    """A description of the form of keys that are not plain text; None if they are plain text."""
    some = [key for key in keys if key is not None]
    if any(schema_id_of(key) is not None for key in some):
        return "framed for a schema registry"
    if any(key_names(key) for key in some):
        return "objects of JSON"
    return None


def time_choice(topic: str, event: str, shape: FieldShape) -> Choice:
    """Choose the only datetime field that is never missing."""
    moments = [f for f in shape.found if f.can_be_time]
    never_missing = [f for f in moments if not f.optional]
    if len(never_missing) == 1:
        return Chosen(never_missing[0].name, "the only datetime that is never missing")
    what = f"the event time of {topic} is not decided"
    if never_missing:
        why = f"{_names(never_missing)} are datetimes that are never missing"
        return Undecided(what, why, _fix("time", event, never_missing, none=""))
    if moments:
        first = moments[0].name
        fix = f"write time={event}.{first} here and {first}: datetime above; records without it are then rejected"
        return Undecided(what, f"{_names(moments)} may be missing, and every record needs the moment it happened", fix)
    counted = [f.name for f in shape.found if f.epoch]
    why = "no field is a datetime"
    if counted:
        why += f"; {', '.join(counted[:_NAMED])} count from 1970, but in another unit than microseconds"
    fix = "ask its writer to add one: timestamp-micros in Avro, in JSON text such as 2026-01-05T12:00:00Z"
    return Undecided(what, why, fix)


def _fix(option: str, event: str, candidates: Sequence[Found], *, none: str) -> str:
    if not candidates:
        return none
    text = " or ".join(f"{option}={event}.{f.name}" for f in candidates[:_NAMED])
    missing = [f.name for f in candidates[:_NAMED] if f.optional]
    more = f"; {', '.join(missing)} may be null above: take `| None = None` away, and a record without it is rejected"
    return f"write {text} here{more if missing else ''}"


def _names(fields: Sequence[Found]) -> str:
    return " and ".join(f.name for f in fields[:_NAMED])
