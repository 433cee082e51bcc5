"""A consumer against bare confluent-kafka with fastavro: a handler that does nothing, batches, and 5 ms of waiting.

Ours also judges each record, makes an event of it, keeps the order of keys, and commits what is settled. Both sides
join a group by the same protocol and commit every second. The first two cases are judged by the CPU time of this
process, because brokers run on the same cores; the third by the time that it took, because it waits.
"""

from __future__ import annotations

import gc
import io
import json
import statistics
import tempfile
import time
import uuid
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import fastavro
import psycopg
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

import leftfold
from bench.engines import project
from bench.pairs import Case, interleave, note
from leftfold.declare.framing import HEADER_BYTES
from leftfold.declare.schema import avro_schema
from leftfold.declare.synthetic import synthetic
from leftfold.local import cluster

RECORDS = 200_000
WAITING = 20_000  # records of the third case
BOOKED = 60_000  # records of the case with a database
SLICE = 500  # records in a transaction of the database, at most
LANES = 32
EVEN_KEYS = 997  # none of them hot
WAIT_S = 0.005
GOALS = {
    **{"nothing": 0.7, "batches": 0.9, "waiting": 0.9, "to_topic": 0.85, "into_sql": 0.85},
    **{"bad_vs_clean": 0.95, "bad_hot_keys": None},
}
STREAMS = """\
import time
from datetime import datetime

import leftfold as lf


class Click(lf.Event):
    user_id: str
    item_id: str
    price: float
    at: datetime


clicks = lf.Topic("clicks", Click, key=Click.user_id, time=Click.at, partitions=6)
some = lf.Topic("some", Click, key=Click.user_id, time=Click.at, partitions=6)
bare_copies = lf.Topic("bare_copies", Click, key=Click.user_id, time=Click.at, partitions=6)
even = lf.Topic("even", Click, key=Click.user_id, time=Click.at, partitions=6)
hot_bad = lf.Topic("hot_bad", Click, key=Click.user_id, time=Click.at, partitions=6)
even_bad = lf.Topic("even_bad", Click, key=Click.user_id, time=Click.at, partitions=6)
copies = lf.Topic("copies", Click, key=Click.user_id, time=Click.at, partitions=6)
paid = lf.Topic("paid", Click, key=Click.user_id, time=Click.at, partitions=6)
seen = []


@lf.consumer(paid, start="beginning", delivery="exactly_once", into=lf.Sql("env:LEFTFOLD_BENCH_URL"))
def into_sql(click: Click, db: lf.SqlConnection) -> None:
    db.execute("insert into ledger values (%s, %s, %s)", (click.user_id, click.item_id, click.price))


@lf.consumer(clicks, start="beginning")
def nothing(click: Click) -> None:
    pass


@lf.consumer(clicks, start="beginning", batch=lf.Batch(500))
def batches(clicks: list[Click]) -> None:
    pass


@lf.consumer(some, start="beginning", parallel=32)
def waiting(click: Click) -> None:
    time.sleep(0.005)


@lf.consumer(clicks, start="beginning", delivery="exactly_once", to=copies)
def to_topic(click: Click) -> Click:
    return click


@lf.consumer(clicks, start="beginning")
def hot_clean(click: Click) -> None:
    if int(click.price * 100) % 100 == 107:
        raise ValueError("never")


@lf.consumer(even, start="beginning")
def even_clean(click: Click) -> None:
    if int(click.price * 100) % 100 == 107:
        raise ValueError("never")


@lf.consumer(hot_bad, start="beginning", retry=lf.Retry(attempts=2, first="10ms"), most_dead=lf.MostDead(share=0.1))
def hot_fail(click: Click) -> None:
    if int(click.price * 100) % 100 == 7:
        raise ValueError("for ever")


@lf.consumer(even_bad, start="beginning", retry=lf.Retry(attempts=2, first="10ms"), most_dead=lf.MostDead(share=0.1))
def even_fail(click: Click) -> None:
    if int(click.price * 100) % 100 == 7:
        raise ValueError("for ever")


@lf.consumer(clicks, start="beginning")
def compared(click: Click, record: lf.Record) -> None:
    seen.append((record.id, click.user_id, click.item_id, click.price, click.at))
"""


def measure(pairs: int) -> dict[str, Case]:
    with tempfile.TemporaryDirectory(prefix="leftfold-bench-") as directory, project(Path(directory), STREAMS) as app:
        app.send("clicks", synthetic(app.catalog.topic("clicks"), RECORDS, seed=1))
        # Many keys, none of them hot: what a hot key costs is a property of order, and the pool keeps none.
        events = synthetic(app.catalog.topic("some"), WAITING, seed=2)
        app.send("some", ({**dict(event), "user_id": f"u{number % EVEN_KEYS}"} for number, event in enumerate(events)))
        app.send("paid", synthetic(app.catalog.topic("paid"), BOOKED, seed=3))
        _compare(app)
        return {
            "into_sql": _booked(app, pairs),
            "bad_vs_clean": _bad(app, "even", pairs),
            "bad_hot_keys": _bad(app, "hot", pairs),
            "nothing": _case(app, "nothing", "clicks", RECORDS, pairs, _bare, time.process_time),
            "batches": _case(app, "batches", "clicks", RECORDS, pairs, _bare, time.process_time),
            "to_topic": _case(app, "to_topic", "clicks", RECORDS, pairs, _bare_transactions, time.process_time),
            "waiting": _case(app, "waiting", "some", WAITING, pairs, _bare_pool, time.monotonic),
        }


Bare = Callable[[leftfold.App, str, int], int]


def _case(
    app: leftfold.App, name: str, topic: str, records: int, pairs: int, bare: Bare, clock: Callable[[], float]
) -> Case:
    seconds: dict[str, list[float]] = {"ours": [], "bare": []}

    def timed(side: str, run: Callable[[], int]) -> float:
        gc.collect()
        before = clock()
        assert run() == records
        seconds[side].append(clock() - before)
        return seconds[side][-1]

    def ours() -> float:
        _rewind(app, name)
        return timed("ours", lambda: _run(app, name))

    _consumed(app, name)  # a run to warm up, and to give the group a position
    ratios = interleave(name, pairs, ours, lambda: timed("bare", lambda: bare(app, topic, records)))
    figures = {f"{n}_us_per_record": round(statistics.median(s) / records * 1e6, 2) for n, s in seconds.items()}
    note(f"{name}: {figures}")
    return Case(ratios, GOALS[name], outputs_equal=True, figures=figures)


def _booked(app: leftfold.App, pairs: int) -> Case:
    """Compare bookings with those of a bare loop that keeps its offsets in the same database."""
    url = cluster.up(app.root, postgres=True, progress=note).postgres_url
    assert url is not None
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("create table ledger (user_id text, item_id text, price double precision)")
        connection.execute("create table bare (user_id text, item_id text, price double precision)")
        connection.execute("create table bare_positions (partition integer primary key, next bigint not null)")
        case = _case(
            app, "into_sql", "paid", BOOKED, pairs, lambda a, t, n: _bare_bookings(a, t, n, url), time.process_time
        )
        rows = "select user_id, item_id, price, count(*) from {} group by 1, 2, 3 order by 1, 2, 3"
        ours, bare = ([*connection.execute(rows.format(table).encode())] for table in ("ledger", "bare"))
    runs = pairs + 1  # ours has run once more, to warm up
    expected = [(*row[:3], row[3] // pairs * runs) for row in bare]
    return replace(case, outputs_equal=bool(ours) and ours == expected)


def _bare_bookings(app: leftfold.App, topic: str, records: int, url: str) -> int:
    schema = fastavro.parse_schema(json.loads(avro_schema(app.catalog.topic(topic).event)))
    consumer, read = _member(app, topic), 0
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("truncate bare_positions")
        connection.execute("insert into bare_positions select n, 0 from generate_series(0, 5) as n")
        while read < records:
            by_partition: dict[int, list[Any]] = {}
            for message in consumer.consume(SLICE, timeout=0.1):
                assert message.error() is None, message.error()
                by_partition.setdefault(cast(int, message.partition()), []).append(message)
            for partition, messages in by_partition.items():
                connection.execute("begin")
                connection.execute("select next from bare_positions where partition = %s for update", (partition,))
                for message in messages:
                    value: Any = message.value()
                    record: Any = fastavro.schemaless_reader(io.BytesIO(value[HEADER_BYTES:]), schema, None)
                    fields = (record["user_id"], record["item_id"], record["price"])
                    connection.execute("insert into bare values (%s, %s, %s)", fields)
                after = messages[-1].offset() + 1
                connection.execute("update bare_positions set next = %s where partition = %s", (after, partition))
                connection.execute("commit")
                read += len(messages)
    consumer.close()
    return read


def _bad(app: leftfold.App, keys: str, pairs: int) -> Case:
    """Compare 1 % undecodable records and 1 % that fail for ever with the same records without these.

    A bad record holds its key for 10 ms. With "hot" keys, one key has 15 % of all records.
    """
    topic, name = f"{keys}_bad", "bad_vs_clean" if keys == "even" else "bad_hot_keys"
    events = [dict(event) for event in synthetic(app.catalog.topic(topic), RECORDS, seed=1)]
    if keys == "even":
        events = [{**event, "user_id": f"u{number % EVEN_KEYS}"} for number, event in enumerate(events)]
        app.send("even", events)
    garbage = RECORDS // 100
    producer = Producer({"bootstrap.servers": app.kafka.bootstrap, "partitioner": "murmur2_random"})
    with app.producer(topic) as good:
        for number, event in enumerate(events):
            good.send_dict(event)
            if number % 100 == 0:
                producer.produce(topic, b"no event", f"k{number}")
                producer.poll(0)
    assert producer.flush(30) == 0
    failing = sum(int(event["price"] * 100) % 100 == 7 for event in events)
    seconds: dict[str, list[float]] = {"clean": [], "bad": []}

    def timed(side: str, consumer: str, handled: int) -> float:
        _rewind(app, consumer)
        before = time.monotonic()
        assert _run(app, consumer) == handled
        seconds[side].append(time.monotonic() - before)
        return seconds[side][-1]

    ratios = interleave(
        name,
        pairs,
        lambda: timed("bad", f"{keys}_fail", RECORDS - failing),
        lambda: timed("clean", f"{keys}_clean", RECORDS),
    )
    dead = len(app.dead(f"{keys}_fail").letters())
    note(f"{name}: {dead:,} dead letters, {garbage:,} undecodable and {failing:,} failing records")
    figures = {f"{side}_s": round(statistics.median(s), 2) for side, s in seconds.items()}
    return Case(ratios, GOALS[name], outputs_equal=dead == garbage + failing, figures=figures)


def _consumed(app: leftfold.App, name: str) -> int:
    """Run a consumer from the beginning of its topic, and return how many records it has handled."""
    _rewind(app, name)
    return _run(app, name)


def _rewind(app: leftfold.App, name: str) -> None:
    position = app.position(name)
    if any(p.position for p in position.show()):
        position.set(position.moves("beginning"))


def _run(app: leftfold.App, name: str) -> int:
    (ended,) = app.consume(name, until_caught_up=True)
    if ended.error is not None:
        raise ended.error
    return ended.handled


def _compare(app: leftfold.App) -> None:
    """Check that both sides read the same."""
    _consumed(app, "compared")
    seen = app.catalog.consumer("compared").function.__globals__["seen"]
    bare: list[Any] = []

    def note_it(message: Any, record: Any) -> None:
        bare.append((f"clicks/{message.partition()}/{message.offset()}", *record.values()))

    _bare(app, "clicks", RECORDS, note_it)
    assert sorted(seen) == sorted(bare), "both sides must read the same"
    seen.clear()


def _member(app: leftfold.App, topic: str) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": app.kafka.bootstrap,
            "group.id": f"bare-{uuid.uuid4().hex}",
            "group.protocol": "consumer",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 100,
        }
    )
    consumer.subscribe([topic])
    return consumer


def _leave(consumer: Consumer) -> None:
    try:
        consumer.commit(asynchronous=False)
    except KafkaException as error:
        if error.args[0].code() != KafkaError._NO_OFFSET:  # else the last commit has said it all
            raise
    consumer.close()


def _bare(
    app: leftfold.App, topic: str, records: int, handler: Callable[[Any, Any], None] = lambda _message, _record: None
) -> int:
    schema = fastavro.parse_schema(json.loads(avro_schema(app.catalog.topic(topic).event)))
    consumer, read, committed = _member(app, topic), 0, time.monotonic()
    while read < records:
        messages = consumer.consume(500, timeout=0.1)
        for message in messages:
            assert message.error() is None, message.error()
            value: Any = message.value()
            handler(message, fastavro.schemaless_reader(io.BytesIO(value[HEADER_BYTES:]), schema, None))
        read += len(messages)
        if time.monotonic() - committed > 1:
            consumer.commit(asynchronous=True)
            committed = time.monotonic()
    _leave(consumer)
    return read


def _bare_transactions(app: leftfold.App, topic: str, records: int) -> int:
    """Copy records to another topic in transactions of 1,000, decoded and encoded again."""
    schema = fastavro.parse_schema(json.loads(avro_schema(app.catalog.topic(topic).event)))
    consumer, read = _member(app, topic), 0
    producer = Producer(
        {
            "bootstrap.servers": app.kafka.bootstrap,
            "transactional.id": f"bare-{uuid.uuid4().hex}",
            "partitioner": "murmur2_random",
            "compression.type": "lz4",
            "linger.ms": 5,
            "retry.backoff.ms": 20,
        }
    )
    producer.init_transactions()
    while read < records:
        messages = consumer.consume(1_000, timeout=0.1)
        if not messages:
            continue
        producer.begin_transaction()
        for message in messages:
            assert message.error() is None, message.error()
            value: Any = message.value()
            record: Any = fastavro.schemaless_reader(io.BytesIO(value[HEADER_BYTES:]), schema, None)
            buffer = io.BytesIO()
            fastavro.schemaless_writer(buffer, schema, record)
            producer.produce("bare_copies", value[:HEADER_BYTES] + buffer.getvalue(), message.key())
        producer.send_offsets_to_transaction(
            consumer.position(consumer.assignment()), consumer.consumer_group_metadata()
        )
        producer.commit_transaction()
        read += len(messages)
    consumer.close()
    return read


def _bare_pool(app: leftfold.App, topic: str, records: int) -> int:
    """The same with a pool of threads that keeps no order, and commits what it has fetched."""
    schema = fastavro.parse_schema(json.loads(avro_schema(app.catalog.topic(topic).event)))
    consumer, committed = _member(app, topic), time.monotonic()
    done: list[Future[None]] = []
    with ThreadPoolExecutor(LANES) as pool:
        while len(done) < records:
            for message in consumer.consume(500, timeout=0.1):
                assert message.error() is None, message.error()
                value: Any = message.value()
                fastavro.schemaless_reader(io.BytesIO(value[HEADER_BYTES:]), schema, None)
                done.append(pool.submit(time.sleep, WAIT_S))
            while sum(not one.done() for one in done[-2_000:]) > 1_000:
                time.sleep(WAIT_S)
            if time.monotonic() - committed > 1:
                consumer.commit(asynchronous=True)
                committed = time.monotonic()
        wait(done)
    _leave(consumer)
    return len(done)
