"""The cases of docs/reference/conformance.json: what a store holds of a row, and what a reader makes of it.

For readers in other languages, who have only docs/reference/protocol.md. What is held is made from events by the
partials of leftfold.fold, what is expected by the meaning of the features, without tiles.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from zlib import crc32

import leftfold as lf
from leftfold.fold import columns
from leftfold.fold.compute import compute
from leftfold.fold.definition import Definition
from leftfold.fold.expressions import from_micros, to_micros
from leftfold.fold.latest import Latest
from leftfold.fold.sketches import sketch
from leftfold.fold.values import entity_text
from leftfold.store.layout import LIFETIME_FIELD, PACKED_BATCH_FIELD, PACKED_FIELD, ROW_FIELD, Build, manifest
from leftfold.store.layout import field as field_name
from leftfold.store.packed import batch_of, pack
from tests.unit.declare.declared import NOON

AT = to_micros(NOON)
S, M, H, D = (int(timedelta(**{unit: 1}).total_seconds() * 1e6) for unit in ("seconds", "minutes", "hours", "days"))
BATCH, GENERATION = 7, "00000000"


class Click(lf.Event):
    user_id: str
    shop: int = 1
    item: str | None = None
    price: float | None = None
    pieces: int | None = None
    gift: bool | None = None
    seen: datetime | None = None
    at: datetime


class ItemUpdate(lf.Event):
    item_id: str
    category: str | None = None
    price: float | None = None
    tags: list[str] | None = None
    since: datetime | None = None


ANY: Any = Click  # a checker knows no order of float | None; what is missing does not count
clicks = lf.Topic("clicks", Click, key=Click.user_id, time=Click.at)
items = lf.Topic("items", ItemUpdate, key=ItemUpdate.item_id, compacted=True)


class Sums(lf.Features, of=clicks, by=Click.user_id):
    clicks_1h = lf.count("1h")
    dear_1h = lf.count("1h", where=(ANY.price > 100) & (ANY.item != "x"))
    spend_1h = lf.sum(Click.price, "1h")
    cents_24h = lf.sum(Click.price, "24h", scale=2)
    pieces_1h = lf.sum(Click.pieces, "1h")
    price_1h = lf.mean(Click.price, "1h")


class Extremes(lf.Features, of=clicks, by=Click.user_id):
    cheapest = lf.min(Click.price, "1h")
    dearest = lf.max(Click.price, "1h").default(-1.0)
    fewest = lf.min(Click.pieces, "1h")
    latest = lf.max(Click.seen, "1h").default(NOON)


class Lasts(lf.Features, of=clicks, by=Click.user_id):
    item = lf.last(Click.item, "1h").default("none")
    price = lf.last(Click.price, "1h")
    gift = lf.last(Click.gift, "1h")
    seen = lf.last(Click.seen, "1h")
    items = lf.last_n(Click.item, "1h", n=3)
    moments = lf.last_n(Click.seen, "1h", n=2)


class Distinct(lf.Features, of=clicks, by=Click.user_id):
    items = lf.distinct(Click.item, "1h", lg_k=8)
    pieces = lf.distinct(Click.pieces, "1h")


class Ever(lf.Features, of=clicks, by=Click.user_id):
    ever = lf.count(None)
    fading = lf.sum(Click.pieces, None, ttl="1d")
    items = lf.last_n(Click.item, None, n=2, ttl="1d")
    clicks_1h = lf.count("1h")


class Derived(lf.Features, of=clicks, by=Click.user_id):
    clicks_1h = lf.count("1h")
    pieces = lf.sum(Click.pieces, "1h")
    spend = lf.sum(Click.price, "1h").default(0)
    per_click = spend / clicks_1h
    per_piece = (spend / pieces).default(-1.0)
    squared = pieces * pieces
    left = 10 - pieces + lf.count("24h")
    huge = lf.max(Click.price, "1h") * 1e300


class Steps(lf.Features, of=clicks, by=(Click.user_id, Click.shop)):
    n_12s = lf.count("12s")
    n_10m = lf.count("10m")
    n_odd = lf.count("61m", step="10s")
    n_24h = lf.count("24h")


class Week(lf.Features, of=clicks, by=Click.user_id):
    n_7d = lf.count("7d")
    spend_7d = lf.sum(Click.price, "7d")
    cheapest_7d = lf.min(Click.price, "7d")
    most_3d = lf.max(Click.pieces, "3d")
    item_7d = lf.last(Click.item, "7d")
    items_7d = lf.last_n(Click.item, "7d", n=4)
    gifts_3d = lf.last_n(Click.gift, "3d", n=70)
    different_7d = lf.distinct(Click.item, "7d", lg_k=8)
    different_1h = lf.distinct(Click.item, "1h", lg_k=8)
    n_20d = lf.count("20d")


class Item(lf.Table, of=items, by=ItemUpdate.item_id):
    category = ItemUpdate.category
    cost = lf.latest(ItemUpdate.price).default(9.5)
    tags = ItemUpdate.tags
    since = ItemUpdate.since


VIEWS: tuple[Any, ...] = (Sums, Extremes, Lasts, Distinct, Ever, Derived, Steps, Week, Item)
Event = dict[str, Any]


@dataclass(frozen=True)
class Case:
    name: str
    view: Any
    events: Sequence[Event] = ()
    at: int = AT
    newest: int | None = None  # of the whole view; by default of these events
    key: Mapping[str, Any] = field(default_factory=lambda: {"user_id": "u"})
    held: Mapping[str, str] | None = None  # by default what these events leave
    refused: str | None = None
    late: bool = False  # the last one of the events came after the others were packed

    def document(self) -> dict[str, Any]:
        definition = self.view.__leftfold_definition__
        newest = self.newest if self.newest is not None else max((e["at"] for e in self.events), default=0)
        made = {
            "name": self.name,
            "view": definition.view,
            "key": self.key,
            "entity": entity_text(tuple(self.key.values())),
            "newest": newest,
            "held": dict(held_of(definition, self.events) if self.held is None else self.held),
            "at": self.at,
        }
        if isinstance(definition, Definition):
            before = dict(held_of(definition, self.events[:-1])) if self.late else made["held"]
            if packed := packed_of(definition, before):
                changed = {name: value for name, value in made["held"].items() if before.get(name) != value}
                made["held_packed"] = packed | changed
        if self.refused:
            return {**made, "refused": self.refused}
        values, found = expected(definition, made["held"], self.events, self.at)
        return {**made, "found": found, "expected": {name: plain(value) for name, value in values.items()}}


def held_of(definition: Definition, events: Sequence[Event]) -> Iterator[tuple[str, str]]:
    """A later tile takes the slot of an earlier one."""
    in_order = sorted(events, key=lambda e: int(e["at"]))
    for step in definition.steps:
        for index in sorted({e["at"] // step for e in in_order}):
            of_tile = [e for e in in_order if e["at"] // step == index]
            yield field_name(step, index, definition.rings[step]), tile(definition, index, of_tile)
    if definition.lifetime and in_order:
        yield LIFETIME_FIELD, tile(definition, in_order[-1]["at"], in_order)


def packed_of(definition: Definition, held: Mapping[str, str]) -> dict[str, str]:
    """The same row with all tiles packed but the newest of each step. `packed` is in hexadecimal."""
    tiles = {name: value for name, value in held.items() if name != LIFETIME_FIELD}
    newest: dict[str, str] = {}
    for name in sorted(tiles, key=lambda name: int(json.loads(tiles[name])[0])):
        newest[name.partition(":")[0]] = name
    old = [name for name in tiles if name not in newest.values()]
    if not old:
        return {}
    start = max(int(name.partition(":")[0]) * S * json.loads(held[name])[0] for name in newest.values())
    (value,) = pack(
        definition, [(None, [(int(name.partition(":")[0]) * S, tiles[name].encode()) for name in old], start)]
    )
    kept = {name: value for name, value in held.items() if name not in old}
    return {**kept, PACKED_FIELD: value.hex(), PACKED_BATCH_FIELD: f"{batch_of(value)}:{crc32(value):08x}"}


def tile(definition: Definition, head: int, events: Sequence[Event]) -> str:
    partials = [columns.partial(column, events) for column in definition.columns]
    return json.dumps([head, BATCH, *partials], separators=(",", ":"), ensure_ascii=False)


def expected(
    definition: Definition | Latest, held: Mapping[str, str], events: Sequence[Event], at: int
) -> tuple[dict[str, Any], bool]:
    if isinstance(definition, Latest):
        row = json.loads(held[ROW_FIELD])[2:] if held else []
        return definition.row(row or None), bool(row)
    starts = [at - f.window - (at - f.window) % f.step for f in definition.windowed if f.window is not None]
    reached = [e for e in events if min(starts) <= e["at"] < at]
    ttls = [at - f.ttl if f.ttl is not None else 0 for f in definition.windowed if f.window is None]
    alive = any(e["at"] >= min(ttls) for e in events) if ttls else False
    return compute(definition, events, at), bool(reached) or alive


def plain(value: Any) -> Any:
    if isinstance(value, list):
        return [plain(v) for v in value]
    return {"micros": to_micros(value)} if isinstance(value, datetime) else value


def click(before: int, **fields: Any) -> Event:
    """An event `before` µs before noon."""
    nothing = dict.fromkeys(("item", "price", "pieces", "gift", "seen"))
    return {"user_id": "u", "shop": 1, **nothing, **fields, "at": AT - before}


BUYS = (
    click(2 * H, price=1.0, pieces=1, item="old"),
    click(H, price=0.1, pieces=3, item="a", gift=True, seen=5),  # the first microsecond of the window
    click(30 * M, price=250.0, item="b", seen=AT - 1),
    click(30 * M, price=0.2, pieces=-2, item="x", gift=False),  # a tie: the later in the log
    click(1, item='é"\\', price=None, pieces=4),
)
MANY = tuple(click(50 * M - i * S, item=f"item {i}", pieces=i % 50) for i in range(300))
_TIMES = (26 * H, 24 * H, 61 * M + 1, 10 * M, 10 * M + 1, 12 * S, 12 * S + 1, 5 * S, 1)
# Six days with an event each 50 minutes or so: older tiles are thinned.
DAYS = tuple(
    click(
        i * 50 * M + i * i * S,
        item=f"i{i * i % 23}" if i % 7 else None,
        price=(i * 37 % 101) / 4,
        pieces=i % 11,
        gift=i % 3 > 0,
    )
    for i in range(1, 170)
)
SOME = tuple(click(2 * H + i * S, item=f"item {i}") for i in range(15))
SPREAD = tuple(click(before) for before in _TIMES)
ROW = {ROW_FIELD: '[41,7,"toys",3,["a","b"],1767614400000000]'}
AN_ITEM = {"item_id": "i"}
EARLIER, NOT_KEPT = AT - 10 * M, "moment-not-kept"


def pieces(*values: int) -> tuple[Event, ...]:
    return tuple(click(before, pieces=value) for before, value in enumerate(values, 1))


def prices(*values: float) -> tuple[Event, ...]:
    return tuple(click(before, price=value) for before, value in enumerate(values, 1))


def empty_sketches() -> dict[str, str]:
    """As Spark writes a tile in which no value was: not null, but sketches of nothing."""
    index, ring = AT // (5 * M) - 1, Distinct.__leftfold_definition__.rings[5 * M]
    return {field_name(5 * M, index, ring): f'[{index},{BATCH},"{sketch([], 8)}","{sketch([], 9)}"]'}


CASES: tuple[Case, ...] = (
    Case("counts, sums and a mean", Sums, BUYS),
    Case("a window begins at a step: at 12:04:59.999999 still at 11:00", Sums, BUYS, at=AT + 5 * M - 1),
    Case("and at 12:05 at 11:05", Sums, BUYS, at=AT + 5 * M),
    Case("nothing is held", Sums),
    Case("all that is held lies outside the windows", Sums, BUYS, at=AT + 3 * D),
    Case("a slot holds a tile of an earlier round", Sums, (click(110 * M, price=1.0), click(1))),
    Case("a float too large for its sum", Sums, (*BUYS, click(2, price=1e300))),
    Case("two that are too large do not cancel", Sums, prices(1e300, -1e300)),
    Case("a sum of ints that leaves 64 bits", Sums, pieces(2**63 - 1, 1)),
    Case("partials that exceed 64 bits", Sums, (click(20 * M, pieces=-1), *pieces(2**62, 2**62)), at=AT + 5 * M),
    Case("half a unit goes up, below zero too", Sums, prices(0.005, -0.005, -0.015)),
    Case("a moment at the edge of a tile, before the newest event", Sums, BUYS, at=EARLIER),
    Case("the same of a row that holds nothing", Sums, newest=AT, at=EARLIER),
    Case("a moment inside a tile, before the newest event", Sums, BUYS, at=EARLIER + 1, refused=NOT_KEPT),
    Case("a moment whose tiles were overwritten", Sums, (*BUYS, click(-3 * H)), at=EARLIER, refused=NOT_KEPT),
    Case("extremes", Extremes, BUYS),
    Case("a zero has no sign", Extremes, prices(0.0, -0.0)),
    Case("defaults of extremes", Extremes, (click(1),)),
    Case("newest values, ties by the log", Lasts, BUYS),
    Case("newest values of nothing", Lasts, (click(1),)),
    Case("sketches of few values", Distinct, (*BUYS, click(1, item=""))),
    Case("sketches of many values, in several tiles", Distinct, MANY),
    Case("empty sketches", Distinct, (click(1),), held=empty_sketches()),
    Case("everything that ever happened", Ever, (click(400 * D, pieces=2, item="a"), *BUYS)),
    Case("the last microsecond of a ttl", Ever, BUYS, at=AT - 1 + D),
    Case("a microsecond later", Ever, BUYS, at=AT + D),
    Case("a lifetime has no past", Ever, BUYS, at=EARLIER, refused=NOT_KEPT),
    Case("formulas", Derived, BUYS),
    Case("formulas of what is missing, and a divisor of 0", Derived),
    Case("a formula that leaves 64 bits, one that is not finite", Derived, (click(1, pieces=2**32, price=1e12),)),
    Case("tiles of several steps, and a key of two parts", Steps, SPREAD, key={"user_id": "u:1", "shop": -7}),
    Case("at an edge of the finest step", Steps, SPREAD, at=AT - 5 * S, key={"user_id": "é", "shop": 7}),
    Case("a sketch of more than eight values", Week, (*SOME, click(1, item="item 3"))),
    Case("a week of tiles", Week, DAYS),
    Case("a week of tiles, three hours later", Week, DAYS, at=AT + 3 * H),
    Case("a week of tiles, two days later", Week, DAYS, at=AT + 2 * D),
    Case("a week of tiles, a month later", Week, DAYS, at=AT + 30 * D),
    Case("a week of tiles, and a late record", Week, (*DAYS, click(40 * M, item="late", price=0.25)), late=True),
    Case("a week of tiles, as it was twelve hours ago", Week, DAYS, at=AT - 12 * H),
    Case("a row", Item, key=AN_ITEM, held=ROW),
    Case("a row of nulls", Item, key=AN_ITEM, held={ROW_FIELD: "[41,7,null,null,null,null]"}),
    Case("a row that was deleted", Item, key=AN_ITEM, held={ROW_FIELD: "[42,7]"}),
    Case("a row that never was", Item, key=AN_ITEM, held={}),
)


def document(cases: Sequence[Case] = CASES) -> str:
    """One line per view and per case, so that a diff shows which changed."""
    views = {
        view.__leftfold_definition__.view: json.loads(manifest(Build(view.__leftfold_definition__, GENERATION)))
        for view in VIEWS
    }
    lines = [f"  {json.dumps(name)}: {_line(made)}" for name, made in views.items()]
    lined = [f"  {_line(case.document())}" for case in cases]
    return '{"views": {\n' + ",\n".join(lines) + '\n},\n"cases": [\n' + ",\n".join(lined) + "\n]}\n"


def _line(made: Any) -> str:
    return json.dumps(made, ensure_ascii=False, allow_nan=False)


def read_back(value: Any) -> Any:
    """What `plain` made, as a reader gives it."""
    if isinstance(value, list):
        return [read_back(v) for v in value]
    return from_micros(value["micros"]) if isinstance(value, dict) else value
