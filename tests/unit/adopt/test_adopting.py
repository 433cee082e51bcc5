from __future__ import annotations

from typing import Any

import pytest

from leftfold.adopt.adopting import adopt
from leftfold.adopt.fields import LeftOut
from leftfold.errors import DeclarationError, LogError
from tests.unit.adopt.topics import (
    adopted,
    avro_record,
    avro_value,
    event_of,
    loaded,
    looked,
    objects,
    record,
    topic_of,
)

AT = "2026-09-21T14:13:20Z"  # the log time of sampled records


def orders(*at: str) -> list[dict[str, Any]]:
    return [{"id": n, "at": moment} for n, moment in enumerate(at)]


def test_a_topic_of_json() -> None:
    made = adopted(records=objects(*orders(AT, AT), keys=[b"0", b"1"]))
    topic = topic_of(made)
    assert (topic.name, topic.format, topic.external, topic.partitions) == ("orders", "json", True, 6)
    assert topic.time is not None
    assert (topic.key[0].name, topic.time.name) == ("id", "at")
    assert (made.undecided, made.left_out, made.sampled) == ((), (), 2)


def test_what_is_undecided_does_not_load() -> None:
    made = adopted(records=objects({"id": 1, "ratio": 0.5}))
    assert [u.what for u in made.undecided] == [
        "the key of orders is not decided",
        "the event time of orders is not decided",
    ]
    refused = loaded(made.text)["refused"]
    assert isinstance(refused, DeclarationError)
    assert (refused.code, refused.what) == ("undecided", made.undecided[0].what)
    lines = made.text.split("\n")
    assert refused.source is not None
    assert "undecided(" in lines[refused.source.line - 1]


def test_once_decided_it_loads() -> None:
    made = adopted(records=objects(*orders(AT, AT)))
    start, end = made.text.index("undecided(\n"), made.text.index("    ),\n")
    text = made.text[:start] + f"{made.event}.id" + made.text[end:].removeprefix("    )")
    assert "refused" not in loaded(text)


def test_a_key_that_may_be_null_is_required() -> None:
    schema = avro_record(("id", ["null", "string"]))
    records = [record(avro_value(schema, 1, {"id": f"o{n}"}), key=f"o{n}".encode()) for n in range(3)]
    made = adopted(schema, records=records, cleanup_policy="compact")
    assert topic_of(made).key[0].name == "id"
    assert "a record without it is rejected" in made.text


def test_how_late_the_sample_is() -> None:
    late = adopted(records=objects(*orders(AT, "2026-09-21T13:13:20Z"), keys=[b"0", b"1"]))
    assert "reached the log 0.0 s to 3,600.0 s after at: 1 of 2 late" in late.text


def test_more_partitions_than_can_be_said() -> None:
    made = adopted(records=objects(*orders(AT, AT), keys=[b"0", b"1"]), partitions=4_001)
    assert "partitions=" not in made.text
    assert topic_of(made)


def test_replicas_that_are_not_three() -> None:
    made = adopted(records=objects(*orders(AT, AT), keys=[b"0", b"1"]), replicas=1)
    assert topic_of(made).replication == 1


@pytest.mark.parametrize("name", ["_schemas", ".hidden", "t" * 201])
def test_a_name_that_cannot_be_declared(name: str) -> None:
    with pytest.raises(LogError) as refused:
        adopt(looked(avro_record(("id", "string")), name=name))
    assert refused.value.code == "cannot-adopt"
    assert "up to 200 characters" in refused.value.why


def test_no_field_is_left() -> None:
    with pytest.raises(LogError, match="cannot be declared") as refused:
        adopted(records=objects({"a": {"b": 1}}))
    assert refused.value.why == "none of its fields can be declared"


def test_what_is_left_out_stands_in_the_text() -> None:
    made = adopted(records=objects({"id": 1, "class": "x", "deep": {"y": 1}}))
    assert [f.name for f in made.left_out] == ["class", "deep"]
    assert all(isinstance(f, LeftOut) and f"left out: {f.name} " in made.text for f in made.left_out)
    assert set(event_of(made).model_fields) == {"id"}
