"""How to provoke errors of looking at the log: of a topic, a partition or an offset that is not there."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest import mock

from leftfold.observe import log_records as module
from leftfold.observe.log_records import Records, Wanted
from leftfold.settings import Kafka
from tests.golden.causes import DEAD, EVENT, HEAD, TOPIC, Cause, project, stand_in


def read(wanted: Wanted) -> Cause:
    """Of a topic of six partitions, each with the offsets from 1,000 to 2,000."""

    def cause(_tmp: Path) -> None:
        admin = stand_in(
            partitions_of=lambda _: 6,
            start_offsets=lambda _name, count: dict.fromkeys(range(count), 1_000),
            end_offsets=lambda _name, count: dict.fromkeys(range(count), 2_000),
        )
        with mock.patch.object(module, "LogReader", return_value=stand_in(close=lambda: None)):
            list(Records("clicks", None, Kafka(bootstrap=DEAD), admin, stand_in(schema={}.get)).read(wanted))

    return cause


def missing(topic: str) -> Cause:
    def cause(tmp: Path) -> None:
        app = project(tmp, HEAD + EVENT + TOPIC)
        nothing: Any = (stand_in(partitions=lambda _: {}), stand_in())
        app.__dict__ |= {"log": nothing, "kafka": Kafka(bootstrap=DEAD)}
        app.topics(topic)

    return cause


CAUSES: dict[str, Cause] = {
    "topic-missing/declared": missing("clicks"),
    "topic-missing/unknown": missing("clikcs"),
    "partition-missing": read(Wanted(partition=6)),
    "offset-gone": read(Wanted(partition=0, offset=17)),
}
