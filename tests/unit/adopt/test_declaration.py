from __future__ import annotations

import ast

import pytest

from leftfold.adopt.declaration import class_name, variable_name
from leftfold.adopt.fields import Found
from tests.unit.adopt.topics import adopted, avro_record, avro_value, event_of, loaded, objects, record, topic_of


@pytest.mark.parametrize(
    ("record_name", "topic", "name"),
    [
        ("Order", "t", "Order"),
        ("order_v2", "t", "order_v2"),
        ("An order, placed", "t", "AnOrderPlaced"),
        (None, "shop.orders-v2", "ShopOrdersV2"),
        (None, "2nd", "Event2nd"),
        (None, "---", "Event"),
        ("None", "t", "EventNone"),
        ("datetime", "t", "Datetime"),
        ("Field", "t", "EventField"),
    ],
)
def test_class_names(record_name: str | None, topic: str, name: str) -> None:
    assert class_name(record_name, topic) == name


@pytest.mark.parametrize(
    ("topic", "name"),
    [
        ("shop.Orders-v2", "shop_orders_v2"),
        ("2nd", "topic_2nd"),
        ("___", "topic"),
        ("class", "class_topic"),
        ("lf", "lf_topic"),
        ("order", "order_topic"),
    ],
)
def test_names_of_topics(topic: str, name: str) -> None:
    assert variable_name(topic, "order") == name


def test_a_whole_declaration() -> None:
    """Every record is seen as this text says it, so it stands here as a person reads it."""
    micros = {"type": "long", "logicalType": "timestamp-micros"}
    written = avro_record(
        {"name": "id", "type": "string", "doc": "Its number\nin the shop."},
        ("note", ["null", "string"]),
        ("colour", {"type": "enum", "name": "Colour", "symbols": ["RED"]}),
        ("at", micros),
        doc="A person ordered.",
    )
    at = 1_790_000_000_000_000
    plain = avro_record(*(f if f["name"] != "at" else ("at", "long") for f in written["fields"]))
    values = [avro_value(plain, 1, {"id": f"o{n}", "note": None, "colour": "RED", "at": at}) for n in range(2)]
    records = [record(v, key=f"o{n}".encode(), log_us=at + 1_500_000) for n, v in enumerate(values)]
    made = adopted(written, records=records, message_timestamp_type="CreateTime", name="shop.orders")
    assert (
        made.text
        == '''\
"""A topic of another owner. Written by `leftfold adopt`, from here on yours to edit."""

# As it was found:
#   6 partitions, 3 replicas, 600 offsets
#   cleanup.policy=delete, retention.ms=604800000, message.timestamp.type=CreateTime
#   Avro, subject shop.orders-value, 1 version, newest id 1; 2 records sampled

from datetime import datetime

import leftfold as lf


# A person ordered.
class Order(lf.Event):
    # Its number in the shop.
    id: str
    note: str | None = None
    # left out: colour (enum Colour of RED), because Avro reads an enum as no other type, not even as text: ask its
    #   writer to write a string
    at: datetime


shop_orders = lf.Topic(
    "shop.orders",
    Order,
    external=True,
    key=Order.id,  # equals the record's key in all 2 sampled records, 2 keys
    time=Order.at,  # the only datetime that is never missing
    partitions=6,
    retention="7d",
    lateness="10m",  # the default; sampled records reached the log 1.5 s to 1.5 s after at
    log_time="producer",  # message.timestamp.type=CreateTime: a producer's clock decides what is late
)
'''
    )
    topic = topic_of(made)
    assert (topic.external, topic.format, topic.log_time) == (True, "avro", "producer")
    assert topic.key[0].name == "id"


def test_a_table_is_offered() -> None:
    rows = [{"id": n, "name": "x", "found": True} for n in range(2)]
    made = adopted(records=objects(*rows, keys=[b"0", b"1"]), cleanup_policy="compact")
    start = made.text.index("# class")
    names = loaded(made.text[:start] + made.text[start:].replace("# ", ""))
    assert names["OrdersRows"].__leftfold_names__ == ("name",)  # `found` is a word of a row itself
    assert topic_of(made).time is None


def test_hostile_text_stays_text() -> None:
    """What a cluster says is quoted or a comment, whatever it holds."""
    evil = 'x\r\n\x0c\u2028import os\n"""\\'
    default = "'\"\\\n\ud800"
    schema = avro_record({"name": "id", "type": "string", "doc": evil, "default": default}, doc=evil)
    made = adopted(schema)
    assert made.text.encode()
    assert event_of(made).model_fields["id"].default == default
    tree = ast.parse(made.text)
    imported = {
        getattr(n, "module", None) or n.names[0].name for n in tree.body if isinstance(n, ast.Import | ast.ImportFrom)
    }
    assert imported == {"leftfold", "leftfold.adopt.undecided"}


def test_lines_stay_short() -> None:
    schema = avro_record(
        {"name": "id", "type": "string", "doc": "long " * 100}, *((f"field_{n}", "long") for n in range(40))
    )
    assert max(len(line) for line in adopted(schema, name="t" * 60).text.split("\n")) <= 120


def test_rules_and_lists() -> None:
    schema = {
        "title": "Order placed",
        "properties": {
            "id": {"type": "string", "maxLength": 9},
            "n": {"type": "integer", "minimum": 1},
            "tags": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["id"],
    }
    made = adopted(schema, records=objects({"id": "a"}))
    event = event_of(made)
    assert made.event == "OrderPlaced"
    assert "id: str = Field(max_length=9)" in made.text
    assert "n: int | None = Field(default=None, ge=1)" in made.text
    assert "tags: list[str] | None = None" in made.text
    assert event.model_validate({"id": "a"}).model_dump() == {"id": "a", "n": None, "tags": None}
    assert Found("n", "int", optional=True, rules=(("ge", 1),)) in made.fields
