"""Why a value is what it is, of rows and records that were made by hand."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
from rich.console import Console

import leftfold as lf
from leftfold import clock
from leftfold.cli.why_verb import _numbers, as_document, show
from leftfold.declare.catalog import DeclaredView
from leftfold.fold import columns
from leftfold.fold.definition import Definition
from leftfold.fold.expressions import to_micros
from leftfold.fold.tiles import floor
from leftfold.kafka.encode import json_encoder
from leftfold.kafka.log_reader import Logged
from leftfold.kafka.partitioner import partition_of
from leftfold.run import why as whys
from leftfold.run.why import Sources, Why
from leftfold.settings import Kafka, Profile
from leftfold.store.layout import LIFETIME_FIELD, LedgerRow
from leftfold.store.layout import field as tile_field
from tests.unit.declare.declared import NOON
from tests.unit.store.held import HeldStore

PARTITIONS = 4


class Sale(lf.Event):
    shop: str
    item: str
    price: float
    at: datetime


sales = lf.Topic("sales", Sale, key=Sale.shop, time=Sale.at, partitions=PARTITIONS, format="json", lateness="10m")


class Shops(lf.Features, of=sales, by=Sale.shop):
    sales_1h = lf.count("1h")
    turnover_24h = lf.sum(Sale.price, "24h")
    last_24h = lf.last(Sale.item, "24h")
    average = turnover_24h / lf.count("24h")


class Items(lf.Features, of=sales, by=Sale.item):
    ever = lf.count(None)
    shops_1h = lf.distinct(Sale.shop, "1h")


updates = lf.Topic("updates", Sale, key=Sale.item, partitions=PARTITIONS, format="json", compacted=True)


class Item(lf.Table, of=updates, by=Sale.item):
    shop = Sale.shop
    since = Sale.at


@dataclass
class World:
    """A topic, a store and what connects them, all in memory."""

    of: type[lf.Features] | type[lf.Table]
    records: list[Logged] = field(default_factory=list)
    store: HeldStore = field(default_factory=HeldStore)
    deleted_below: int = 0
    asked: list[dict[int, tuple[int, int]]] = field(default_factory=list)

    @property
    def declared(self) -> DeclaredView:
        return DeclaredView.of(self.of)

    def log(self, value: bytes | None, key: str, *, log: datetime, partition: int | None = None) -> Logged:
        where = partition_of(key.encode(), PARTITIONS) if partition is None else partition
        offset = sum(r.partition == where for r in self.records)
        record = Logged("t", where, offset, to_micros(log), True, key.encode(), value)
        self.records.append(record)
        return record

    def sale(
        self, shop: str, minutes: float, *, late: float = 0.0, partition: int | None = None, **fields: Any
    ) -> Logged:
        at = NOON - timedelta(minutes=minutes)
        record = {"shop": shop, "item": f"i{minutes:g}", "price": 1.5, **fields, "at": at}
        key = record[self.declared.reading.topics[0].key[0].name]
        return self.log(json_encoder(Sale)(record), key, log=at + timedelta(minutes=late), partition=partition)

    def keep(self, entity: str, events: list[Mapping[str, Any]]) -> dict[str, bytes]:
        """The tiles of these events, as batch 3 writes them."""
        definition = self.declared.definition
        assert isinstance(definition, Definition)
        row: dict[str, bytes] = {}
        for step in definition.steps:
            for start in {floor(e["at"], step) for e in events}:
                mine = [e for e in events if floor(e["at"], step) == start]
                index = start // step
                partials = [columns.partial(c, mine) for c in definition.columns]
                row[tile_field(step, index, definition.rings[step])] = json.dumps([index, 3, *partials]).encode()
        if definition.lifetime and events:
            partials = [columns.partial(c, events) for c in definition.columns]
            row[LIFETIME_FIELD] = json.dumps([max(e["at"] for e in events), 3, *partials]).encode()
        self.publish({entity: row})
        return row

    def publish(self, rows: Mapping[str, Mapping[str, bytes]]) -> None:
        definition = self.declared.definition
        assert not isinstance(definition, lf.View)
        self.store.publish(definition, rows, newest=to_micros(NOON) - 1)
        (mark,) = (h for name, h in self.store.hashes.items() if ":mark:" in name)
        for partition in {r.partition for r in self.records}:
            newest = max(r.offset for r in self.records if r.partition == partition)
            row = LedgerRow(self.declared.reading.topics[0].name, partition, "accepted", 1, 0, 0, newest)
            mark[row.name] = row.entry.encode()

    def ask(self, **key: Any) -> Why:
        topic = self.declared.reading.topics[0].name
        admin = SimpleNamespace(partitions=lambda names: {name: PARTITIONS for name in names if name == topic})
        sources = Sources(self.store.reader(), Kafka(bootstrap="b"), admin, None, Profile(name="local"))  # type: ignore[arg-type]
        with (
            patch.object(whys, "LogReader", lambda _: self),
            patch.object(clock, "now_us", return_value=to_micros(NOON)),
        ):
            return whys.why(self.declared, key, None, sources, lambda _done, _total: None)

    # What a LogReader does

    def firsts(self, _: str, partitions: list[int], since_us: int | None = None) -> dict[int, int | None]:
        return {
            p: min(
                (
                    r.offset
                    for r in self.records
                    if r.partition == p and r.log_us >= (since_us or 0) and r.offset >= self.deleted_below
                ),
                default=None,
            )
            for p in partitions
        }

    def read(self, _: str, ranges: dict[int, tuple[int, int]], *, first_log: bool) -> Iterator[Logged]:
        assert not first_log, "no topic here has copied records"
        self.asked.append(ranges)
        for record in self.records:
            start, end = ranges.get(record.partition, (0, 0))
            if start <= record.offset < end:
                yield record

    def close(self) -> None:
        pass


def fields(*records: Logged) -> list[Mapping[str, Any]]:
    read = [json.loads(r.value or b"") for r in records]
    return [{**r, "at": to_micros(datetime.fromisoformat(r["at"]))} for r in read]


@pytest.fixture
def shops() -> World:
    """Two sales of shop s, out of order, a late one, one that is no record, and others'."""
    world = World(Shops)
    world.sale("other", 5, partition=partition_of(b"s", PARTITIONS))
    newer, older = world.sale("s", 2, price=2.5), world.sale("s", 30)
    world.sale("s", 50, late=11)
    world.log(b"nonsense", "s", log=NOON)
    world.keep("s", sorted(fields(newer, older), key=lambda e: int(e["at"])))
    return world


def outcomes(found: Why) -> list[tuple[int, str]]:
    return [(e.record.offset, e.record.outcome) for e in found.events]


def test_one_event_gives_what_the_store_gives() -> None:
    world = World(Shops)
    world.keep("s", fields(world.sale("s", 2)))
    assert world.ask(shop="s").reason == "1 accepted event in the log gives the values that the store gives"


def test_the_events_give_what_the_store_gives(shops: World) -> None:
    found = shops.ask(shop="s")
    assert (found.verdict, found.reason) == (
        "same",
        "2 accepted events in the log give the values that the store gives",
    )
    assert {v.name: v.store for v in found.values} == {
        "sales_1h": 2,
        "turnover_24h": 4.0,
        "last_24h": "i2",
        "average": 2.0,
    }
    assert outcomes(found) == [(3, "late"), (2, "accepted"), (1, "accepted"), (4, "rejected")]
    assert [e.tiles != () for e in found.events] == [False, True, True, False]
    assert {r.partition for r in found.found.ranges} == {partition_of(b"s", PARTITIONS)}  # type: ignore[union-attr]
    assert all(tile.store == tile.log and tile.batch == 3 for tile in found.tiles)
    by_name = {v.name: v.tiles for v in found.values}
    assert set(by_name["average"]) == set(by_name["turnover_24h"])


def test_only_what_was_applied_counts(shops: World) -> None:
    """What came since is in the log, and no part of the answer."""
    shops.sale("s", 1)
    found = shops.ask(shop="s")
    assert (found.verdict, len(found.events)) == ("same", 4)


def test_a_tile_that_the_events_did_not_make(shops: World) -> None:
    row = shops.keep("s", fields(*[r for r in shops.records if r.offset in (1, 2)]))
    name = next(name for name in row if name.startswith("3600:"))  # the whole hour before noon is one tile
    index, batch, count, *rest = json.loads(row[name])
    shops.publish({"s": {**row, name: json.dumps([index, batch, count + 7, *rest]).encode()}})
    found = shops.ask(shop="s")
    assert found.verdict == "different"
    assert [t.store[0] - t.log[0] for t in found.tiles if t.store != t.log] == [7]
    assert len(shops.asked) == 2, "it looked for the key in other partitions too"


def test_a_tile_that_is_missing(shops: World) -> None:
    shops.publish({"s": {}})
    found = shops.ask(shop="s")
    assert found.verdict == "different"
    assert {t.batch for t in found.tiles} == {None}


def test_a_producer_that_puts_the_key_elsewhere() -> None:
    world = World(Shops)
    there, here = world.sale("s", 2, partition=(partition_of(b"s", PARTITIONS) + 1) % PARTITIONS), world.sale("s", 3)
    world.keep("s", fields(here, there))
    found = world.ask(shop="s")
    assert (found.verdict, len(found.events)) == ("same", 2)


def test_records_that_are_gone_prove_nothing(shops: World) -> None:
    shops.deleted_below = 2
    found = shops.ask(shop="s")
    assert found.verdict == "unknown"
    assert "older records are gone" in found.reason


def test_a_batch_that_is_half_written(shops: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whys, "_STILL_S", 0.0)
    row = shops.keep("s", fields(shops.records[1]))
    shops.publish({"s": {name: value.replace(b", 3, ", b", 4, ", 1) for name, value in row.items()}})
    found = shops.ask(shop="s")
    assert (found.verdict, found.reason) == (
        "unknown",
        "a batch after 3 is being written, or was left half written",
    )


def test_another_key_than_the_topics_is_looked_for_everywhere() -> None:
    world = World(Items)
    mine = [world.sale(shop, 90 - i, item="x") for i, shop in enumerate(["a", "b", "c", "a"])]
    world.sale("a", 4, item="y")
    world.keep("x", fields(*mine))
    found = world.ask(item="x")
    assert found.verdict == "same"
    assert {v.name: v.store for v in found.values} == {"ever": 4, "shops_1h": 0}
    assert len(found.events) == 4
    assert [t.step for t in found.tiles if t.step is None] == [None]


def test_a_row_of_a_table() -> None:
    world = World(Item)
    world.sale("a", 9, item="x")
    newest = world.sale("b", 8, item="x")
    world.publish({"x": {"row": json.dumps([newest.offset, 2, "b", to_micros(NOON) - 8 * 60_000_000]).encode()}})
    found = world.ask(item="x")
    assert (found.kind, found.verdict, found.position) == ("table", "same", (newest.offset, 2))
    world.log(None, "x", log=NOON)
    world.publish({"x": {"row": b"[2, 3]"}})
    found = world.ask(item="x")
    assert (found.verdict, found.values[0].store) == ("same", None)
    world.publish({"x": {"row": b'[1, 3, "b", null]'}})
    assert world.ask(item="x").verdict == "different"


def test_a_stream_cannot_be_folded_here(shops: World) -> None:
    with patch.object(Shops, "__leftfold_definition__", replace(Shops.__leftfold_definition__, stream="f")):
        shops.store = HeldStore()
        shops.publish({"s": {}})
        found = shops.ask(shop="s")
    assert (found.verdict, found.found) == ("unknown", None)
    assert "only Spark" in found.reason


# What is printed ----------------------------------------------------------------------------------------------------


def printed(found: Why, key: str = "s", shown: int | None = None) -> str:
    console = Console(file=io.StringIO(), width=100, highlight=False)
    show(found, key, console, shown=shown)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert all(len(line.rstrip()) <= 100 for line in text.splitlines())
    return str(text)


def test_people_see_tiles_events_and_the_verdict(shops: World) -> None:
    text = printed(shops.ask(shop="s"))
    assert "shops s" in text
    assert "sales/" in text
    assert "late" in text
    assert text.rstrip().endswith("✓ 2 accepted events in the log give the values that the store gives")


def test_text_of_events_is_no_markup() -> None:
    world = World(Shops)
    world.keep("[b]s[/b]", fields(world.sale("[b]s[/b]", 2, item="[red]x")))
    text = printed(world.ask(shop="[b]s[/b]"), "[b]s[/b]")
    assert "shops [b]s[/b]" in text
    assert "item=[red]x" in text
    assert "last(item) [red]x" in text


def test_the_oldest_are_left_out(shops: World) -> None:
    text = printed(shops.ask(shop="s"), shown=1)
    assert "… and 3 older events: --all shows them" in text
    assert "late" not in text


def test_programs_get_all_of_it(shops: World) -> None:
    document = json.loads(json.dumps(as_document(shops.ask(shop="s"))))
    assert document["verdict"] == "same"
    assert document["events"][2]["log_time"] == "2026-01-05T11:58:00+00:00"
    assert document["events"][3] == {
        "topic": "sales",
        "partition": partition_of(b"s", PARTITIONS),
        "offset": 4,
        "event_time": None,
        "log_time": "2026-01-05T12:00:00+00:00",
        "outcome": "rejected",
        "deleted": False,
        "tiles": [],
        "fields": None,
    }


@pytest.mark.parametrize(("numbers", "text"), [((), ""), ((4,), "4"), ((1, 2, 3), "1–3"), ((1, 3, 4, 9), "1 3–4 9")])
def test_runs_of_numbers(numbers: tuple[int, ...], text: str) -> None:
    assert _numbers(numbers) == text
