"""How to provoke errors of replays and of copies."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from leftfold.kafka import copy
from leftfold.kafka.copy import Copier, CopySide
from leftfold.offsets import Range, Ranges
from leftfold.replay.copy import check, copying
from leftfold.replay.manifest import Manifest, not_a_replay
from leftfold.replay.replay import Replay, out_exists
from leftfold.run.deployment import TopicPlace
from leftfold.settings import Kafka, Profile
from tests.golden.causes import DEAD, EVENT, HEAD, NOTHING, TOPIC, Cause, project, stand_in

OTHER = 'more = lf.Topic("more", Click, key=Click.user_id, time=Click.at, log_time="header")\n'
NAMES = ("clicks", "more")


def checks(*options: tuple[str, str]) -> Cause:
    def cause(tmp: Path) -> None:
        other = OTHER
        for old, new in options:
            other = other.replace(old, new)
        catalog = project(tmp, HEAD + EVENT + TOPIC + other).catalog
        check(catalog.topic("clicks"), catalog.topic("more"))

    return cause


def same_topic(tmp: Path) -> None:
    clicks = project(tmp, HEAD + EVENT + TOPIC.replace("time=Click.at", "time=Click.at, log_time='header'")).catalog
    check(clicks.topic("clicks"), clicks.topic("clicks"))


def no_target(tmp: Path) -> None:
    catalog = project(tmp, HEAD + EVENT + TOPIC + OTHER).catalog
    admin = stand_in(partitions=lambda _: {"clicks": 6}, topic_ids=lambda _: {"clicks": "a"})
    topics = catalog.topic("clicks"), catalog.topic("more")
    copying(*topics, Profile(name="local"), Kafka(bootstrap=DEAD), admin, start=None, end=None, follow=False)


def copier(**admin: Any) -> Copier:
    here, there = CopySide("clicks", 2, "hYdTq0", "broker"), CopySide("more", 4, "Zk31Xw", "header")
    return Copier(Kafka(bootstrap=DEAD), stand_in(**admin), here, there, "leftfold.copy/clicks/more")


def consumer(offset: int, ids: dict[str, str]) -> Any:
    found = [TopicPartition("clicks", p, offset, json.dumps(ids)) for p in range(2)]
    return stand_in(committed=lambda *_, **__: found)


def other_topic(_: Path) -> None:
    copier()._lanes(consumer(17, {"source": "hYdTq0", "target": "B6nr2e"}), {}, None)


def place_lost(_: Path) -> None:
    copier(end_offsets=lambda *_: {0: 0, 1: 9})._lanes(consumer(-1001, {}), {}, None)


def overtaken(_: Path) -> None:
    ids = {"source": "hYdTq0", "target": "Zk31Xw"}
    copier(start_offsets=lambda *_: {0: 17, 1: 40})._lanes(consumer(17, ids), {}, None)


def more_partitions(_: Path) -> None:
    copier(partitions=lambda _: {"clicks": 3})._check_partitions()


def fenced(_: Path) -> None:
    with copier()._explained():
        raise KafkaException(KafkaError(KafkaError._FENCED, "fenced", fatal=True))


def failed(_: Path) -> None:
    with mock.patch.object(copy, "_ANSWER_S", 0.2):
        copier().run({0: 0, 1: 0}, None, stopped=lambda: False, watch=lambda *_: None)


MANIFEST = Manifest(
    topic="clicks",
    name="clicks",
    topic_id="hYdTq0",
    ranges=Ranges.of([Range("clicks", 0, 0, 100)]),
    schema_ids=(1,),
    rejected_ids=(),
    columns={"_offset": "bigint"},
    format="parquet",
    records=100,
    outcomes={"accepted": 99, "late": 1},
    digest="5be0c3d1a07c11225be0c3d1a07c1122",
    made_at="2026-01-05T12:00:00+00:00",
)


def replay(tmp: Path, topic_id: str = "hYdTq0") -> Replay:
    clicks = project(tmp, HEAD + EVENT + TOPIC).catalog.topic("clicks")
    place = TopicPlace(clicks, "clicks", 2, {})
    deployed = stand_in(engines=stand_in(registry=stand_in(schema=lambda _: None)))
    made = Replay(clicks, topic_id, MANIFEST.ranges, place, deployed)
    made.source = NOTHING
    return made


def recreated(tmp: Path) -> None:
    replay(tmp, "B6nr2e").again(MANIFEST)


def differs(**changed: Any) -> Cause:
    def cause(_: Path) -> None:
        from leftfold.replay.replay import _differs
        from leftfold.spark.history.replayed import Content

        found = replace(MANIFEST, digest="a07c1122a07c1122a07c1122a07c1122", **changed)
        raise _differs(MANIFEST, Content(found.records, found.outcomes, found.digest), found.columns)

    return cause


def spark_fails(tmp: Path) -> None:
    from pyspark.errors import PySparkException

    failure = PySparkException("Job aborted due to stage failure: No space left on device")
    with mock.patch.object(Replay, "_rows", side_effect=failure):
        replay(tmp)._run(NOTHING, lambda _: None)


def exists(tmp: Path) -> None:
    raise out_exists(f"{tmp}/clicks")


def unfinished(tmp: Path) -> None:
    raise not_a_replay(f"{tmp}/clicks", "it has no manifest.json, which is written last")


def bad_manifest(tmp: Path) -> None:
    Manifest.parse("{}", f"{tmp}/clicks")


CAUSES: dict[str, Cause] = {
    "copy-target": checks(('log_time="header"', 'log_time="broker"')),
    "copy-target/same": same_topic,
    "copy-differs": checks(("key=Click.user_id", "key=Click.item_id")),
    "copy-differs/compacted": checks(("time=Click.at", "compacted=True")),
    "not-applied/copy": no_target,
    "copy-other-topic": other_topic,
    "copy-place-lost": place_lost,
    "copy-overtaken": overtaken,
    "copy-partitions": more_partitions,
    "copy-fenced": fenced,
    "copy-failed": failed,
    "topic-recreated/replay": recreated,
    "replay-differs": differs(outcomes={"accepted": 100}),
    "replay-differs/fields": differs(columns={"_offset": "int"}),
    "replay-differs/records": differs(records=70),
    "replay-differs/values": differs(),
    "replay-failed": spark_fails,
    "replay-out-exists": exists,
    "not-a-replay": unfinished,
    "not-a-replay/manifest": bad_manifest,
}
