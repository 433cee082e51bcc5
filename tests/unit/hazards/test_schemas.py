"""Hazards of schemas: each provoked, with all that a person is told, and each near miss."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime
from typing import Any

import pytest
from fastavro import parse_schema, schemaless_writer

import leftfold as lf
from leftfold.declare.event import fields_of
from leftfold.declare.framing import frame
from leftfold.declare.schema import avro_schema
from leftfold.hazards.avro_reading import misfit, written_fields
from leftfold.hazards.schemas import CODES, RULES
from leftfold.kafka.decode import avro_decoder
from leftfold.observe.observation import ObservedSubject
from tests.unit.hazards.judging import built, codes, facts, judged


class Click(lf.Event):
    user_id: str
    price: float
    tags: list[str] = []  # noqa: RUF012 # pydantic copies it
    referrer: str | None = None
    weight: int = 1
    at: datetime


MICROS = {"type": "long", "logicalType": "timestamp-micros"}
NOW = avro_schema(Click)
FIRST = {"user_id": "string", "price": "double", "at": MICROS}


def schema(**fields: Any) -> str:
    """A registered one: a field's type, or (its type, its default)."""
    described = [
        {"name": n, "type": t[0], "default": t[1]} if isinstance(t, tuple) else {"name": n, "type": t}
        for n, t in fields.items()
    ]
    return json.dumps({"type": "record", "name": "Click", "fields": described})


def clicks(event: Any = Click, **options: Any) -> Any:
    return lf.Topic("clicks", event, key=event.user_id, time=event.at, **options)


def view_of(topic: Any, event: Any = Click) -> Any:
    class Activity(lf.Features, of=topic, by=event.user_id):
        weight_1h = lf.sum(event.weight, "1h")

    return Activity


def subject(
    *versions: str, level: str | None = "FULL_TRANSITIVE", registered: bool = True, accepted: bool = True
) -> dict[str, ObservedSubject]:
    return {"clicks-value": ObservedSubject(level, registered, accepted, versions)}


def told(*versions: str, **seen: Any) -> list[str]:
    topic = clicks()
    return judged(RULES, facts(topic, view_of(topic), subjects=subject(*versions, **seen)))


def test_codes_are_sorted_out() -> None:
    assert len(set(CODES)) == len(CODES) == 7


def test_sound_schemas() -> None:
    assert told() == []
    assert told(NOW) == []
    assert told(schema(**FIRST), schema(**FIRST, weight=("long", 1)), NOW) == []
    assert told(level=None, registered=False) == []


# What the registry lets in ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("level", "sign", "asked"),
    [
        ("NONE", "! danger", "a new schema is not asked to read old records"),
        ("FORWARD_TRANSITIVE", "· warning", "a new schema is not asked to read old records"),
        ("BACKWARD", "· warning", "a new schema is asked to read records of the one before it only"),
        ("FULL", "· warning", "a new schema is asked to read records of the one before it only"),
    ],
)
def test_a_weak_rule(level: str, sign: str, asked: str) -> None:
    topic = clicks(compatibility=level)
    assert judged(RULES, facts(topic, view_of(topic), subjects=subject(NOW, level=level))) == [
        f"{sign}[compatibility-weak] topic clicks: is declared with compatibility='{level}': {asked}\n"
        "    why: A new build reads the log from its start, with records of every schema that it still holds. Those "
        "that the event of that day cannot read are rejected.\n"
        "    fix: leave compatibility= out (FULL_TRANSITIVE), or declare BACKWARD_TRANSITIVE"
    ]


def test_a_rule_that_is_strong_enough() -> None:
    topic = clicks(compatibility="BACKWARD_TRANSITIVE")
    assert codes(RULES, facts(topic, view_of(topic), subjects=subject(NOW, level="BACKWARD_TRANSITIVE"))) == []
    json_topic = clicks(format="json")  # has no schema, and says NONE
    assert codes(RULES, facts(json_topic, view_of(json_topic))) == []


def test_a_rule_below_the_declared_one() -> None:
    assert told(schema(**FIRST), NOW, level="BACKWARD") == [
        "· warning[compatibility-below-declared] topic clicks: its 2 registered schemas came in under BACKWARD, the "
        "declaration says FULL_TRANSITIVE\n"
        "    why: apply sets the rule, and the registry judges only what comes after that: what it let in before "
        "stays. Readers with one of these schemas may not understand records of another.\n"
        "    fix: let every reader take the newest schema, or declare compatibility='BACKWARD' as it is"
    ]
    (new,) = told(schema(**FIRST), level="NONE", registered=False)
    assert "its registered schema came in under NONE" in new
    assert told(level="BACKWARD") == []  # nothing came in yet


def test_a_rule_above_the_declared_one() -> None:
    topic = clicks(compatibility="BACKWARD_TRANSITIVE")
    assert codes(RULES, facts(topic, view_of(topic), subjects=subject(NOW, level="FULL_TRANSITIVE"))) == []


# Old records --------------------------------------------------------------------------------------------------------


def test_old_records_that_lack_a_field() -> None:
    assert told(schema(user_id="string", at=MICROS), schema(user_id="string", at=MICROS, weight="long"), NOW) == [
        "! danger[old-records-lack-field] topic clicks: Click.price has no default, and registered schemas 1, 2 of 3 "
        "do not have it\n"
        "    why: The log may hold records that were written so: views that read the field reject them, and a new "
        "build comes to other values than the one before.\n"
        "    fix: give Click.price a default, or make it optional: price: … | None = None"
    ]
    lacking = schema(user_id="string", price="double", at=MICROS)  # tags, referrer and weight have defaults
    assert told(lacking, NOW) == []


def test_old_records_of_another_type() -> None:
    assert told(schema(**{**FIRST, "price": "string"}), NOW) == [
        "! danger[old-records-unreadable] topic clicks: Click.price is float, and is string in registered schema 1 of "
        "2\n"
        "    why: The log may hold records that were written so: views that read the field reject them, and a new "
        "build comes to other values than the one before.\n"
        "    fix: keep the type of Click.price, and add a field of another name, with a default, for the new one"
    ]
    assert told(schema(**{**FIRST, "price": "long"}), NOW) == []  # Avro widens it


def test_old_records_in_which_a_field_may_be_missing() -> None:
    (text,) = told(schema(**{**FIRST, "user_id": ["null", "string"]}), NOW)
    assert "Click.user_id is string, and may be missing in registered schema 1 of 2\n" in text
    assert told(schema(**FIRST, referrer=["string", "null"]), NOW) == []


def test_old_values_that_are_no_records() -> None:
    assert told('syntax = "proto3";', NOW)[0].startswith("! danger[old-records-unreadable] topic clicks: holds Click, ")
    (text,) = told('"string"', NOW)
    assert "topic clicks: holds Click, and registered schema 1 of 2 is no record with fields\n" in text
    assert "fix: declare a new topic for the event, and move its producers" in text


def test_times_in_another_unit() -> None:
    millis = {"type": "long", "logicalType": "timestamp-millis"}
    assert told(schema(**{**FIRST, "at": millis}), NOW) == [
        "! danger[time-unit-differs] topic clicks: Click.at is read as microseconds, and is timestamp-millis in "
        "registered schema 1 of 2\n"
        "    why: Avro takes the number as it is, whatever its unit: such a time is read as another moment, and its "
        "record is late or from the future.\n"
        "    fix: let producers write timestamp-micros, under a schema of this event"
    ]
    (plain,) = told(schema(**{**FIRST, "at": "long"}), NOW)
    assert "and is long in registered schema 1 of 2\n" in plain


def test_of_a_refused_schema_nothing_more_is_said() -> None:
    assert told(schema(user_id="string"), level="NONE", registered=False, accepted=False) == []


class Everything(lf.Event):
    text: str
    number: int
    real: float
    flag: bool
    at: datetime
    raw: bytes
    texts: list[str]
    maybe: int | None


ARRAY = {"type": "array", "items": "string"}
ENUM = {"type": "enum", "name": "E", "symbols": ["a"]}
FIXED = {"type": "fixed", "name": "F", "size": 2}
WRITTEN: list[tuple[Any, Any]] = [
    *(("string", "7"), ("bytes", b"7"), ("int", 7), ("long", 7), ("float", 7.0), ("double", 7.0)),
    *(("boolean", True), ("null", None), (ARRAY, ["a"]), (ENUM, "a"), (FIXED, b"ab"), (MICROS, 7)),
    *(({"type": "array", "items": "long"}, [7]), ({"type": "map", "values": "string"}, {"a": "b"})),
    ({"type": "string", "avro.java.string": "String"}, "7"),
    (["null", "long"], 7),
    (["null", "long"], None),
]


@pytest.mark.parametrize("name", list(fields_of(Everything)))
@pytest.mark.parametrize(("written", "value"), WRITTEN, ids=lambda part: json.dumps(part, default=str))
def test_what_is_readable_is_what_the_decoder_reads(name: str, written: Any, value: Any) -> None:
    """Field by field, so that one writer's type meets each kind; the unit of a time is beyond a decoder."""
    described = [{"name": "first", "type": "boolean"}, {"name": name, "type": written}]  # a null alone has no bytes
    text = json.dumps({"type": "record", "name": "Everything", "fields": described})
    buffer = io.BytesIO()
    given = datetime.fromtimestamp(value, UTC) if written is MICROS else value
    schemaless_writer(buffer, parse_schema(json.loads(text)), {"first": True, name: given})
    decoded = avro_decoder(Everything, {name}, lambda _: text)(frame(1) + buffer.getvalue())
    fields = written_fields(text)
    assert fields is not None
    found = misfit(fields_of(Everything)[name], fields)
    if found == "null":
        assert decoded is None or value is not None
    else:
        assert (found in (None, "unit")) == (decoded is not None)


# A changed event ----------------------------------------------------------------------------------------------------


def test_a_changed_default() -> None:
    before = schema(**FIRST, weight=("long", 0))
    assert told(schema(**FIRST), before, registered=False) == [
        "! danger[default-changed] topic clicks: Click.weight had the default 0, and has 1; 1 of 2 registered schemas "
        "lack the field\n"
        "    why: Records without the field are read with the new default from now on, also old ones. activity would "
        "come to other values when they are computed anew, under the same build.\n"
        "    fix: keep the default, and add a field of another name for what is meant now"
    ]


def test_a_default_that_nobody_needs_or_that_is_as_it_was() -> None:
    before = schema(**FIRST, weight=("long", 0))
    assert told(before, registered=False) == []  # every record has the field
    assert told(schema(**FIRST), schema(**FIRST, weight=("long", 1)), registered=False) == []
    assert told(schema(**FIRST), before, NOW) == []  # done long ago
    topic = clicks()
    unread = facts(topic, subjects=subject(schema(**FIRST), before, registered=False))
    assert codes(RULES, unread) == []


def later(**annotations: Any) -> Any:
    """Click, with fields of other types (or without them, for None)."""
    kinds = {"user_id": str, "price": float, "weight": int, "at": datetime, **annotations}
    body = {"__annotations__": {n: k for n, k in kinds.items() if k is not None}, "__module__": __name__}
    return type("Click", (lf.Event,), body)


def counted(topic: Any, event: Any) -> Any:
    class Activity(lf.Features, of=topic, by=event.user_id):
        n = lf.count("1h")

    return Activity


def spent(topic: Any) -> Any:
    class Activity(lf.Features, of=topic, by=Click.user_id):
        spent_1h = lf.sum(Click.price, "1h", where=Click.weight > 1)
        mean_1h = lf.mean(Click.weight, "1h")

    return Activity


def broken(event: Any, **options: Any) -> list[str]:
    build = built(spent(clicks(**options)))
    topic = clicks(event, **options)
    return judged(RULES, facts(topic, counted(topic, event), builds=[build]))


def test_a_field_that_a_running_view_reads_is_gone() -> None:
    build = built(spent(clicks())).id
    assert broken(later(weight=None)) == [
        f"! danger[change-breaks-running-view] view activity: {build} reads weight of topic clicks, which Click no "
        "longer has\n"
        "    why: Until the view runs with the new declaration, records without the field count with its old default, "
        "or are rejected if it had none.\n"
        "    fix: start the views with the new declaration before any producer, or keep the field as it was"
    ]


def test_a_field_that_a_running_view_reads_is_of_another_kind() -> None:
    build = built(spent(clicks())).id
    assert broken(later(price=str)) == [
        f"! danger[change-breaks-running-view] view activity: {build} reads price of topic clicks, as float, and it is "
        "string now\n"
        "    why: Until the view runs with the new declaration, it rejects the records that producers send in the new "
        "shape.\n"
        "    fix: start the views with the new declaration before any producer, or keep the field as it was"
    ]
    (numbers,) = broken(later(weight=datetime))
    assert "it takes the numbers that producers send for what they were before." in numbers
    (text,) = broken(later(weight=datetime), format="json")
    assert "it rejects the records that producers send in the new shape." in text


def test_changes_that_a_running_view_does_not_mind() -> None:
    assert broken(later(price=int)) == []  # it is widened
    assert broken(later(more=str)) == []
    assert broken(later(), format="json") == []
    topic = clicks()
    same = spent(topic)
    assert codes(RULES, facts(topic, same, builds=[built(same)])) == []
    event = later(price=str)
    changed = clicks(event)
    unfollowed = built(spent(clicks()), followed=False)
    assert codes(RULES, facts(changed, counted(changed, event), builds=[unfollowed])) == []


def test_a_view_that_is_no_longer_declared_may_run_all_the_same() -> None:
    event = later(price=None)
    found = codes(RULES, facts(clicks(event), builds=[built(spent(clicks()))]))
    assert found == ["change-breaks-running-view"]


def test_a_table_that_runs() -> None:
    class Item(lf.Event):
        item_id: str
        stock: int

    class Later(lf.Event):
        item_id: str
        stock: str

    def table(event: Any) -> Any:
        class Known(lf.Table, of=lf.Topic("items", event, key=event.item_id, compacted=True), by=event.item_id):
            stock = event.stock

        return Known

    (text,) = judged(RULES, facts(table(Later), builds=[built(table(Item))]))
    assert "reads stock of topic items, as int, and it is string now\n" in text
    assert codes(RULES, facts(table(Item), builds=[built(table(Item))])) == []
