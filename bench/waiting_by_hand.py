"""What a careful engineer would write by hand for small work on a log: the bare side of `waiting`.

Usage: python waiting_by_hand.py NAME SETTINGS, where SETTINGS is a JSON object. Each function imports what it needs.
"""

from __future__ import annotations

import io
import json
import math
import sys
from collections.abc import Iterator
from typing import Any

Settings = dict[str, Any]


def help(_: Settings) -> None:
    import click
    import rich

    assert click
    assert rich


def plan(settings: Settings) -> None:
    """Ask for what a plan compares: topics with their settings, and registered schemas."""
    import urllib.request

    from confluent_kafka.admin import AdminClient, ConfigResource  # type: ignore[attr-defined] # its stubs forget it

    admin = AdminClient({"bootstrap.servers": settings["bootstrap"]})
    names = [settings["clicks"], settings["notes"]]
    asked = admin.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, name) for name in names])
    found = {name: len(future.result()) for name, future in zip(names, asked.values(), strict=True)}
    for name in names:
        with urllib.request.urlopen(f"{settings['registry']}/subjects/{name}-value/versions/latest") as answer:
            found[name] += len(json.load(answer)["schema"])
    print(json.dumps(found))


def status(settings: Settings) -> None:
    """Ask for what a status shows: offsets, and what the store has of each view."""
    import redis
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": settings["bootstrap"], "group.id": "by-hand"})
    ends = [consumer.get_watermark_offsets(TopicPartition(settings["clicks"], p)) for p in range(6)]
    consumer.close()
    print(json.dumps([ends, redis.Redis.from_url(settings["redis"]).dbsize()]))


def send(settings: Settings) -> None:
    """Send records that are ready: one value, and a key for each. So this is only what the producer takes."""
    import time
    import urllib.request

    import fastavro
    from confluent_kafka import Producer

    subject = f"{settings['registry']}/subjects/{settings['notes']}-value/versions/latest"
    with urllib.request.urlopen(subject) as answer:
        registered = json.load(answer)
    schema = fastavro.parse_schema(json.loads(registered["schema"]))
    body = io.BytesIO()
    event = {"person": "p1", "price": 1.5, "at": int(time.time() * 1e6)}
    fastavro.schemaless_writer(body, schema, event)
    value, keys = b"\x00" + registered["id"].to_bytes(4) + body.getvalue(), [f"p{n}" for n in range(5_000)]
    options = {"bootstrap.servers": settings["bootstrap"], "acks": "all", "enable.idempotence": True, "linger.ms": 5}
    producer = Producer({**options, "compression.type": "lz4", "queue.buffering.max.messages": 1_000_000})
    for number in range(settings["sent"]):
        producer.produce(settings["notes"], value, keys[number % 5_000])
        if number % 1_000 == 0:
            producer.poll(0)
    assert producer.flush(60) == 0


def decoded(settings: Settings) -> Iterator[dict[str, Any]]:
    """Yield all clicks that are in the log now."""
    import urllib.request

    import fastavro
    from confluent_kafka import Consumer, TopicPartition

    options = {"bootstrap.servers": settings["bootstrap"], "group.id": "by-hand", "isolation.level": "read_committed"}
    consumer = Consumer(options)
    name = settings["clicks"]
    left = {p: consumer.get_watermark_offsets(TopicPartition(name, p))[1] for p in range(6)}
    consumer.assign([TopicPartition(name, p, 0) for p in left])
    schemas: dict[bytes, Any] = {}
    while left:
        message: Any
        for message in consumer.consume(10_000, timeout=0.2):
            value, partition = message.value(), message.partition()
            if (head := value[:5]) not in schemas:
                url = f"{settings['registry']}/schemas/ids/{int.from_bytes(head[1:])}"
                with urllib.request.urlopen(url) as answer:
                    schemas[head] = fastavro.parse_schema(json.loads(json.load(answer)["schema"]))
            event: Any = fastavro.schemaless_reader(io.BytesIO(value[5:]), schemas[head])
            yield event
            if partition in left and message.offset() + 1 >= left[partition]:
                del left[partition]
    consumer.close()


def training(settings: Settings) -> None:
    """A point-in-time join by event time: running counts and sums of each person, at both ends of a window."""
    import numpy as np
    import pandas as pd

    clicks = pd.DataFrame(decoded(settings), columns=["person", "price", "at"]).sort_values("at", kind="stable")
    clicks["at"] = clicks["at"].astype("datetime64[us, UTC]")
    clicks["n"] = clicks.groupby("person").cumcount() + 1
    clicks["total"] = clicks.groupby("person")["price"].cumsum()
    running = clicks[["person", "at", "n", "total"]]
    labels = pd.read_parquet(settings["labels"])
    rows = labels[["n"]].copy()
    found = {}
    for window, length, step in (("1h", "1h", "5min"), ("24h", "24h", "1h")):
        ends = []
        for edge in (labels["ts"], (labels["ts"] - pd.Timedelta(length)).dt.floor(step)):
            asked = labels.assign(edge=edge.astype("datetime64[us, UTC]"), place=np.arange(len(labels)))
            joined = pd.merge_asof(
                asked[["person", "edge", "place"]].sort_values("edge"),
                running,
                left_on="edge",
                right_on="at",
                by="person",
                allow_exact_matches=False,
            )
            ends.append(joined.sort_values("place")[["n", "total"]].fillna(0).to_numpy())
        found[window] = ends[0] - ends[1]
    rows["clicks_1h"] = found["1h"][:, 0].astype(int)
    rows["clicks_24h"] = found["24h"][:, 0].astype(int)
    for window in ("1h", "24h"):
        rows[f"spend_{window}"] = np.where(found[window][:, 0] > 0, found[window][:, 1], np.nan)
    with np.errstate(invalid="ignore"):
        rows["average_24h"] = found["24h"][:, 1] / found["24h"][:, 0]
    labels.assign(**rows.drop(columns="n")).to_parquet(settings["out"])
    names = ["n", "clicks_1h", "clicks_24h", "spend_24h", "average_24h", "spend_1h"]
    print(json.dumps([_shown(row) for row in rows.sort_values("n")[names].to_dict("records")]))


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    """Whole numbers as ints, and null for what is missing."""
    return {
        name: None if math.isnan(value) else float(value) if name == "average_24h" else int(value)
        for name, value in row.items()
    }


def replay(settings: Settings) -> None:
    """All records as a Parquet file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.Table.from_pylist(list(decoded(settings)))
    pq.write_table(table, settings["out"])
    print(json.dumps([table.num_rows, sum(table.column("price").to_pylist())]))


def get(settings: Settings) -> None:
    """Read a row of the store."""
    import redis

    row: Any = redis.Redis.from_url(settings["redis"]).hgetall(settings["row"])
    assert row, settings["row"]
    print(len(row))


def why(settings: Settings) -> None:
    """Find the clicks of one person in the log."""
    found = [event for event in decoded(settings) if event["person"] == "p1"]
    assert found
    print(len(found))


def run(settings: Settings) -> None:
    """Start a streaming query on Spark that finds nothing to read."""
    from pyspark.sql import SparkSession

    session = SparkSession.builder.master("local[*]").config("spark.jars", settings["spark_jars"]).getOrCreate()
    clicks = session.readStream.format("kafka").option("kafka.bootstrap.servers", settings["bootstrap"])
    query = clicks.option("subscribe", settings["clicks"]).option("startingOffsets", "latest").load()
    writer = query.writeStream.format("noop").option("checkpointLocation", settings["out"])
    writer.trigger(availableNow=True).start().awaitTermination()
    session.stop()


def compare(settings: Settings) -> None:
    """Two definitions of the same features at one moment, each from a read of its own, and where they differ."""
    import pandas as pd

    at = pd.Timestamp(settings["at"], unit="us", tz="UTC")
    sides = []
    for least in (0, settings["least"]):
        clicks = pd.DataFrame(decoded(settings), columns=["person", "price", "at"])
        windows = {"1h": (at - pd.Timedelta("1h")).floor("5min"), "24h": (at - pd.Timedelta("24h")).floor("1h")}
        reached = clicks[(clicks["at"] < at) & (clicks["at"] >= windows["24h"])]
        last_hour = reached[reached["at"] >= windows["1h"]]
        dear = reached[reached["price"] > least]
        side = pd.DataFrame(index=pd.Index(reached["person"].unique(), name="person"))
        for name, events in (("1h", last_hour), ("24h", reached)):
            side[f"clicks_{name}"] = events.groupby("person").size()
        side["spend_24h"] = dear.groupby("person")["price"].sum()
        side["average_24h"] = reached.groupby("person")["price"].mean()
        side["spend_1h"] = last_hour.groupby("person")["price"].sum()
        sides.append(side.fillna({"clicks_1h": 0, "clicks_24h": 0}))
    left, right = sides[0].align(sides[1], join="outer", axis=0)
    found = {}
    for name in left.columns:
        lacks_left, lacks_right = left[name].isna(), right[name].isna()
        differ = (left[name] != right[name]) & ~lacks_left & ~lacks_right
        only_left, only_right = (lacks_right & ~lacks_left).sum(), (lacks_left & ~lacks_right).sum()
        found[name] = [int(n) for n in (differ.sum(), only_left, only_right)]
    print(json.dumps([len(left), found]))


if __name__ == "__main__":
    globals()[sys.argv[1]](json.loads(sys.argv[2]))
