"""JSON records: what the producer writes, and what Spark understands of what anybody may have written."""

from __future__ import annotations

import json
import random
import uuid
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

import leftfold as lf
from leftfold.errors import DeclarationError, LogError
from leftfold.fold.expressions import to_micros
from leftfold.kafka.encode import json_encoder
from leftfold.kafka.observe import observe_cluster
from leftfold.kafka.registry import subject_of
from leftfold.spark.json_decode import json_event
from tests.engine import projects
from tests.engine.conftest import Cluster

AT = datetime(2026, 1, 5, 12, 0, 0, 123456, tzinfo=UTC)
OLD = datetime(1900, 1, 1, tzinfo=timezone(timedelta(minutes=53, seconds=28)))  # as Berlin's once was


class Reading(lf.Event):
    id: str
    count: int
    level: float
    on: bool = True
    raw: bytes = b"\x00'"
    note: str | None = None
    unit: str | None = "it's \\ °C"
    size: int = -(2**63)
    gain: float = 1
    tags: list[str] = ["a'b", ""]  # noqa: RUF012 # pydantic copies it
    marks: list[datetime] = []  # noqa: RUF012 # as above
    spans: list[float] | None = None
    born: datetime = OLD
    at: datetime


NAMES = list(Reading.model_fields)
GOOD: dict[str, Any] = {"id": "a", "count": 1, "level": 0.5, "at": "2026-01-05T12:00:00.123456Z"}


def decoded(spark: Any, *values: bytes | None, only: list[str] = NAMES) -> list[dict[str, Any] | None]:
    """Each value as Spark understands it; None for a struct of nulls."""
    rows = [(n, None if v is None else bytearray(v)) for n, v in enumerate(values)]
    frame = spark.createDataFrame(rows, "n int, value binary").select("n", json_event(Reading, only).alias("event"))
    found = [row.event.asDict() for row in frame.orderBy("n").collect()]
    assert all(list(event) == [n for n in NAMES if n in only] for event in found)
    return [None if all(v is None for v in event.values()) else event for event in found]


def record(**fields: Any) -> bytes:
    return json.dumps({**GOOD, **fields}).encode()


def each(name: str, *values: Any) -> list[bytes]:
    return [record(**{name: value}) for value in values]


def without(name: str) -> bytes:
    return json.dumps({k: v for k, v in GOOD.items() if k != name}).encode()


# Decoding -----------------------------------------------------------------------------------------------------------


def test_types(spark: Any) -> None:
    frame = spark.createDataFrame([(bytearray(b""),)], "value binary").select(json_event(Reading, NAMES).alias("e"))
    types = {f.name: f.dataType.simpleString() for f in frame.schema["e"].dataType.fields}
    assert types == {
        **{"id": "string", "count": "bigint", "level": "double", "on": "boolean", "raw": "binary", "note": "string"},
        **{"unit": "string", "size": "bigint", "gain": "double", "tags": "array<string>", "marks": "array<timestamp>"},
        **{"spans": "array<double>", "born": "timestamp", "at": "timestamp"},
    }


def test_an_absent_field_takes_its_default(spark: Any) -> None:
    (found,) = decoded(spark, record())
    assert found is not None
    assert {k: v for k, v in found.items() if k not in ("at", "born")} == {
        **{"id": "a", "count": 1, "level": 0.5, "on": True, "raw": b"\x00'", "note": None, "unit": "it's \\ °C"},
        **{"size": -(2**63), "gain": 1.0, "tags": ["a'b", ""], "marks": [], "spans": None},
    }
    assert (local(found["at"]), local(found["born"])) == (AT, OLD)


def local(moment: datetime) -> datetime:
    """Spark gives naive times of the machine's zone."""
    return moment.astimezone(UTC)


def test_null_is_a_value_only_where_it_is_declared(spark: Any) -> None:
    optional, other = decoded(spark, record(unit=None, note=None), record(size=None, tags=None, note="x"))
    assert optional is not None
    assert (optional["unit"], optional["note"]) == (None, None)
    assert other is not None
    assert (other["size"], other["tags"], other["note"]) == (-(2**63), ["a'b", ""], "x")


def test_what_the_encoder_writes_is_read_back(spark: Any) -> None:
    chance = random.Random(7)
    zones = [UTC, timezone(timedelta(hours=2)), timezone(timedelta(hours=-9, minutes=-30)), OLD.tzinfo]

    def moment() -> datetime:
        return (AT + timedelta(microseconds=chance.randrange(-(10**16), 10**16))).astimezone(chance.choice(zones))

    def text() -> str:
        return "".join(chance.choice("ab\"'\\/\n\t\x00{}[],:é漢😀\u2028") for _ in range(chance.randrange(12)))

    events = [
        Reading(
            id=text(),
            count=chance.randrange(-(2**63), 2**63),
            level=chance.choice([0.0, -0.0, 5e-324, 1.7976931348623157e308, chance.gauss(0, 1e9), 0.1 + 0.2]),
            on=chance.random() < 0.5,
            raw=chance.randbytes(chance.randrange(9)),
            note=chance.choice([None, text()]),
            unit=chance.choice([None, text()]),
            tags=[text() for _ in range(chance.randrange(3))],
            marks=[moment() for _ in range(chance.randrange(3))],
            spans=chance.choice([None, [], [1.5, -2.0]]),
            at=moment(),
        )
        for _ in range(300)
    ]
    encode = json_encoder(Reading)
    for event, found in zip(events, decoded(spark, *(encode(e.__dict__) for e in events)), strict=True):
        assert found is not None
        times = {**found, "at": local(found["at"]), "born": local(found["born"]), "raw": bytes(found["raw"])}
        assert {**times, "marks": [local(m) for m in found["marks"]]} == event.__dict__


NOT_UNDERSTOOD: list[bytes | None] = [
    *(None, b"", b"  ", b"[]", b"[{}]", b"null", b"true", b"3", b'"x"', b"{}", b"\x00", b"nonsense"),
    *(
        b"\xff\xfe",
        record().replace(b'"a"', b'"\xff"'),
        b"\xef\xbb\xbf" + record(),
        record().decode().encode("utf-16"),
    ),
    *(record()[:-1], record()[:20], record() + b"}", record() + b" x", record() + record(), record() + b"\x00"),
    *(b"[" + record() + b"]", b"[" * 10_000, b"{" * 10_000, b'{"a":' * 10_000, record().replace(b'"', b"'")),
    record()[:-1] + b',"unread":' + b"[" * 10_000 + b"]" * 10_000 + b"}",  # deeper than Jackson goes
    record()[:-1] + b",}",
    b"/* */" + record(),
    *(without("id"), without("count"), without("level"), without("at")),
    *(record(id=None), record(count=None), record(at=None)),
    *each("count", 1.0, 1.5, "1", "", True, [], {}, 2**63, 10**400),
    *(record().replace(b'"count": 1', b'"count": ' + v) for v in (b"1e3", b"01", b"+1", b"0x1", b"1" * 2_000)),
    *each("level", "0.5", "", "NaN", "Infinity", True, [], float("nan"), float("inf"), 10**400),
    *(record().replace(b"0.5", v) for v in (b"1e999", b"-1e999", b".5", b"INF", b"1" * 2_000)),
    *each("on", 1, 0, "true", "", []),
    *each("raw", "%", "AQI", 1, ["AQI="]),
    *each("tags", "a", {}, 1, [None], ["a", None]),
    *each("spans", [None], ["1"], [float("inf")], 1.0),
    *each("marks", [None], ["2026-01-05T12:00:00"], [1]),
    record(spans=[1]).replace(b"[1]", b"[1e999]"),
    record().replace(b'"count": 1', b'"count": "x", "count": 1'),  # either of two that contradict
]


def test_what_cannot_be_understood(spark: Any) -> None:
    """All in one job, each beside a good record: none of them stops it."""
    values = [v for bad in NOT_UNDERSTOOD for v in (bad, record())]
    found = decoded(spark, *values)
    assert [bad for bad, event in zip(NOT_UNDERSTOOD, found[::2], strict=True) if event is not None] == []
    assert None not in found[1::2]


NO_MOMENTS: list[Any] = [
    *("", "now", "2026", "2026-01-05", "12:00:00Z", "2026-01-05T12:00:00", "2026-01-05 12:00:00.5"),
    *("2026-01-05T12:00Z", "2026-01-05T12:00:00 UTC", "2026-01-05T12:00:00 Europe/Berlin", "2026-01-05T12:00:00+2"),
    *("2026-02-30T12:00:00Z", "2026-13-01T12:00:00Z", "2026-01-05T24:00:00Z", "2026-01-05T12:00:60Z"),
    *("2026-01-05T12:00:00+19:00", "2026-01-05T12:00:00.Z", " 2026-01-05T12:00:00Z", "2026-01-05T12:00:00Z\n"),
    *("0000-01-01T00:00:00Z", "0001-01-01T00:00:00+01:00", "9999-12-31T23:59:59-01:00", "+12026-01-05T12:00:00Z"),
    *(1_767_614_400, 1_767_614_400.5, True, {"at": 1}, ["2026-01-05T12:00:00Z"]),
]


def test_what_is_no_moment(spark: Any) -> None:
    for name, among in (("at", lambda at: at), ("marks", lambda at: [GOOD["at"], at])):
        found = decoded(spark, *(record(**{name: among(at)}) for at in NO_MOMENTS))
        assert [at for at, event in zip(NO_MOMENTS, found, strict=True) if event is not None] == []


MOMENTS = [
    ("2026-01-05T12:00:00Z", AT.replace(microsecond=0)),
    ("2026-01-05 12:00:00+00:00", AT.replace(microsecond=0)),
    ("2026-01-05T14:00:00.123456+02:00", AT),
    ("2026-01-05T02:30:00.123456-09:30", AT),
    ("2026-01-05T12:00:00.1Z", AT.replace(microsecond=100_000)),
    ("2026-01-05T12:00:00.123456789Z", AT),  # nanoseconds are cut, as pydantic cuts them
    ("2026-01-05T12:00:00.12345699999999999999999999Z", AT),
    ("0001-01-01T00:00:00Z", datetime(1, 1, 1, tzinfo=UTC)),
    ("9999-12-31T23:59:59.999999Z", datetime.max.replace(tzinfo=UTC)),
]


def test_moments(spark: Any) -> None:
    """As numbers: collecting a timestamp would go through Python's datetime and the machine's zone."""
    from pyspark.sql import functions as F

    rows = [(n, bytearray(record(at=at))) for n, (at, _) in enumerate(MOMENTS)]
    micros = F.unix_micros(json_event(Reading, ["at"])["at"])
    found = spark.createDataFrame(rows, "n int, value binary").select("n", micros.alias("us")).orderBy("n").collect()
    assert [row.us for row in found] == [to_micros(expected) for _, expected in MOMENTS]


def test_what_is_taken_all_the_same(spark: Any) -> None:
    """Extra fields, the last of two, white space, whole floats; and Spark reads other values as text."""
    found = decoded(
        spark,
        record(extra={"deep": [1, {"er": None}]}),
        record().replace(b'"count": 1', b'"count": 1, "count": 2'),
        b" \n" + record() + b"\r\n ",
        record(level=2),
        record(id=5, note={"a": [1]}),
        record()[:-1] + b',"unread":' + b"[" * 900 + b"]" * 900 + b"}",
        record().replace(b'"a"', b'"\\u00e9\\ud83d\\ude00"'),
    )
    assert None not in found
    assert [f["count"] for f in found if f] == [1, 2, 1, 1, 1, 1, 1]
    assert [f["level"] for f in found if f][3] == 2.0
    assert [(f["id"], f["note"]) for f in found if f][4] == ("5", '{"a":[1]}')
    assert [f["id"] for f in found if f][6] == "é😀"


def test_fields_that_are_not_read_are_not_looked_at(spark: Any) -> None:
    assert decoded(spark, record(count="x", level=None), only=["at", "id"])[0] is not None
    assert decoded(spark, b'{"id": "a"}', only=["id"]) == [{"id": "a"}]


def test_no_python_runs_per_record(spark: Any) -> None:
    frame = spark.createDataFrame([(bytearray(record()),)], "value binary").select(json_event(Reading, NAMES))
    assert "Python" not in frame._jdf.queryExecution().optimizedPlan().toString()


# Producing ----------------------------------------------------------------------------------------------------------

STREAMS = """\
from datetime import datetime

import leftfold as lf


class Price(lf.Event):
    item: str
    shop: int
    price: float
    raw: bytes = b""
    note: str | None = None
    at: datetime


prices = lf.Topic("prices", Price, key=(Price.item, Price.shop), time=Price.at, format="json", log_time="producer")
stamped = lf.Topic("stamped", Price, key=Price.item, time=Price.at, format="json", log_time="producer")
latest = lf.Topic("latest", Price, key=(Price.item, Price.shop), format="json", compacted=True)
schemas = lf.Topic("schemas", Price, key=Price.item, time=Price.at, compacted=True)
"""


@pytest.fixture(scope="module")
def app(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> lf.App:
    root = tmp_path_factory.mktemp("json")
    made = projects.make(root, cluster.endpoints, f"j{uuid.uuid4().hex[:8]}", STREAMS)
    projects.apply(made)
    projects.await_true(lambda: applied(made), timeout=240, what="every broker to know the new topics")
    return made


def applied(app: lf.App) -> bool:
    try:
        return app.plan().steps == ()
    except LogError:  # the broker that was asked has not heard of them yet
        return False


def price(**fields: Any) -> dict[str, Any]:
    return {"item": "i:1", "shop": 7, "price": 9.5, "at": AT, **fields}


def messages(app: lf.App, topic: str) -> list[Any]:
    name = app.profile.topic_name(topic)
    consumer = Consumer({"bootstrap.servers": app.kafka.bootstrap, "group.id": "json", "enable.auto.commit": False})
    ends = {p: consumer.get_watermark_offsets(TopicPartition(name, p), timeout=120)[1] for p in range(6)}
    consumer.assign([TopicPartition(name, p, 0) for p in ends])
    found: list[Any] = []
    while len(found) < sum(ends.values()):
        found.append(consumer.poll(240))
    consumer.close()
    return found


def test_apply_makes_the_topics_and_registers_only_avro(app: lf.App) -> None:
    admin, registry = app.log
    names = {n: app.profile.topic_name(n) for n in ("prices", "latest", "schemas")}
    seen = observe_cluster(admin, app.kafka, names.values())
    configs = {n: seen.topics[full].configs for n, full in names.items()}
    assert {n: c["message.timestamp.type"] for n, c in configs.items()} == {
        **{"prices": "CreateTime", "latest": "LogAppendTime", "schemas": "LogAppendTime"}
    }
    assert {n: c["cleanup.policy"] for n, c in configs.items()} == {
        **{"prices": "delete", "latest": "compact", "schemas": "compact"}
    }
    registered = [n for n, full in names.items() if registry.versions(subject_of(full))]
    assert registered == ["schemas"]


def test_records_are_json_objects_with_the_time_they_were_given(app: lf.App) -> None:
    moment = datetime.now(UTC) - timedelta(days=1)
    with app.producer("prices") as producer:
        producer.send(app.catalog.topic("prices").event(**price()), log_time=moment)
        producer.send_dict(price(raw=b"\xff"), log_time=moment)
        producer.send_encoded(producer.key_of(price()), producer.encode(price(note="é")), log_time=moment)
        producer.send_dict(price(price=1))
    sent = messages(app, "prices")
    assert {m.key() for m in sent} == {b"3:i:11:7"}
    written = {
        "item": "i:1",
        "shop": 7,
        "price": 9.5,
        "raw": "",
        "note": None,
        "at": "2026-01-05T12:00:00.123456+00:00",
    }
    assert [json.loads(m.value()) for m in sent] == [
        written,
        {**written, "raw": "/w=="},
        {**written, "note": "é"},
        {**written, "price": 1.0},
    ]
    stamps = [m.timestamp() for m in sent]
    assert stamps[:3] == [(1, int(moment.timestamp() * 1_000))] * 3  # 1: CreateTime
    assert stamps[3][1] > stamps[0][1] + 80_000_000  # now


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"at": datetime(2026, 1, 1)}, "at: no time zone"),
        ({"price": float("nan")}, "price: not finite"),
        ({"colour": "red"}, "there is no field colour"),
    ],
)
def test_what_does_not_fit_is_refused(app: lf.App, fields: dict[str, Any], message: str) -> None:
    with app.producer("prices") as producer:
        with pytest.raises(DeclarationError, match=message) as refused:
            producer.send_dict(price(**fields))
        assert refused.value.code == "record-does-not-fit"
        with pytest.raises(DeclarationError, match="item is missing"):
            producer.send_dict({"shop": 7, "price": 1.0, "at": AT})
        assert producer.sent == 0


def test_a_key_is_deleted(app: lf.App) -> None:
    with app.producer("latest") as producer:
        producer.send_dict(price())
        producer.delete(item="i:1", shop=7)
        for wrong in ({}, {"item": "i:1"}, {"item": "i:1", "shop": "7"}, {"item": "i:1", "shop": True}):
            with pytest.raises(DeclarationError, match="asked to delete") as refused:
                producer.delete(**wrong)
            assert refused.value.code == "wrong-key"
    record, tombstone = messages(app, "latest")
    assert (tombstone.key(), tombstone.partition()) == (record.key(), record.partition())
    assert tombstone.value() is None


def test_only_a_compacted_topic_can_forget(app: lf.App) -> None:
    with app.producer("prices") as producer, pytest.raises(DeclarationError) as refused:
        producer.delete(item="i", shop=1)
    assert refused.value.code == "delete-not-compacted"


def test_log_time_needs_a_topic_that_believes_it(app: lf.App) -> None:
    with app.producer("latest") as producer:
        with pytest.raises(DeclarationError) as refused:
            producer.send_dict(price(), log_time=AT)
        assert refused.value.code == "log-time-not-ours"
    with app.producer("prices") as producer:
        for moment in (datetime(2026, 1, 1), datetime(1970, 1, 1, tzinfo=UTC)):
            with pytest.raises(DeclarationError, match="log_time") as misfit:
                producer.send_dict(price(), log_time=moment)
            assert misfit.value.code == "record-does-not-fit"
        assert producer.sent == 0


def test_a_full_buffer_keeps_the_time_that_was_given(app: lf.App, monkeypatch: pytest.MonkeyPatch) -> None:
    from leftfold.kafka import producer as module

    monkeypatch.setitem(module.SETTINGS, "queue.buffering.max.messages", 100)
    begun = datetime.now(UTC)
    hours = [begun - timedelta(hours=n % 50 + 1) if n % 2 else None for n in range(2_000)]
    with app.producer("stamped") as producer:
        for number, log_time in enumerate(hours):
            producer.send_dict(price(shop=number), log_time=log_time)
    stamps = {json.loads(m.value())["shop"]: m.timestamp()[1] / 1_000 for m in messages(app, "stamped")}
    assert all(stamps[n] >= begun.timestamp() - 1 for n, given in enumerate(hours) if given is None)
    given = {n: moment.timestamp() for n, moment in enumerate(hours) if moment is not None}
    assert {n: stamps[n] for n in given} == pytest.approx(given, abs=0.001)


def test_json_needs_no_apply_but_avro_does(cluster: Cluster, tmp_path: Path) -> None:
    early = projects.make(tmp_path / "early", cluster.endpoints, f"e{uuid.uuid4().hex[:8]}", STREAMS)
    assert early.producer("prices").encode(price()).startswith(b'{"item":')
    with pytest.raises(LogError) as refused:
        early.producer("schemas")
    assert refused.value.code == "schema-not-registered"
