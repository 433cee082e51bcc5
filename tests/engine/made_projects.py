"""Generated projects for training sets: declarations, records of every kind, and labels at the edges of tiles.

The seed decides everything but the moments, which are around now. Producers set the log times, so hours of log pass.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from confluent_kafka import Producer

import leftfold
from leftfold.declare.companions import redrive_topic
from leftfold.local.endpoints import Endpoints
from tests.engine import projects

WINDOWS = ("30s", "10m", "1h", "6h", "24h", "7d")
HOURS = 8  # of log
PEOPLE = 12
LABELS = 150

EVENTS = """\
from datetime import datetime

from pydantic import Field

import leftfold as lf


class Sale(lf.Event):
    person: str = Field({person})
    item: int
    price: float
    pieces: int{pieces}
    note: str | None = None
    tags: list[str] = []
    open: bool = True
    seen: datetime | None = None
    at: datetime


class Profile(lf.Event):
    person: str
    name: str | None
    score: float
    since: datetime
    tags: list[str] = []


sales = lf.Topic("sales", Sale, key={key}, time=Sale.at, partitions={partitions}, lateness="{lateness}",
                 log_time="producer", format="{format}")
more = lf.Topic("more", Sale, key={key}, time=Sale.at, partitions=2, lateness="{more}", log_time="producer",
                format="{format}")
profiles = lf.Topic("profiles", Profile, key=Profile.person, compacted=True, partitions=2)


class Person(lf.Table, of=profiles, by=Profile.person):
    name = Profile.name
    score = Profile.score
    since = Profile.since
    tags = Profile.tags
"""


@dataclass
class MadeProject:
    app: leftfold.App
    labels: pa.Table
    streams: str  # the declarations
    endpoints: Endpoints
    archived: leftfold.App | None = None  # the same project, whose topic `sales` has an archive of its first records
    vector: str = "asked"
    time: str = "moment"


def features(chance: random.Random, prefix: str) -> list[str]:
    """Lines that declare features: each aggregate, over windows and kinds that chance chooses."""
    where = chance.choice(("", "", ", where=Sale.pieces > 1", ", where=(Sale.price > 3.0) | (Sale.note == None)"))
    window = iter([f'"{chance.choice(WINDOWS)}"' if chance.random() < 0.85 else "None" for _ in range(20)])
    value = ("Sale.price", "Sale.pieces", "Sale.seen", "Sale.note", "Sale.open", "Sale.item")
    number = ("Sale.price", "Sale.pieces")
    ttl = chance.choice(('"1h"', '"90s"'))
    lines = [
        f"count = lf.count({next(window)}{where})",
        f"total = lf.sum({chance.choice(number)}, {next(window)}{where})",
        f"average = lf.mean({chance.choice(number)}, {next(window)})",
        f"least = lf.min({chance.choice(value[:3])}, {next(window)}{where})",
        f"most = lf.max({chance.choice(value[:3])}, {next(window)})",
        f"newest = lf.last({chance.choice(value)}, {next(window)}{where})",
        f"several = lf.last_n({chance.choice(value)}, {next(window)}, n={chance.choice((1, 3))})",
        f"different = lf.distinct({chance.choice(('Sale.note', 'Sale.item'))}, {next(window)})",
        f"fading = lf.last(Sale.price, None, ttl={ttl})",
        f"fresh = lf.count(None, ttl={ttl})",
        'ratio = lf.sum(Sale.price, "1h") / lf.count("6h")',
    ]
    if chance.random() < 0.5:
        lines[1] += ".default(0)" if "pieces" in lines[1] else ".default(-1.5)"
    return [f"{prefix}_{line}" for line in lines]


def declared(chance: random.Random) -> str:
    pieces = chance.choice((" | None = None", ""))
    text = EVENTS.format(
        person=chance.choice(("", "max_length=40")),
        pieces=pieces,
        key=chance.choice(("Sale.person", "Sale.person", "Sale.item")),
        partitions=chance.choice((1, 3)),
        lateness=chance.choice(("1m", "30m", "4h")),
        more=chance.choice(("1m", "4h")),
        format=chance.choice(("avro", "avro", "json")),
    )
    by = chance.choice(("Sale.person", "Sale.person", "(Sale.person, Sale.item)", "Sale.item"))
    views = [("One", "sales", "a", "Sale.person"), ("Two", chance.choice(("sales", "(sales, more)")), "b", by)]
    parts = []
    for name, of, prefix, key in views:
        lines = features(chance, prefix)
        text += f"\n\nclass {name}(lf.Features, of={of}, by={key}):\n" + "".join(f"    {line}\n" for line in lines)
        parts += [(line.split(" ")[0], name) for line in lines]
    text += "\n\nclass Asked(lf.Vector):\n" + "".join(f"    {n} = {view}.{n}\n" for n, view in parts)
    return (
        text
        + '    name = Person.name.default("nobody")\n    score = Person.score\n    since = Person.since\n'
        + ("    tags = Person.tags\n    cart = lf.request(float)\n")
    )


def changed(streams: str, seed: int) -> str:
    """Declarations in which the view One has features of the same names and kinds, of other windows and conditions."""
    chance = random.Random(seed)
    begin = streams.index("class One(")
    end = streams.index("\n\n\n", begin)

    def other(line: str) -> str:
        if chance.random() < 0.5 or "default" in line or "ttl" in line:
            return line
        line = re.sub(r'"(30s|10m|1h|6h|24h|7d)"', lambda _: f'"{chance.choice(WINDOWS)}"', line)
        return line.replace("pieces > 1", "pieces > 2").replace("price > 3.0", "price > 50.0")

    return streams[:begin] + "\n".join(map(other, streams[begin:end].split("\n"))) + streams[end:]


def with_archive(streams: str) -> str:
    """Return the same declarations, with an archive of the topic `sales`."""
    return streams.replace('lf.Topic("sales", Sale, ', 'lf.Topic("sales", Sale, archive=True, ')


def made_project(
    root: Path, endpoints: Endpoints, seed: int, take_in: Callable[[leftfold.App], None] | None = None
) -> MadeProject:
    """Make a project, apply it, and send its records. Its views do not run yet.

    `take_in` is called when a part of the sales is sent. It takes them into the archive of the app that it gets.
    """
    chance = random.Random(seed)
    streams, namespace = declared(chance), f"made{seed}-{chance.randrange(10**6)}"
    app = projects.make(root, endpoints, namespace, streams)
    archived = None
    if take_in is not None:
        archived = projects.make(root / "archived", endpoints, namespace, with_archive(streams))
    projects.apply(archived or app)
    began = datetime.now(UTC) - timedelta(hours=HOURS)
    records = chance.choice((60, 400, 1_500))
    _send(app, "sales", range(records // 2), began, records, chance)
    if take_in is not None and archived is not None:
        take_in(archived)
    _send(app, "sales", range(records // 2, records), began, records, chance)
    _send(app, "more", range(50), began, 50, chance)
    with app.producer("profiles") as producer:
        for number in range(40):
            person = f"p{chance.randrange(PEOPLE)}"
            row = {"person": person, "name": chance.choice((None, f"n{number}")), "score": number / 8, "since": began}
            producer.send_dict({**row, "tags": ["x"] * (number % 3)})
            if chance.random() < 0.1:
                producer.delete(person=person)
    _redrive(app, chance)
    return MadeProject(app, labels(chance, began), streams, endpoints, archived)


def _send(app: leftfold.App, topic: str, numbers: range, began: datetime, records: int, chance: random.Random) -> None:
    """Records in order of log time: late, ahead of time, on the edges of tiles, and some that no view accepts.

    These are the records of these numbers, of so many that all hours of log have together.
    """
    avro = app.catalog.topic(topic).format == "avro"
    with app.producer(topic) as producer:
        for number in numbers:
            logged = began + timedelta(hours=HOURS) * (number / records)
            behind = chance.choice((0, 2, 30, 59, 60, 61, 1_700, 1_800, 1_801, 14_399, 14_401, -30, -59, -61, -400))
            at = logged - timedelta(seconds=behind if chance.random() < 0.5 else chance.random() * 20)
            if chance.random() < 0.2:
                at = at.replace(second=0, microsecond=0)
            event = {
                "person": f"p{int(chance.paretovariate(0.6)) % PEOPLE}",
                "item": chance.randrange(4),
                "price": round(chance.uniform(-20, 200), chance.choice((0, 2, 4))),
                "pieces": chance.randrange(5),
                "note": chance.choice((None, "", "a", "ä", "b" * 9)),
                "tags": ["x"][: chance.randrange(2)],
                "open": chance.random() < 0.5,
                "seen": None if chance.random() < 0.3 else at,
                "at": at,
            }
            key, value = producer.key_of(event), producer.encode(event)
            if chance.random() < 0.08:
                value = _spoilt(value, chance, avro=avro)
            producer.send_encoded(key, value, log_time=logged.replace(microsecond=logged.microsecond // 1_000 * 1_000))


def _spoilt(value: bytes, chance: random.Random, *, avro: bool) -> bytes:
    ways = [b"", value[: len(value) // 2], b"\x01" + value[1:], b"[]", value + b" x"]
    ways += [value.replace(b"p", b"\xff", 1)]
    ways += [value[:1] + (90_009).to_bytes(4) + value[5:]] if avro else [value.replace(b"price", b"prize")]
    return chance.choice(ways)


def _redrive(app: leftfold.App, chance: random.Random) -> None:
    """Correct some records of the log as `leftfold rejects` does: whatever is at their places, one of them twice."""
    topic = app.profile.topic_name("sales")
    admin, _ = app.log
    ends = admin.end_offsets(topic, admin.partitions_of(topic))
    client = Producer(app.kafka.for_librdkafka())
    with app.producer("sales") as producer:
        for number in range(8):
            partition = chance.choice(list(ends))
            if not ends[partition]:
                continue
            moment = datetime.now(UTC) - timedelta(minutes=chance.randrange(400))
            event = {"person": f"p{number % 3}", "item": 1, "price": 1000.5 + number, "pieces": 3, "at": moment}
            place = f"{partition}/{chance.randrange(ends[partition]) if number else 0}".encode()
            log_us = str(int(moment.timestamp() * 1_000) * 1_000 + 1_000).encode()
            for again in range(1 + (number == 0)):
                value = producer.encode({**event, "pieces": 3 + again})
                headers: Any = [("position", place), ("log_time", log_us), ("key", producer.key_of(event))]
                client.produce(app.profile.topic_name(redrive_topic("sales")), value, place, headers=headers)
    assert client.flush(60) == 0


def labels(chance: random.Random, began: datetime) -> pa.Table:
    """Labels at any moment, on the edges of tiles, a moment beside them, and some without a key or a moment.

    A quarter of them are of the ten minutes after the records were sent: that is when something was served.
    """
    rows = []
    for number in range(LABELS):
        first = HOURS * 3_600 if chance.random() < 0.25 else -600
        moment = began + timedelta(seconds=chance.uniform(first, HOURS * 3_600 + 600))
        edge = chance.choice((None, 1, 10, 60, 300, 3_600))
        if edge is not None:
            seconds = int(moment.timestamp()) // edge * edge
            moment = datetime.fromtimestamp(seconds, UTC) + timedelta(microseconds=chance.choice((-1, 0, 0, 1)))
        person: str | None = f"p{int(chance.paretovariate(0.6)) % (PEOPLE + 2)}"
        rows.append(
            {
                "person": None if chance.random() < 0.03 else person,
                "item": chance.randrange(5),
                "cart": chance.choice((None, 0.0, 1.25)),
                "moment": None if chance.random() < 0.03 else moment,
                "number": number,
                "text": json.dumps(number),
            }
        )
    kinds = [("person", pa.string()), ("item", pa.int64()), ("cart", pa.float64())]
    return pa.Table.from_pylist(
        [*rows, rows[0]],
        schema=pa.schema(
            [*kinds, ("moment", pa.timestamp("us", tz="UTC")), ("number", pa.int32()), ("text", pa.string())]
        ),
    )
