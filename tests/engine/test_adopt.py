"""Topics that others made with plain Kafka tools, adopted: the file loads, and its event reads their records."""

from __future__ import annotations

import io
import json
import re
import subprocess
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from fastavro import parse_schema, schemaless_writer

import leftfold
from leftfold.declare.event import fields_of
from leftfold.declare.framing import frame
from leftfold.declare.topic import Topic
from leftfold.fold.expressions import to_micros
from leftfold.kafka.decode import avro_decoder, json_decoder
from leftfold.kafka.log_reader import scan
from tests.engine import projects
from tests.engine.conftest import Cluster

MICROS = {"type": "long", "logicalType": "timestamp-micros"}
MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
ZIP = {"name": "zip", "type": "string"}
OLD: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "namespace": "com.shop",
    "doc": "A person ordered.",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "amount", "type": "float", "doc": "In euros."},
        {"name": "count", "type": "int"},
        {"name": "at", "type": MICROS},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}},
        {"name": "address", "type": {"type": "record", "name": "Address", "fields": [ZIP]}},
    ],
}
NEW = {
    **OLD,
    "fields": [
        *OLD["fields"],
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "channel", "type": "string", "default": "web"},
        {"name": "sent_ms", "type": ["null", MILLIS], "default": None},
        {"name": "tags", "type": {"type": "array", "items": "string"}, "default": []},
    ],
}
CREATE = 1_790_000_000_000_000


def order(number: int, *, new: bool) -> dict[str, Any]:
    base = {"id": f"o{number}", "amount": number / 4, "count": number, "at": CREATE + number}
    nested = {"state": "PAID", "address": {"zip": "10115"}}
    more = {"note": None if number % 2 else "é", "channel": "app", "sent_ms": 5, "tags": ["a", "b"]} if new else {}
    return {**base, **nested, **more}


def bare(schema: Any) -> Any:
    if isinstance(schema, dict):
        return {k: bare(v) if k in ("type", "items", "fields") else v for k, v in schema.items() if k != "logicalType"}
    return [bare(part) for part in schema] if isinstance(schema, list) else schema


def framed(schema: Any, schema_id: int, fields: Mapping[str, Any]) -> bytes:
    buffer = io.BytesIO()
    buffer.write(frame(schema_id))
    schemaless_writer(buffer, parse_schema(bare(schema)), dict(fields))
    return buffer.getvalue()


class Others:
    """Somebody else's topics, made without Leftfold's declarations."""

    def __init__(self, app: leftfold.App, root: Path) -> None:
        self.app, self.root = app, root
        self._registry = SchemaRegistryClient({"url": app.registry.url})

    def topic(self, name: str, **configs: str) -> str:
        name = f"{name}-{uuid.uuid4().hex[:8]}"
        given = {k.replace("_", "."): v for k, v in configs.items()}
        self.app.log[0].create(name, partitions=3, replication=3, configs=given)
        return name

    def register(self, topic: str, schema: Any, kind: str = "AVRO") -> int:
        return int(self._registry.register_schema(f"{topic}-value", Schema(json.dumps(schema), kind)))

    def send(self, topic: str, records: Sequence[tuple[bytes | None, bytes | None]]) -> None:
        producer = Producer({"bootstrap.servers": self.app.kafka.bootstrap, "partitioner": "murmur2_random"})
        for key, value in records:
            producer.produce(topic, value, key)
        assert producer.flush(240) == 0

    def leftfold(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [projects.LEFTFOLD, *arguments]
        return subprocess.run(command, cwd=self.root, capture_output=True, text=True, timeout=120, check=False)

    def adopt(self, topic: str) -> dict[str, Any]:
        """By the command line, into a file that leftfold.toml then lists alone."""
        file = f"adopted_{topic.replace('-', '_')}.py"
        done = self.leftfold("adopt", topic, "--out", file, "--json")
        assert done.returncode == 0, done.stdout + done.stderr
        toml = self.root / "leftfold.toml"
        toml.write_text(re.sub(r"declarations = .*", f'declarations = ["{file}"]', toml.read_text()))
        read = json.loads(done.stdout)
        assert isinstance(read, dict)
        return read

    def checked(self, topic: str) -> Topic[Any]:
        """After `check`, and after a plan that finds nothing wrong with it."""
        checked = self.leftfold("check", "--json")
        assert checked.returncode == 0, checked.stdout
        assert json.loads(checked.stdout)["topics"] == [topic]
        app = leftfold.open(self.root)
        assert [str(problem) for problem in app.plan().problems] == []
        return app.catalog.topic(topic)

    def values(self, topic: str) -> list[bytes]:
        return [r.value for r in scan(self.app.kafka, topic, range(3)) if r.value is not None]


@pytest.fixture
def others(cluster: Cluster, tmp_path: Path) -> Others:
    app = projects.make(tmp_path, cluster.endpoints, f"a{uuid.uuid4().hex[:8]}", "import leftfold as lf\n")
    return Others(app, tmp_path)


def by(field: str, records: Sequence[Mapping[str, Any] | None]) -> list[Any]:
    return sorted((r for r in records if r is not None), key=lambda r: str(r[field]))


def orders_of_avro(others: Others) -> tuple[str, list[dict[str, Any]]]:
    topic = others.topic("orders", **{"retention_ms": "-1", "message_timestamp_type": "LogAppendTime"})
    old, new = (others.register(topic, schema) for schema in (OLD, NEW))
    written = [order(n, new=n >= 15) for n in range(30)]
    sent = [framed(NEW if n >= 15 else OLD, new if n >= 15 else old, fields) for n, fields in enumerate(written)]
    others.send(topic, [(fields["id"].encode(), value) for fields, value in zip(written, sent, strict=True)])
    return topic, written


def expected(written: Sequence[Mapping[str, Any]], names: Sequence[str]) -> list[dict[str, Any]]:
    """As declared: what a version lacks has the schema's default."""
    absent: dict[str, Any] = {"note": None, "channel": "web", "sent_ms": None, "tags": []}
    return by("id", [{name: {**absent, **fields}[name] for name in names} for fields in written])


READ = ["id", "amount", "count", "at", "note", "channel", "sent_ms", "tags"]


def test_a_topic_of_avro(others: Others) -> None:
    topic, written = orders_of_avro(others)
    groups = _groups(others)
    told = others.adopt(topic)
    assert (told["event"], told["from"], told["sampled"], told["undecided"]) == ("Order", "avro", 30, [])
    assert [field["name"] for field in told["fields"]] == READ
    assert [field["name"] for field in told["left_out"]] == ["state", "address"]
    declared = others.checked(topic)
    assert (declared.key[0].name, declared.format, declared.log_time) == ("id", "avro", "broker")
    assert (declared.partitions, declared.external) == (3, True)
    assert 'retention="36500d"' in told["text"]
    decode = avro_decoder(declared.event, fields_of(declared.event), others.app.log[1].schema)
    assert by("id", [decode(value) for value in others.values(topic)]) == expected(written, READ)
    assert _groups(others) == groups  # nothing was joined or committed


def _groups(others: Others) -> set[str]:
    admin = others.app.log[0]
    return {group.group_id for group in admin.answer(admin.client.list_consumer_groups()).valid}


def test_spark_reads_what_was_adopted(others: Others, spark: Any) -> None:
    """Spark's reader is Java's, and its rules are what decides whether a view sees the records."""
    from pyspark.sql import functions as F

    from leftfold.spark.source import Source, decoded

    topic, written = orders_of_avro(others)
    others.adopt(topic)
    event = others.checked(topic).event
    versions = others.app.log[1].versions(f"{topic}-value")
    source = Source((topic,), (3,), others.app.kafka, event, frozenset(READ), "avro", versions)
    rows = [(bytearray(value),) for value in others.values(topic)]
    frame_ = spark.createDataFrame(rows, "value binary").select(decoded(source).alias("event")).select("event.*")
    found = frame_.withColumn("at", F.unix_micros("at")).collect()
    assert by("id", [row.asDict() for row in found]) == expected(written, READ)


SCHEMA = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "title": "Click",
    "type": "object",
    "properties": {
        "user": {"type": "string", "minLength": 1},
        "price": {"type": "number", "minimum": 0},
        "at": {"type": "string", "format": "date-time"},
        "place": {"type": "object"},
    },
    "required": ["user", "at"],
}


def click(number: int) -> dict[str, Any]:
    price = {"price": number / 2} if number % 3 else {}
    return {"user": f"u{number % 7}", "at": f"2026-01-05T12:00:{number:02}Z", "place": {"x": 1}, **price}


def read_json(others: Others, topic: str) -> list[Any]:
    event = others.checked(topic).event
    decode = json_decoder(event, fields_of(event))
    return [decode(value) for value in others.values(topic)]


def moment(text: str) -> int:
    from datetime import datetime

    return to_micros(datetime.fromisoformat(text))


def test_a_topic_with_a_json_schema(others: Others) -> None:
    topic = others.topic("clicks", cleanup_policy="delete", retention_ms="3600000")
    others.register(topic, SCHEMA, "JSON")
    clicks = [click(n) for n in range(30)]
    others.send(topic, [(c["user"].encode(), json.dumps(c).encode()) for c in clicks])
    told = others.adopt(topic)
    assert (told["event"], told["from"], told["undecided"]) == ("Click", "json-schema", [])
    assert [field["name"] for field in told["left_out"]] == ["place"]
    wanted = [{"user": c["user"], "price": c.get("price"), "at": moment(c["at"])} for c in clicks]
    assert by("at", read_json(others, topic)) == by("at", wanted)
    declared = others.checked(topic)
    assert (declared.key[0].name, declared.log_time) == ("user", "producer")


def test_a_compacted_topic_of_plain_json(others: Others) -> None:
    topic = others.topic("items", cleanup_policy="compact", message_timestamp_type="LogAppendTime")
    items = [{"sku": n, "name": f"n{n}", "tags": ["a"], "old": None if n else 1} for n in range(20)]
    sent: list[tuple[bytes | None, bytes | None]] = [(str(i["sku"]).encode(), json.dumps(i).encode()) for i in items]
    others.send(topic, [*sent, (b"3", None)])
    told = others.adopt(topic)
    assert (told["from"], told["undecided"], told["left_out"]) == ("sample", [], [])
    assert by("sku", read_json(others, topic)) == by("sku", items)
    declared = others.checked(topic)
    assert (declared.compacted, declared.time, declared.key[0].name) == (True, None, "sku")


def test_records_behind_a_registrys_bytes_are_refused(others: Others) -> None:
    """A declaration would load, and every record would be rejected."""
    topic = others.topic("framed")
    number = others.register(topic, SCHEMA, "JSON")
    others.send(topic, [(b"u", frame(number) + json.dumps(click(1)).encode())])
    done = others.leftfold("adopt", topic, "--out", "framed.py", "--json")
    assert done.returncode == 1
    assert json.loads(done.stdout)["error"]["code"] == "cannot-adopt"
    assert not (others.root / "framed.py").exists()


def test_debeziums_envelope_does_not_load(others: Others) -> None:
    row = {"type": "record", "name": "Value", "fields": [{"name": "id", "type": "int"}]}
    source = {"type": "record", "name": "Source", "fields": [{"name": "table", "type": "string"}]}
    types: list[tuple[str, Any]] = [("before", ["null", row]), ("after", ["null", "Value"]), ("source", source)]
    types += [("op", "string"), ("ts_ms", ["null", "long"])]
    envelope = {"type": "record", "name": "Envelope", "fields": [{"name": n, "type": t} for n, t in types]}
    topic = others.topic("customers")
    number = others.register(topic, envelope)
    change = {"before": None, "after": {"id": 7}, "source": {"table": "customers"}, "op": "c", "ts_ms": 1}
    others.send(topic, [(b'{"id":7}', framed(envelope, number, change)), (b'{"id":7}', None)])
    told = others.adopt(topic)
    assert (told["debezium"], [field["name"] for field in told["fields"]]) == (True, ["id"])
    checked = others.leftfold("check")
    assert checked.returncode == 1
    assert "error[undecided]" in checked.stderr
    assert "ExtractNewRecordState" in told["text"]


def test_a_topic_that_is_not_there(others: Others) -> None:
    done = others.leftfold("adopt", f"nothing-{uuid.uuid4().hex[:8]}", "--json")
    assert json.loads(done.stdout)["error"]["code"] == "topic-missing"
