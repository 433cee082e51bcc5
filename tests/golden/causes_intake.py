"""How to provoke errors of the topics beside declared ones: late, rejected and re-driven records."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

from leftfold.cli.reject_verbs import _corrections
from leftfold.fold.expressions import to_micros
from leftfold.kafka import rejects as module
from leftfold.kafka.log_reader import Scanned
from leftfold.kafka.rejects import RecordPosition, Rejects, RejectTopics
from leftfold.plan.diff import plan
from leftfold.plan.topics import companions
from leftfold.settings import Kafka, Profile
from tests import clusters
from tests.golden.causes import DEAD, EVENT, HEAD, NOON, NOTHING, REGISTERED, TOPIC, Cause, project, stand_in

CHECKED = Profile(name="prod", topics="checked")


def companion_policy(tmp: Path) -> None:
    catalog = project(tmp, HEAD + EVENT + TOPIC).catalog
    seen = clusters.seen(
        3, {"clicks": clusters.seen_topic("clicks", 6, 3, {"message.timestamp.type": "LogAppendTime"})}, {}
    )
    ours = {
        c.name: clusters.seen_topic(c.name, 1, 3, {**c.configs, "cleanup.policy": "delete"})
        for c in companions(catalog, CHECKED, seen)
    }
    made = plan(catalog, CHECKED, clusters.seen(3, {**seen.topics, **ours}, {"clicks-value": REGISTERED}))
    raise made.problems[1]


def missing_companion(tmp: Path) -> None:
    catalog = project(tmp, HEAD + EVENT + TOPIC).catalog
    there = {"clicks": clusters.seen_topic("clicks", 6, 3, {"message.timestamp.type": "LogAppendTime"})}
    made = plan(catalog, CHECKED, clusters.seen(3, there, {"clicks-value": REGISTERED}))
    raise made.problems[2]


def topic_name_taken(tmp: Path) -> None:
    taken = 'lf.Topic("clicks_late", Click, key=Click.user_id, time=Click.at)\n'
    catalog = project(tmp, HEAD + EVENT + TOPIC + taken).catalog
    subjects = {"clicks-value": REGISTERED, "clicks_late-value": REGISTERED}
    list(plan(catalog, Profile(name="local"), clusters.seen(3, {}, subjects)).apply(NOTHING, NOTHING))


NAMES = RejectTopics("clicks", "clicks.rejects", "clicks.late", "clicks.redrive")


def rejects(tmp: Path, *, compacted: bool = False, there: bool = True) -> Rejects:
    """Of clicks, whose one refused record has a value that is good by now."""
    text = TOPIC.replace("time=Click.at", "time=Click.at, format='json'" + (", compacted=True" if compacted else ""))
    topic = project(tmp, HEAD + EVENT + text).catalog.topic("clicks")
    known = {n: 1 for n in ("clicks.rejects", "clicks.late", "clicks.redrive") if there}
    return Rejects(topic, NAMES, Kafka(bootstrap=DEAD), stand_in(partitions=lambda _: known), stand_in(schema={}.get))


def refused(kafka: Kafka, topic: str, partitions: int) -> Iterator[Scanned]:
    event = {"user_id": "u", "item_id": "i", "price": 1.0, "tags": [], "at": NOON.isoformat()}
    headers = {"outcome": "rejected", "reason": "x", "log_time": str(to_micros(NOON)), "stamped": "broker"}
    if topic == "clicks.rejects":
        yield Scanned(b"0/17", json.dumps(event).encode(), {k: v.encode() for k, v in headers.items()})


def companion_missing(tmp: Path) -> None:
    rejects(tmp, there=False).entries()


def unknown_position(tmp: Path) -> None:
    with mock.patch.object(module, "scan", refused):
        rejects(tmp).find(RecordPosition(3, 4))


def redrive_compacted(tmp: Path) -> None:
    rejects(tmp, compacted=True).redrive()


def not_redriven(tmp: Path) -> None:
    client = stand_in(produce=lambda *_, **__: None, poll=lambda _: 0, flush=lambda _: 1)
    with mock.patch.object(module, "scan", refused), mock.patch.object(module, "Client", return_value=client):
        rejects(tmp).redrive()


def bad_correction(tmp: Path) -> None:
    lines = '{"position": "0/17", "event": {}}\n{"position": 17, "event": {}}\n'
    _corrections("clicks", io.BytesIO(lines.encode()))


CAUSES: dict[str, Cause] = {
    "topic-name-taken": topic_name_taken,
    "topic-missing/companion": missing_companion,
    "companion-policy": companion_policy,
    "companion-missing": companion_missing,
    "unknown-position": unknown_position,
    "redrive-compacted": redrive_compacted,
    "not-redriven": not_redriven,
    "bad-correction": bad_correction,
}
