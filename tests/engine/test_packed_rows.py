"""Rows whose tiles are packed, in a real store: a reader gets what it gets of rows that are never packed."""

from __future__ import annotations

import json
import random
import uuid
from datetime import datetime
from typing import Any

import pytest

import leftfold as lf
from leftfold.fold import columns
from leftfold.fold.definition import Definition
from leftfold.fold.durations import SECOND
from leftfold.store.engine import BuildPlace
from leftfold.store.frames import framed_row
from leftfold.store.layout import field
from leftfold.store.opening import open_store
from leftfold.store.packer import FIELDS_AT_MOST, LOOSE_TILES, Packer
from leftfold.store.redis.client import connect
from leftfold.store.redis.link import Single
from leftfold.store.redis.rows import RedisRows
from leftfold.store.tile_read import TileRead, newest_batch
from leftfold.store.writer import write_rows
from tests.engine import stores
from tests.engine.conftest import Cluster
from tests.engine.stores import Inside

MINUTE, HOUR = 60 * SECOND, 3_600 * SECOND
START = 1_772_323_200 * SECOND


class Sale(lf.Event):
    shop: str
    item: str
    price: float
    pieces: int | None
    at: datetime


sales = lf.Topic("sales", Sale, key=Sale.shop, time=Sale.at, lateness="2h")


class Shop(lf.Features, of=sales, by=Sale.shop):
    n_1h = lf.count("1h")
    n_24h = lf.count("24h")
    spend_24h = lf.sum(Sale.price, "24h")
    least_24h = lf.min(Sale.price, "24h")
    pieces_3h = lf.max(Sale.pieces, "3h")
    last_3h = lf.last(Sale.item, "3h")
    recent_24h = lf.last_n(Sale.item, "24h", n=5)
    items_24h = lf.distinct(Sale.item, "24h")
    ever = lf.count(None)


DEFINITION: Definition = Shop.__leftfold_definition__
VIEW = DEFINITION.view
Batch = dict[str, dict[str, str]]  # entity -> field -> value


@pytest.fixture
def url(online_url: str) -> str:
    return online_url


@pytest.fixture
def inside(url: str) -> Inside:
    return stores.inside(url)


class History:
    """Events of some shops, and the rows that each batch of them writes: every tile that the batch changed."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._events: dict[str, list[dict[str, Any]]] = {}
        self.now = START
        self.number = -1

    def batch(self) -> Batch:
        chance = self._chance
        self.number += 1
        self.now += chance.choice((1, 5, 40, 400)) * MINUTE
        changed: dict[str, set[tuple[int, int]]] = {}
        for _ in range(chance.choice((1, 10, 60))):
            shop = f"s{min(chance.randrange(6), chance.randrange(6))}"
            at = self.now - int(chance.choice((1, 30, 115)) * MINUTE * chance.random())
            event = {
                "shop": shop,
                "item": f"i{chance.randrange(30)}",
                "price": round(chance.expovariate(1 / 40), 2),
                "pieces": chance.choice((None, 1, 7, -2)),
                "at": at,
            }
            self._events.setdefault(shop, []).append(event)
            changed.setdefault(shop, set()).update((step, at // step) for step in DEFINITION.steps)
        return {shop: self._row(shop, tiles) for shop, tiles in changed.items()}

    def everything(self) -> Batch:
        """All tiles of all shops, as a repair writes them."""
        tiles = {
            shop: {(step, event["at"] // step) for event in events for step in DEFINITION.steps}
            for shop, events in self._events.items()
        }
        return {shop: self._row(shop, which) for shop, which in tiles.items()}

    def _row(self, shop: str, tiles: set[tuple[int, int]]) -> dict[str, str]:
        row: dict[str, str] = {}
        for step, index in sorted(tiles):  # of one slot the newest tile comes last, and stays
            inside = [event for event in self._events[shop] if event["at"] // step == index]
            row[field(step, index, DEFINITION.rings[step])] = self._value(index, inside)
        row["life"] = self._value(max(event["at"] for event in self._events[shop]), self._events[shop])
        return row

    def _value(self, index: int, events: list[dict[str, Any]]) -> str:
        in_order = sorted(events, key=lambda event: event["at"])
        partials = [columns.partial(column, in_order) for column in DEFINITION.columns]
        return json.dumps([index, self.number, *partials], separators=(",", ":"))


class Rows:
    """The rows of one build, packed or not."""

    def __init__(self, url: str, inside: Inside, *, packs: bool) -> None:
        self._url, self._inside = url, inside
        self.at = BuildPlace("", VIEW, uuid.uuid4().hex)
        self._packs = DEFINITION if packs else None
        with open_store(url) as store:
            store.claim(self.at, 0)

    def write(self, batch: Batch, *, repairs: bool = False) -> None:
        rows = [framed_row(shop, list(row), list(row.values())) for shop, row in batch.items()]
        write_rows(self._url, self.at, rows, 600, packs=self._packs, repairs=repairs)

    def held(self, shop: str) -> dict[bytes, bytes]:
        return self._inside.row(self.at, shop)

    def values(self, shop: str, at: int, *, exact: bool) -> Any:
        """What a reader makes of a row, or that it is refused."""
        finest = DEFINITION.steps[0]
        at = at // finest * finest
        plan = TileRead(DEFINITION, at, at if exact else at + finest, exact=exact)
        try:
            part = plan.values(self.held(shop), at)
        except lf.StoreError as refused:
            return refused.code
        return repr(part.values), part.found


def shops() -> list[str]:
    return [f"s{number}" for number in range(6)]


def same(packed: Rows, plain: Rows, now: int) -> int:
    """Compare what both give, now, later, and at moments of the past day. Return how many reads found something."""
    compared = 0
    moments = [(now, False), (now + 3 * HOUR, False), *((now - back * 45 * MINUTE, True) for back in range(1, 32))]
    for shop in shops():
        for at, exact in moments:
            mine, theirs = packed.values(shop, at, exact=exact), plain.values(shop, at, exact=exact)
            assert mine == theirs, (shop, at, exact)
            compared += mine[1] if isinstance(mine, tuple) else 0
    return compared


@pytest.mark.parametrize("seed", range(2))
def test_reads_of_packed_and_plain_rows_are_the_same(url: str, inside: Inside, seed: int) -> None:
    """Events come out of order up to two hours late, batches are written twice, and once all is repaired."""
    history, chance = History(seed), random.Random(seed)
    packed, plain = Rows(url, inside, packs=True), Rows(url, inside, packs=False)
    compared = 0
    for _ in range(35):
        batch = history.batch()
        for _ in range(chance.choice((1, 1, 2))):
            packed.write(batch)
            plain.write(batch)
        if history.number == 30:
            everything = history.everything()
            packed.write(everything, repairs=True)
            plain.write(everything, repairs=True)
        if history.number % 5 == 0:
            compared += same(packed, plain, history.now)
    assert compared > 100
    assert any(b"packed" in packed.held(shop) for shop in shops())
    assert all(len(packed.held(shop)) <= FIELDS_AT_MOST for shop in shops())
    assert all(b"packed" not in plain.held(shop) for shop in shops())


def text(index: int, batch: int, counted: int) -> str:
    partials = [counted, *([None] * (len(DEFINITION.columns) - 1))]
    return json.dumps([index, batch, *partials], separators=(",", ":"))


def wide(batch: int, count: int, counted: int) -> dict[str, str]:
    """So many tiles of an hour."""
    return {field(HOUR, index, DEFINITION.rings[HOUR]): text(index, batch, counted) for index in range(count)}


def test_a_late_writer_does_not_bring_back_what_was_packed(url: str, inside: Inside) -> None:
    rows = Rows(url, inside, packs=True)
    rows.write({"s0": wide(5, LOOSE_TILES + 8, 50)})
    before = rows.held("s0")
    assert b"packed" in before
    rows.write({"s0": wide(4, LOOSE_TILES + 8, 40)})
    assert rows.held("s0") == before
    rows.write({"s0": wide(5, LOOSE_TILES + 8, 50)})  # its own batch once more
    assert newest_batch(rows.held("s0")) == 5


def test_a_repair_may_be_older_than_what_was_packed(url: str, inside: Inside) -> None:
    """Batch 6 was being written when the store went back to batch 3, and the last committed one is 5."""
    rows = Rows(url, inside, packs=True)
    rows.write({"s0": wide(6, LOOSE_TILES + 8, 60)})
    rows.write({"s0": wide(5, LOOSE_TILES + 8, 50)}, repairs=True)
    at, newest = (LOOSE_TILES + 8) * HOUR, LOOSE_TILES + 7
    taken = TileRead(DEFINITION, at, at + DEFINITION.steps[0], exact=False).rows(rows.held("s0"), at)
    assert len(taken) > 2
    # The newest tile was not packed, so it is of batch 6 still, as any field is.
    assert {row[2] for row in taken.values() if row[0] != newest} == {50}


def test_a_row_that_changed_meanwhile_is_not_packed(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """In Redis, where packing is a step of its own. In Postgres it is part of the transaction that holds the row."""
    url = cluster.endpoints.redis_url
    inside = stores.inside(url)
    rows = Rows(url, inside, packs=False)
    rows.write({"s0": wide(5, LOOSE_TILES + 8, 50)})
    name = field(HOUR, 3, DEFINITION.rings[HOUR])
    changed = text(3, 6, 66).encode()

    def meanwhile(self: Packer, row: dict[bytes, bytes]) -> dict[bytes, bytes]:
        inside.fill(rows.at, "s0", {name.encode(): changed})
        return was(self, row)

    was = Packer._old_tiles
    monkeypatch.setattr(Packer, "_old_tiles", meanwhile)
    with connect(url) as client:
        packer = Packer(DEFINITION, RedisRows(Single(client), rows.at))
        packer.add(["s0"])
        packer.finish()
        assert b"packed" not in rows.held("s0")
        assert rows.held("s0")[name.encode()] == changed
        monkeypatch.setattr(Packer, "_old_tiles", was)
        packer.add(["s0", "of nobody"])
        packer.finish()
    assert len(rows.held("s0")) == 3  # the newest tile, the packed ones, and their batch
    assert not rows.held("of nobody")


def test_a_packed_row_keeps_its_expiry(url: str, inside: Inside) -> None:
    rows = Rows(url, inside, packs=True)
    rows.write({"s0": wide(5, LOOSE_TILES + 8, 50)})
    assert b"packed" in rows.held("s0")
    assert 0 < inside.ttl(rows.at, "s0") <= 600
