"""The catalog that a probe runs: a typical topic and a typical view, and a topic of plain bytes."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from leftfold.declare.aggregates import count, last
from leftfold.declare.aggregates import sum as sum_of
from leftfold.declare.catalog import Catalog
from leftfold.declare.event import Event
from leftfold.declare.features import Features
from leftfold.declare.topic import Topic

TOPIC, VIEW, BYTES = "probe", "probe_activity", "probe_bytes"


def catalog(partitions: int = 6) -> Catalog:
    """The probe's catalog. Its view has two steps (5 minutes, 1 hour) and the usual aggregates."""

    class Probe(Event):
        user_id: str
        item_id: str
        price: float
        at: datetime

    probe: Topic[Probe] = Topic(TOPIC, Probe, key=Probe.user_id, time=Probe.at, partitions=partitions, lateness="10m")

    class ProbeActivity(Features, of=probe, by=Probe.user_id):
        clicks_1h = count("1h")
        big_1h = count("1h", where=Probe.price > 100)
        spend_24h = sum_of(Probe.price, "24h")
        last_item = last(Probe.item_id, "7d")

    class Filler(Event):
        text: str
        at: datetime

    filler: Topic[Any] = Topic(
        BYTES, Filler, key=Filler.text, time=Filler.at, partitions=partitions, format="json", retention="1h"
    )
    probe_catalog, problems = Catalog.of([probe, ProbeActivity, filler])
    assert not problems
    return probe_catalog
