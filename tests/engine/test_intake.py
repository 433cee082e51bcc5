"""The intake on real engines: a record that is not accepted is kept once, with position and reason, and re-driven."""

from __future__ import annotations

import json
import random
import struct
import subprocess
import uuid
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.errors import StreamingQueryException

import leftfold
from leftfold.declare.event import fields_of
from leftfold.declare.features import FUTURE_TOLERANCE, nameless
from leftfold.fold.definition import Origin
from leftfold.fold.expressions import to_micros
from leftfold.kafka.judge import RecordJudge
from leftfold.kafka.rejects import RecordPosition
from leftfold.spark.accept import judged
from leftfold.spark.history.redriven import redriven, with_redriven
from leftfold.spark.sinks.intake import IntakeTopics, intake_stream, refused, write_intake
from leftfold.spark.source import Source, read_range, records_of, unknown_schema_id
from tests.engine import projects
from tests.engine.conftest import Cluster

STREAMS = """\
from datetime import datetime

import leftfold as lf
from pydantic import Field


class Payment(lf.Event):
    id: int
    account: str
    amount: float = Field(ge=0)
    note: str | None = Field(default=None, max_length=5)
    at: datetime


class Price(lf.Event):
    item: str
    price: float = Field(gt=0)


payments = lf.Topic("payments", Payment, key=Payment.account, time=Payment.at, partitions=3, lateness="10m")
texts = lf.Topic("texts", Payment, key=Payment.account, time=Payment.at, format="json", partitions=1)
prices = lf.Topic("prices", Price, key=Price.item, compacted=True, partitions=1)
"""
# A length prefix as Avro writes it (zigzag varint) that promises far more bytes than there are: 2^31 and 2^60.
HUGE_LENGTHS = (b"\x80\x80\x80\x80\x10", b"\x80\x80\x80\x80\x80\x80\x80\x80\x20")
NOT_GIVEN_OUT = 987_654_321
NOW = datetime.now(UTC)

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def app(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> leftfold.App:
    made = projects.make(tmp_path_factory.mktemp("intake"), cluster.endpoints, f"i{uuid.uuid4().hex[:8]}", STREAMS)
    projects.apply(made)
    return made


def source_of(app: leftfold.App, name: str, rejected: frozenset[int] = frozenset()) -> Source:
    topic = app.catalog.topic(name)
    physical = app.profile.topic_name(name)
    return Source(
        topics=(physical,),
        partitions=(topic.partitions,),
        kafka=app.kafka,
        event=topic.event,
        fields=frozenset(fields_of(topic.event)),
        format=topic.format,
        writer_schemas=app.log[1].versions(f"{physical}-value"),
        rejected_ids=rejected,
    )


def names_of(app: leftfold.App, topic: str) -> IntakeTopics:
    name = app.profile.topic_name
    late = None if app.catalog.topic(topic).compacted else name(f"{topic}.late")
    return IntakeTopics(rejects=name(f"{topic}.rejects"), late=late)


def take_in(app: leftfold.App, spark: Any, topic: str, checkpoint: Path) -> None:
    """What a supervisor does, and each batch twice: as after a crash before the commit."""
    rejected: frozenset[int] = frozenset()

    def twice(batch: Any, _: int) -> None:
        write_intake(batch, app.kafka)
        write_intake(batch, app.kafka)

    while True:
        rows = intake_stream(spark, source_of(app, topic, rejected), app.catalog.topic(topic), names_of(app, topic))
        query = (
            rows.writeStream.foreachBatch(twice)
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        with suppress(StreamingQueryException):  # looked at below
            query.awaitTermination()
        failure = query.exception()
        if failure is None:
            return
        unknown = unknown_schema_id(str(failure))
        assert unknown is not None, failure
        assert app.log[1].schema(unknown) is None
        rejected |= {unknown}


def leftfold_verb(app: leftfold.App, *arguments: str, code: int = 0) -> Any:
    done = subprocess.run(
        [projects.LEFTFOLD, *arguments, "--json"],
        cwd=app.root,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return json.loads(done.stdout)


def payment(**changes: Any) -> dict[str, Any]:
    return {"id": 1, "account": "a1", "amount": 10.0, "note": None, "at": datetime.now(UTC), **changes}


def avro_body(
    account: bytes = b"\x04a1", amount: float = 1.0, note: bytes = b"\x00", at_us: int | None = None
) -> bytes:
    """id 1, and the rest as given, raw."""
    return b"\x02" + account + struct.pack("<d", amount) + note + varint(at_us or to_micros(datetime.now(UTC)))


def varint(number: int) -> bytes:
    rest = (number << 1) ^ (number >> 63)
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*out, rest])


def bad_values(framed: bytes) -> dict[bytes | None, str]:
    schema_id = int.from_bytes(framed[1:])
    undecodable = f"undecodable under schema id {schema_id}"
    return {
        None: "no value",
        b"": "too short or not framed",
        b"\x00": "too short or not framed",
        b"not avro at all": "too short or not framed",
        framed: "too short or not framed",
        framed + b"\x02" + b"\x04a1": undecodable,
        **{framed + b"\x02" + length: undecodable for length in HUGE_LENGTHS},
        framed + avro_body(account=b"\x04\xff\xfe"): "account is not UTF-8",
        framed + avro_body(note=b"\x02\x02\xff"): "note is not UTF-8",
        framed + avro_body(amount=float("nan")): "amount is not a finite number",
        framed + avro_body(amount=float("-inf")): "amount is not a finite number",
        framed + avro_body(amount=-1.0): "breaks the rule amount >= 0.0",
        framed + avro_body(note=b"\x02\x0clonger"): "breaks the rule length of note <= 5",
        struct.pack(">bI", 0, NOT_GIVEN_OUT) + b"\x02\x04a1": f"schema id {NOT_GIVEN_OUT} is not in the registry",
    }


def produced(app: leftfold.App, topic: str, values: list[bytes | None]) -> list[str]:
    """The positions that they got, in their order."""
    positions: dict[int, str] = {}

    def on_delivery(number: int) -> Any:
        return lambda _, message: positions.update({number: f"{message.partition()}/{message.offset()}"})

    client = Producer({"bootstrap.servers": app.kafka.bootstrap, "acks": "all"})
    for number, value in enumerate(values):
        client.produce(
            app.profile.topic_name(topic),
            value=value,
            key=b"a1",
            partition=number % app.catalog.topic(topic).partitions,
            on_delivery=on_delivery(number),
        )
    assert client.flush(240) == 0
    return [positions[n] for n in range(len(values))]


def accepted_ids(records: Any, topic: Any) -> set[int]:
    fields = fields_of(topic.event).values()
    seen = judged(
        records,
        origins=(Origin(topic.name, topic.lateness, topic.log_time),),
        time=topic.time.name,
        future=FUTURE_TOLERANCE,
        required=[f.name for f in fields if not f.optional],
        kinds={f.name: f.kind for f in fields if not f.repeated},
        rules=[nameless(rule) for f in fields for rule in f.rules],
    )
    return {row.id for row in seen.where("outcome = 'accepted'").select("event.id").collect()}


def test_from_a_bad_record_to_its_correction(app: leftfold.App, spark: Any, tmp_path: Path) -> None:
    topic = app.profile.topic_name("payments")
    (schema_id,) = app.log[1].versions(f"{topic}-value")
    bad = bad_values(struct.pack(">bI", 0, schema_id))
    with app.producer("payments") as producer:
        good = [producer.encode(payment(id=n)) for n in range(100, 130)]
        late = producer.encode(payment(id=2, at=datetime.now(UTC) - timedelta(minutes=15)))
        future = producer.encode(payment(id=3, at=datetime.now(UTC) + timedelta(minutes=15)))
    values = [*good[:15], *bad, late, *good[15:], future]
    places = dict(zip(values, produced(app, "payments", values), strict=True))

    take_in(app, spark, "payments", tmp_path / "checkpoint")

    # Each once, at its position, with its reason.
    listed = leftfold_verb(app, "rejects", "list", "payments", "--limit", "100")
    assert listed["total"] == len(bad) + 1
    found = {r["position"]: r for r in listed["records"]}
    expected = {places[value]: reason for value, reason in bad.items()}
    assert {p: r["reason"] for p, r in found.items() if r["outcome"] == "rejected"} == expected
    assert {r["state"] for r in found.values()} == {"open"}
    assert found[places[future]]["outcome"] == "future"
    assert found[places[future]]["reason"] in {f"from the future by {n} s" for n in range(870, 901)}
    assert listed["counts"]["too short or not framed"] == 4
    (only,) = leftfold_verb(app, "rejects", "list", "payments", "--late")["records"]
    assert (only["position"], only["outcome"]) == (places[late], "late")
    assert only["reason"] in {f"late by {n} s" for n in range(900, 931)}

    # Everything of one of them.
    shown = leftfold_verb(app, "rejects", "show", "payments", found[next(iter(found))]["position"])
    assert shown["key"] == "a1"
    short = next(v for v in bad if v is not None and v.endswith(b"\x02\x04a1") and len(v) == 9 and v[4] != 0xB1)
    shown = leftfold_verb(app, "rejects", "show", "payments", places[short])
    assert (shown["value_hex"], shown["decoded"]) == (short.hex(), {"id": 1, "account": "a1"})

    # What is still bad is not sent.
    ends = app.log[0].end_offsets(topic, 3)
    refused_again = leftfold_verb(app, "rejects", "redrive", "payments", "--all")
    assert (refused_again["sent"], len(refused_again["refused"])) == ([], len(bad) + 2)
    assert {r["position"]: r["reason"] for r in refused_again["refused"]}.items() >= expected.items()
    leftfold_verb(app, "rejects", "redrive", "payments", places[late], code=1)
    unknown = leftfold_verb(app, "rejects", "redrive", "payments", places[good[0]], code=1)
    assert unknown["error"]["code"] == "unknown-position"

    # Corrections are, once, by the event's rules and the original's log time.
    corrections = tmp_path / "corrections.jsonl"
    position = {p: n for n, p in enumerate(expected)}

    def write(**changes: Any) -> None:
        events = [(p, {**payment(id=n, **changes)}) for p, n in position.items()]
        lines = [{"position": p, "event": {**e, "at": e["at"].isoformat()}} for p, e in events]
        corrections.write_text("\n".join(json.dumps(line) for line in lines))

    logged = datetime.fromisoformat(found[next(iter(expected))]["log_time"])
    write(at=logged - timedelta(minutes=11))
    assert leftfold_verb(app, "rejects", "redrive", "payments", "--file", str(corrections), code=1)["sent"] == []
    write(at=logged, amount=-1.0)
    assert leftfold_verb(app, "rejects", "redrive", "payments", "--file", str(corrections), code=1)["sent"] == []
    write(at=logged, account="a2")
    sent = leftfold_verb(app, "rejects", "redrive", "payments", "--file", str(corrections))
    assert sorted(sent["sent"]) == sorted(expected)
    again = leftfold_verb(app, "rejects", "redrive", "payments", "--file", str(corrections))
    assert (again["sent"], sorted(again["already"])) == ([], sorted(expected))
    assert leftfold_verb(app, "rejects", "list", "payments")["total"] == 1  # the one from the future
    states = [r["state"] for r in leftfold_verb(app, "rejects", "list", "payments", "--all")["records"]]
    assert sorted(states) == ["open", *["re-driven"] * len(expected)]

    # The source topic is as it was; the batch paths see it as if the records had been good.
    assert app.log[0].end_offsets(topic, 3) == ends
    declared = app.catalog.topic("payments")
    source = source_of(app, "payments", frozenset({NOT_GIVEN_OUT}))
    log = read_range(spark, source, {topic: {}}, {topic: ends})
    assert accepted_ids(log, declared) == set(range(100, 130))
    redrive = app.profile.topic_name("payments.redrive")
    redrive_ends = app.log[0].end_offsets(redrive, 1)
    corrected = redriven(spark, source, redrive, redrive_ends)
    for at_most in (sum(redrive_ends.values()), 10**9):  # broadcast, and not
        whole = with_redriven(log, corrected, at_most=at_most)
        assert whole.columns == log.columns
        assert whole.count() == log.count() == len(values)
        assert accepted_ids(whole, declared) == set(range(100, 130)) | set(position.values())
    rows = {f"{r.slot}/{r.offset}": r for r in corrected.collect()}
    assert {p: r.event.id for p, r in rows.items()} == position
    assert {bytes(r.key) for r in rows.values()} == {b"a2"}
    assert {p: to_micros(r.log_time.replace(tzinfo=UTC)) for p, r in rows.items()} == {
        p: to_micros(datetime.fromisoformat(found[p]["log_time"])) for p in rows
    }


def test_an_original_that_is_good_by_now_is_sent_as_it_was(app: leftfold.App, spark: Any, tmp_path: Path) -> None:
    """A rule was loosened: the bytes are what they were, and now they are an event."""
    texts = [json.dumps({**payment(id=n, note="longer"), "at": datetime.now(UTC).isoformat()}) for n in range(5)]
    places = produced(app, "texts", [text.encode() for text in texts])
    take_in(app, spark, "texts", tmp_path / "checkpoint")
    refused_now = app.rejects("texts").redrive()
    assert [reason for _, reason in refused_now.refused] == ["breaks the rule length of note <= 5"] * 5
    streams = app.root / "streams.py"
    streams.write_text(STREAMS.replace("max_length=5", "max_length=50"))
    try:
        sent = leftfold_verb(app, "rejects", "redrive", "texts", *places[:2])
        rest = leftfold_verb(app, "rejects", "redrive", "texts", "--all")
    finally:
        streams.write_text(STREAMS)
    assert (sent["sent"], rest["sent"], rest["already"]) == (places[:2], places[2:], places[:2])
    redrive = app.profile.topic_name("texts.redrive")
    kept = redriven(spark, source_of(app, "texts"), redrive, app.log[0].end_offsets(redrive, 1)).collect()
    assert {(f"{r.slot}/{r.offset}", r.event.id, r.event.note) for r in kept} == {
        (place, n, "longer") for n, place in enumerate(places)
    }


def test_what_apply_made_is_as_planned(app: leftfold.App) -> None:
    """As the brokers tell it: a second apply finds nothing to do."""
    projects.await_true(lambda: app.plan().steps == (), timeout=240, what="every broker to know the new topics")


def test_of_a_table_nothing_is_late_and_a_tombstone_is_no_reject(app: leftfold.App, spark: Any, tmp_path: Path) -> None:
    with app.producer("prices") as producer:
        good, bad = producer.encode({"item": "i1", "price": 1.0}), producer.encode({"item": "i1", "price": 0.0})
    places = produced(app, "prices", [good, None, bad])
    take_in(app, spark, "prices", tmp_path / "checkpoint")
    (only,) = leftfold_verb(app, "rejects", "list", "prices")["records"]
    assert (only["position"], only["reason"]) == (places[2], "breaks the rule price > 0.0")
    assert leftfold_verb(app, "rejects", "redrive", "prices", "--all", code=1)["error"]["code"] == "redrive-compacted"


# Spark and Python ---------------------------------------------------------------------------------------------------


def spark_verdicts(
    app: leftfold.App,
    spark: Any,
    topic: str,
    values: list[bytes | None],
    *,
    kind: int = 1,
    keys: list[bytes] | None = None,
) -> Any:
    source = source_of(app, topic, frozenset({NOT_GIVEN_OUT}))
    rows = [
        (source.topics[0], 0, n, bytearray(k), None if v is None else bytearray(v), NOW, kind)
        for n, (k, v) in enumerate(zip(keys or [b"k"] * len(values), values, strict=True))
    ]
    shape = "topic string, partition int, offset long, key binary, value binary, timestamp timestamp, timestampType int"
    records = records_of(spark.createDataFrame(rows, shape), source, raw=True)
    found = {}
    for row in refused(records, source, app.catalog.topic(topic), names_of(app, topic)).collect():
        headers = {h.key: bytes(h.value).decode() for h in row.headers if h.key != "key"}  # a key is any bytes
        found[RecordPosition.parse(bytes(row.key).decode())] = (headers["outcome"], headers["reason"])
        assert row.topic.endswith(".late") == (headers["outcome"] == "late")
    return [found.get(RecordPosition(0, n)) for n in range(len(values))]


def python_verdicts(app: leftfold.App, topic: str, values: list[bytes | None], *, by_broker: bool = True) -> Any:
    declared = app.catalog.topic(topic)
    judge = RecordJudge(declared, app.rejects(topic).schema)
    made = [judge.record(None, v, log_us=to_micros(NOW), by_broker=by_broker)[1] for v in values]
    return [None if m is None else (m.outcome, m.reason) for m in made]


def test_spark_and_python_judge_alike(app: leftfold.App, spark: Any) -> None:
    """Every kind of flaw, times at the edges of 64 bits, and records damaged at random."""
    topic = app.profile.topic_name("payments")
    (schema_id,) = app.log[1].versions(f"{topic}-value")
    framed = struct.pack(">bI", 0, schema_id)
    now_us = to_micros(NOW)
    edges = [now_us - 600_000_000, now_us - 600_000_001, now_us + 60_000_000, now_us + 60_000_001]
    times = [*edges, 1, -1, 2**63 - 1, -(2**63), now_us - 3_600_000_000]
    values: list[bytes | None] = [*bad_values(framed), *(framed + avro_body(at_us=at) for at in times)]
    draw = random.Random(7)
    good = framed + avro_body(note=b"\x02\x06abc", at_us=now_us)
    for _ in range(3_000):
        damaged = bytearray(good)
        for _ in range(draw.randint(1, 3)):
            damaged[draw.randrange(5, len(damaged))] = draw.randrange(256)
        values.append(bytes(damaged[: draw.choice([len(damaged), draw.randrange(5, len(damaged))])]))
    by_spark, by_python = spark_verdicts(app, spark, "payments", values), python_verdicts(app, "payments", values)
    differ = [(v, s, p) for v, s, p in zip(values, by_spark, by_python, strict=True) if s != p]
    assert differ == []
    assert len({s for s in by_spark if s}) > 10
    unstamped = spark_verdicts(app, spark, "payments", [good, None], kind=0)
    assert unstamped == python_verdicts(app, "payments", [good, None], by_broker=False)
    assert unstamped[0] == ("rejected", "stamped by its producer, not by a broker")


@pytest.mark.parametrize("topic", ["payments", "texts"])
def test_spark_and_python_judge_keys_alike(app: leftfold.App, spark: Any, topic: str) -> None:
    """Around the bound, in characters of one to four bytes; of a record's own key any bytes."""
    draw = random.Random(11)
    texts = ["k" * n for n in (1, 1_023, 1_024, 1_025, 5_000)]
    texts += [c * n for c in ("ü", "€", "😀") for n in (255, 256, 257, 341, 342, 512, 513)]
    texts += ["".join(draw.choices("kü€😀", k=draw.randrange(300, 500))) for _ in range(200)]
    with app.producer(topic) as producer:
        values: list[bytes | None] = [producer.encode(payment(account=text, at=NOW)) for text in texts]
    keys = [b"k"] * len(values) + [draw.randbytes(n) for n in (1_023, 1_024, 1_025, 100_000)] * 2
    values += [values[0]] * 4 + [None, b"", values[3], b"not avro"]
    judge = RecordJudge(app.catalog.topic(topic), app.rejects(topic).schema)
    made = [judge.record(k, v, log_us=to_micros(NOW), by_broker=True)[1] for k, v in zip(keys, values, strict=True)]
    by_python = [None if m is None else (m.outcome, m.reason) for m in made]
    by_spark = spark_verdicts(app, spark, topic, values, keys=keys)
    assert [(k[:9], s, p) for k, s, p in zip(keys, by_spark, by_python, strict=True) if s != p] == []
    long = [len(text.encode()) > 1_024 for text in texts]
    assert [v == ("rejected", "key too long") for v in by_spark[: len(texts)]] == long
    assert [v == ("rejected", "key too long") for v in by_spark[len(texts) :]] == [False, False, True, True] * 2


def test_spark_and_python_judge_json_alike(app: leftfold.App, spark: Any) -> None:
    good = {**payment(), "at": NOW.isoformat()}
    changes: list[dict[str, Any]] = [
        *({}, {"id": None}, {"id": 1.0}, {"id": True}, {"id": 2**63}, {"id": "1"}, {"amount": 1}, {"amount": "1"}),
        *({"amount": -1}, {"note": "longer"}, {"note": None}, {"extra": 1}, {"at": "2026-01-05"}, {"at": 17}),
        *({"at": "2026-01-05T12:00:00"}, {"at": "2026-01-05 12:00:00+02:00"}, {"at": "2026-02-30T12:00:00Z"}),
    ]
    values: list[bytes | None] = [json.dumps({**good, **change}).encode() for change in changes]
    values += [json.dumps({k: v for k, v in good.items() if k != name}).encode() for name in good]
    whole = json.dumps(good).encode()
    values += [None, b"", b"null", b"[]", b"1", b"{", whole + b"}", whole + whole, b"\xff" + whole]
    values += [whole.replace(b"10.0", text) for text in (b"NaN", b"Infinity", b"1e999", b"'1'")]
    by_spark, by_python = spark_verdicts(app, spark, "texts", values), python_verdicts(app, "texts", values)
    assert [(v, s, p) for v, s, p in zip(values, by_spark, by_python, strict=True) if s != p] == []
    assert by_spark[values.index(values[len(changes)])] == ("rejected", "id is missing")
