"""The memory of an entity in Redis, as batches leave its row, against the planner's model of it."""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from leftfold.fold import columns
from leftfold.fold.definition import Definition
from leftfold.fold.durations import SECOND
from leftfold.sizing.constants import Constants
from leftfold.sizing.load import Load
from leftfold.sizing.view_size import size_view
from leftfold.store.engine import BuildPlace
from leftfold.store.frames import framed_row
from leftfold.store.layout import field
from leftfold.store.redis.client import connect
from leftfold.store.redis.names import row_key
from leftfold.store.writer import write_rows
from tests.engine import projects
from tests.engine.conftest import Cluster

ENTITIES = 20
WEEK_S = 7 * 86_400
WEEKS_S = 2 * WEEK_S
SHARE = 0.8
START = 1_772_323_200 * SECOND
BATCH = 100_000  # six digits, as the model assumes
KEY = "user-{:07}"  # texts of 12 characters, as the model assumes

STREAMS = """\
from datetime import datetime

import leftfold as lf


class Click(lf.Event):
    user: str
    item: str
    price: float
    pieces: int
    at: datetime


clicks = lf.Topic("clicks", Click, key=Click.user, time=Click.at, partitions=6)


def over(window, **more):
    return {
        f"n_{window}": lf.count(window),
        f"spend_{window}": lf.sum(Click.price, window),
        f"mean_{window}": lf.mean(Click.pieces, window),
        f"least_{window}": lf.min(Click.price, window),
        f"most_{window}": lf.max(Click.pieces, window),
        f"last_{window}": lf.last(Click.item, window),
        **{f"{name}_{window}": made(window) for name, made in more.items()},
    }


def view(name, **more):
    features = over("1h", **more) | over("24h", **more) | over("7d", **more)
    return type(name, (lf.Features,), features, of=clicks, by=Click.user)


Six = view("Six")
Eight = view("Eight", recent=lambda w: lf.last_n(Click.item, w, n=10), different=lambda w: lf.distinct(Click.item, w))
"""


def batches(definition: Definition, events: int) -> Iterator[dict[int, tuple[list[str], list[str]]]]:
    """Yield batches of two weeks with so many events a week: of each entity that has one the tiles that it changes.

    Four of five entities have an event in a batch, so rows have been packed at different times when the weeks are over.
    """
    chance, rounds = random.Random(5), round(2 * events / SHARE)
    moments = [sorted(START + int(chance.random() * WEEKS_S * SECOND) for _ in range(rounds)) for _ in range(ENTITIES)]
    held: list[dict[int, tuple[int, list[dict[str, Any]]]]] = [{} for _ in moments]  # of each step: index and events
    for number in range(rounds):
        batch = {}
        for entity, (newest, times) in enumerate(zip(held, moments, strict=True)):
            if chance.random() > SHARE:
                continue
            item, price = f"item-{chance.randrange(200):07}", round(chance.expovariate(1 / 40), 2)
            event = {"user": "u", "item": item, "price": price, "pieces": chance.randrange(5), "at": times[number]}
            names, values = [], []
            for step in definition.steps:
                index = times[number] // step
                some = [*newest[step][1], event] if newest.get(step, (None,))[0] == index else [event]
                newest[step] = index, some
                partials = [columns.partial(column, some) for column in definition.columns]
                names.append(field(step, index, definition.rings[step]))
                values.append(json.dumps([index, BATCH + number, *partials], separators=(",", ":")))
            batch[entity] = names, values
        yield batch


def measured(url: str, definition: Definition, events: int) -> float:
    """Write two weeks of events and return the bytes that Redis takes for an entity."""
    at = BuildPlace(f"bytes-{uuid.uuid4().hex[:8]}", definition.view, f"{definition.fingerprint}-00000000")
    for batch in batches(definition, events):
        rows = (framed_row(KEY.format(number), *tiles) for number, tiles in batch.items())
        write_rows(url, at, rows, 0, packs=definition)
    with connect(url) as client:
        keys = [row_key(at, KEY.format(number)) for number in range(ENTITIES)]
        used = [int(client.memory_usage(key, samples=0)) for key in keys]
        client.unlink(*keys)
    return sum(used) / len(used)


@pytest.mark.parametrize("events", [12, 60, 400])
@pytest.mark.parametrize("view", ["six", "eight"])
def test_the_model_is_near(cluster: Cluster, tmp_path: Path, view: str, events: int) -> None:
    app = projects.make(tmp_path, cluster.endpoints, f"bytes-{uuid.uuid4().hex[:8]}", STREAMS)
    definition = app.catalog.view(view).definition
    assert isinstance(definition, Definition)
    load = Load(rate=1_000 * events / WEEK_S, record_bytes=100, keys=1_000)
    modelled = size_view(definition, load, Constants()).result("online bytes, 30 days") / 1_000
    each = measured(app.online.address, definition, events)
    print(f"{view}, {events} events: {each:,.0f} bytes, {modelled:,.0f} in the model")
    assert modelled == pytest.approx(each, rel=0.15)
