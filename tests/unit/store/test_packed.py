"""Packed tiles: what comes back, what their bytes are, and that reads give the same as of tiles that are not packed."""

from __future__ import annotations

import json
import random
import struct
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leftfold.errors import StoreError
from leftfold.fold import sketches
from leftfold.fold.columns import Aggregate, Column, partial
from leftfold.fold.definition import Definition, Key, Origin, Windowed
from leftfold.fold.durations import SECOND
from leftfold.fold.values import Kind
from leftfold.store.layout import field
from leftfold.store.packed import HEAD, VERSION, Packed, unpack
from leftfold.store.packed import pack as pack_until
from leftfold.store.tile_read import TileRead

MINUTE, HOUR = 60 * SECOND, 3_600 * SECOND
Tile = tuple[int, bytes]  # (step, JSON value)


def definition(
    columns: Sequence[Column],
    windows: Sequence[tuple[int, int]] = ((HOUR, 5 * MINUTE),),
    log_time: Literal["broker", "producer"] = "producer",
) -> Definition:
    """A view with these columns, each over all of these windows with these steps.

    Where producers stamp the log, no tile is thinned: all come back as they were.
    """
    return Definition(
        view="users",
        origins=(Origin("clicks", 0, log_time),),
        stream=None,
        time="at",
        keys=(Key("user_id", "string"),),
        future=0,
        rules=(),
        columns=tuple(columns),
        features=tuple(
            Windowed(f"f{window}_{number}", (number,), window, step)
            for window, step in windows
            for number in range(len(columns))
        ),
    )


def column(aggregate: Aggregate, kind: Kind = "int", size: int = 0) -> Column:
    return Column(aggregate, None if aggregate == "count" else "field", kind, size=size)


TWO_STEPS = ((HOUR, 5 * MINUTE), (12 * HOUR, HOUR))
ALL = definition(
    [
        column("count"),
        column("sum", "float"),
        column("min", "float"),
        column("max", "datetime"),
        column("last", "string"),
        column("last", "bool"),
        column("last_n", "string", 3),
        column("last_n", "float", 2),
        column("distinct", "string", 9),
    ],
    TWO_STEPS,
)


def tile(step: int, index: int, batch: int, *partials: Any) -> Tile:
    return step, json.dumps([index, batch, *partials], separators=(",", ":")).encode()


def pack(view: Definition, rows: Sequence[tuple[bytes | None, Sequence[Tile]]]) -> list[bytes]:
    """Pack tiles that are all before the moment that a read may be of."""
    return pack_until(view, [(*row, -(2**63)) for row in rows])


def as_read(view: Definition, number: int, partial: Any) -> Any:
    """A partial as it comes back: of a sketch the same values, in order."""
    size = view.columns[number].size
    if view.columns[number].aggregate != "distinct" or not isinstance(partial, str):
        return partial
    try:
        found = sketches.coupons(partial, size)
    except ValueError:
        return partial
    return partial if found is None else sketches.text_of(found, size) if found else None


def plain(view: Definition, tiles: Sequence[Tile]) -> dict[int, list[tuple[Any, ...]]]:
    """The tiles that stay, one after another as a store would take them."""
    slots: dict[int, dict[int, list[Any]]] = {step: {} for step in view.steps}
    batch = -1
    for step, value in tiles:
        new = json.loads(value)
        batch = max(batch, new[1])
        slot = new[0] % view.rings[step]
        if slot not in slots[step] or slots[step][slot][0] <= new[0]:
            slots[step][slot] = new
    return {
        step: sorted((i, batch, *(as_read(view, n, p) for n, p in enumerate(rest))) for i, _, *rest in held.values())
        for step, held in slots.items()
    }


def assert_same(view: Definition, row: bytes, tiles: Sequence[Tile]) -> None:
    wanted = {step: sorted(some, key=lambda t: t[0]) for step, some in plain(view, tiles).items()}
    assert repr(unpack(view, row)) == repr(wanted)  # repr: 1 is not 1.0 is not true, and 0.0 is not -0.0


def assert_packs(view: Definition, *tiles: Tile) -> bytes:
    (row,) = pack(view, [(None, tiles)])
    assert_same(view, row, tiles)
    assert pack(view, [(row, ())]) == [row]
    grown: bytes | None = None
    for some in tiles:
        (grown,) = pack(view, [(grown, [some])])
    assert grown == row or not tiles
    return row


def of_one(aggregate: Aggregate, kind: Kind, *partials: Any, size: int = 0) -> bytes:
    """The packed value of a view of one column, whose partials are these."""
    view = definition([column(aggregate, kind, size)])
    return assert_packs(view, *(tile(5 * MINUTE, i, 7, partial) for i, partial in enumerate(partials)))


# Values --------------------------------------------------------------------------------------------------------------

BIG = 10**30
INTS = [0, 1, -1, 255, 256, -128, -129, 2**32, 10**18, 2**63 - 1, -(2**63)]


@pytest.mark.parametrize(
    "partials",
    [
        INTS,
        *([value] for value in INTS),
        [5_000_000, 120_000, 0],
        [-5_000_000, None, 120_000],
        [None, None],
        [None] * 9 + [1],
        [2**63, 1],
        [BIG, -BIG, None],
        [1, 2.0],
        [True, 1],
        [1e10, 3],
        [{"a": [1]}, "text", [1]],
    ],
)
def test_sums(partials: list[Any]) -> None:
    of_one("sum", "int", *partials)


@pytest.mark.parametrize(
    "partials",
    [
        [2.5, 12.34, 0.1],
        [0.1 + 0.2],
        [1e300, 5e-324],
        [-0.0, 0.0],
        [-0.0],
        [0.29, 0.57, 1.1],  # a multiplication by 0.01 would give others
        [2.0, 1e15, None],
        [2.0**53, 2.0**53 - 1],
        [2, 2.0],
        [1.000001, -3.5],
        [float("inf")],
    ],
)
def test_floats(partials: list[Any]) -> None:
    of_one("min", "float", *partials)
    of_one("last_n", "float", partials, [], None, partials[::-1], size=3)


@pytest.mark.parametrize(
    "texts",
    [
        ["a", "b", "a"],
        [""],
        ["", None, ""],
        ["\0"],
        ["a\0b", ""],
        ["ж", "😀", "e\u0301", '"\\\n'],
        ["\ud800", "a"],
        [f"item {i}" for i in range(11)] * 30,
    ],
)
def test_texts(texts: list[Any]) -> None:
    of_one("last", "string", *texts[:11])
    of_one("last_n", "string", [t for t in texts if t is not None], [], None, size=3)


@pytest.mark.parametrize("partials", [[True, False, None], [False], [10**40, 5], [1_767_614_400_000_000]])
def test_last_values(partials: list[Any]) -> None:
    of_one("last", "int", *partials)


def test_lists() -> None:
    of_one("last_n", "int", [1, 2], [], None, [3000])
    of_one("last_n", "int", [], [])
    of_one("last_n", "int", None, None)
    of_one("last_n", "bool", [True], [False, True])
    of_one("last_n", "int", [1, 2.0], [3])
    of_one("last_n", "int", [None], [[1]], [BIG], "text")
    of_one("last_n", "string", list(map(str, range(300))), size=300)


def image(*parts: bytes) -> str:
    return b64encode(b"".join(parts)).decode()


LIST_OF_ONE = bytes((2, 1, 7, 9, 3, 8, 1, 8))
SKETCHES = {
    **{f"{n} values": sketches.sketch([f"v{i}" for i in range(n)], 9) for n in (0, 1, 2, 7, 8, 24, 25, 60, 3_000)},
    "union": sketches.union([sketches.sketch([f"v{i}" for i in range(n)], 9) for n in (200, 300)], 9),
    "union of lists": sketches.union([sketches.sketch(["a"], 9), sketches.sketch(["b", "c"], 9)], 9),
    "the same coupon twice": image(bytes((2, 1, 7, 9, 3, 8, 2, 8)), b"\1\2\3\4" * 2),
    "of Spark, none": image(bytes((2, 1, 7, 9, 3, 4, 0, 8)), bytes(32)),
    "of Spark, one": image(bytes((2, 1, 7, 9, 3, 0, 1, 8)), b"\1\2\3\4", bytes(28)),
    "of Spark, seven": image(bytes((2, 1, 7, 9, 3, 0, 7, 8)), b"\1\2\3\4" * 7, bytes(4)),
    "of Spark, full": image(bytes((2, 1, 7, 9, 3, 0, 8, 8)), b"\1\2\3\4" * 8),
    "of Spark, with rests": image(bytes((2, 1, 7, 9, 3, 0, 1, 8)), b"\1\2\3\4", bytes(27), b"\1"),
    "of Spark, cut": image(bytes((2, 1, 7, 9, 3, 0, 1, 8)), b"\1\2\3\4", bytes(24)),
    "of another size": image(bytes((2, 1, 7, 10, 3, 8, 1, 8)), b"\1\2\3\4"),
    "with a flag": image(bytes((2, 1, 7, 9, 3, 24, 1, 8)), b"\1\2\3\4"),
    "a wrong count": image(LIST_OF_ONE, b"\1\2\3\4\5\6\7\10"),
    "one word": image(b"\1\2\3\4"),
    "no words": image(LIST_OF_ONE, b"\1\2\3"),
    "no bytes": "",
    "no base64": "coupons!",
    "spare bits": "AgEHCQMIAQgrV0Z=",
    "spare letters": sketches.sketch(["a"], 9) + "\n",
    "not ASCII": "é",
    "a number": 5,
}


def table(values: int) -> str:
    """A sketch of some values as Spark writes it: a table with empty places."""
    packed_ = sketches.coupons(sketches.sketch([f"v{i}" for i in range(values)], 9), 9)
    assert packed_ is not None
    places = [*packed_, *[0] * (32 - values)]
    return image(bytes((3, 1, 7, 9, 5, 0, 0, 9)), struct.pack("<I32I", values, *places[::-1]))


@pytest.mark.parametrize("values", [8, 20, 24])
def test_sketches_of_spark_take_no_more_bytes_than_others(values: int) -> None:
    view = definition([column("distinct", "string", size=9)])
    of_ours = sketches.sketch([f"v{i}" for i in range(values)], 9)
    ours, sparks = (pack(view, [(None, [tile(5 * MINUTE, 1, 1, text)])])[0] for text in (of_ours, table(values)))
    assert ours == sparks


def test_estimates_depend_on_the_values_alone() -> None:
    """So a sketch may come back in another order, and sketches may be merged as the set of their coupons."""
    chance = random.Random(1)
    for size in (8, 9, 12):
        for _ in range(60):
            texts = [
                sketches.sketch(
                    [f"v{chance.randrange(600)}" for _ in range(chance.choice((0, 3, 9, 20, 50, 500)))], size
                )
                for _ in range(chance.choice((1, 2, 9)))
            ]
            found = [sketches.coupons(text, size) for text in texts]
            partials = [text if some is None else some for some, text in zip(found, texts, strict=True)]
            wanted = sketches.estimate(library_union(texts, size), size)
            assert sketches.estimate(sketches.union(partials, size), size) == wanted
            mixed = [chance.choice(pair) for pair in zip(partials, texts, strict=True)]
            assert sketches.estimate(sketches.union(mixed, size), size) == wanted


def library_union(texts: Sequence[str], size: int) -> str:
    """A union as the library makes it, of texts alone."""
    return str(sketches.union([*texts, texts[0]], size))


@pytest.mark.parametrize("odd", SKETCHES)
def test_sketches(odd: str) -> None:
    of_one("distinct", "string", SKETCHES[odd], size=9)
    of_one("distinct", "string", None, SKETCHES["2 values"], SKETCHES[odd], SKETCHES["25 values"], size=9)


def test_a_sketch_of_few_values_is_its_coupons() -> None:
    few = [of_one("distinct", "string", sketches.sketch(map(str, range(n)), 9), size=9) for n in (2, 3, 8, 9)]
    assert [len(row) - len(few[0]) for row in few] == [0, 4, 24, 28]


def test_numbers_as_spark_writes_them() -> None:
    view = definition([column("sum", "float"), column("min", "float")])
    tiles = [(5 * MINUTE, b"[%d,1,%s]" % (i, text)) for i, text in enumerate((b"7,1.0E10", b"8,1.5E-5", b"1.0E10,2"))]
    assert_packs(view, *tiles)


def test_the_bytes_are_those_of_the_protocol() -> None:
    columns = [column("count"), column("count"), column("min", "float"), column("last_n", "string", 2)]
    view = definition([*columns, column("distinct", "string", 9)], TWO_STEPS)
    sketch = image(bytes((2, 1, 7, 9, 3, 8, 2, 8)), struct.pack("<II", 7, 5))
    tiles = [(HOUR, 400, 7, 300, 300, 12.34, ["b", "a"], sketch), (HOUR, 403, 9, 20, 20, None, ["a"], None)]
    body = struct.pack("<qIB", 0, 0, 9) + struct.pack("<qIB", 400, 2, 9)
    body += bytes((0, 0 + 16 * 1)) + bytes((7, 0)) + bytes((1 + 16, 1 + 16 * 2))
    body += bytes((4 + 8 + 3 * 32, 9)) + bytes((5 + 16 + 3 * 32, 2))
    body += b"b\0a" + bytes((0x03,)) + bytes((30, 2)) + bytes((1,)) + struct.pack("<H", 1234)
    body += bytes((0x21, 0x01, 0x10)) + bytes((1, 0x20)) + struct.pack("<II", 5, 7)
    # The first window holds until tile 403 leaves it, the second one until tile 400 does.
    seconds, words = [65 * 60, 10 * 3_600], 32 + len(body) - 8
    partials = [[20, 320], [20, 320], [None, 12.34], [["a"], ["a", "b"]], [None, [2, words, words + 8]]]
    made = [403 * HOUR, seconds, [True, True], [None, 403], partials]
    answers = json.dumps(made, separators=(",", ":")).encode()
    head = struct.pack("<BBHIIIqq", 1, 1, 0, 32 + len(body + answers), 3, len(answers), 9, -(2**63))
    assert assert_packs(view, *(tile(*each) for each in tiles)) == head + body + answers


# Tiles ---------------------------------------------------------------------------------------------------------------


def test_an_entity_without_tiles() -> None:
    assert pack(ALL, []) == []
    row = assert_packs(ALL)
    assert unpack(ALL, row) == {5 * MINUTE: [], HOUR: []}
    assert HEAD.unpack_from(row)[5] == -1


def test_a_view_without_windows() -> None:
    assert unpack(definition([column("count")], ()), assert_packs(definition([column("count")], ()))) == {}


def test_the_newest_tile_of_a_slot_stays() -> None:
    view = definition([column("count")])
    ring = view.rings[5 * MINUTE]
    old, new = tile(5 * MINUTE, 3, 8, 1), tile(5 * MINUTE, 3 + 2 * ring, 7, 2)
    for tiles in ((old, new), (new, old)):
        (row,) = pack(view, [(None, tiles)])
        assert unpack(view, row) == {5 * MINUTE: [(3 + 2 * ring, 8, 2)]}


def test_the_later_tile_of_an_index_stays() -> None:
    view = definition([column("count")])
    (row,) = pack(view, [(None, [tile(5 * MINUTE, 3, 8, n) for n in (1, 2)])])
    assert unpack(view, row) == {5 * MINUTE: [(3, 8, 2)]}
    (row,) = pack(view, [(row, [tile(5 * MINUTE, 3, 5, 3)])])
    assert unpack(view, row) == {5 * MINUTE: [(3, 8, 3)]}


@pytest.mark.parametrize("least", [0, -1, -17, 2**63 - 5, -(2**63)])
def test_indexes_of_64_bits(least: int) -> None:
    view = definition([column("count")])
    assert_packs(view, *(tile(5 * MINUTE, least + i, 1, i) for i in range(5)))
    assert_packs(
        view, tile(5 * MINUTE, least, 1, 1), tile(5 * MINUTE, 2**63 - 1, 1, 2), tile(5 * MINUTE, -(2**63), 1, 3)
    )


def test_a_text_that_no_tile_has_any_more_is_gone() -> None:
    view = definition([column("last", "string")])
    (row,) = pack(view, [(None, [tile(5 * MINUTE, 1, 1, "old"), tile(5 * MINUTE, 2, 1, "kept")])])
    (row,) = pack(view, [(row, [tile(5 * MINUTE, 1, 1, "new")])])
    assert [text in row for text in (b"old", b"kept", b"new")] == [False, True, True]


def test_an_odd_value_that_is_replaced_leaves_no_trace() -> None:
    view = definition([column("sum")])
    usual = [tile(5 * MINUTE, i, 1, i) for i in range(4)]
    (odd,) = pack(view, [(None, [*usual[:3], tile(5 * MINUTE, 3, 1, BIG)])])
    assert pack(view, [(odd, usual[3:])]) == pack(view, [(None, usual)])


# Any tiles -----------------------------------------------------------------------------------------------------------

TEXTS = st.text(max_size=3) | st.sampled_from(["i1", "i2", "i3"])
WHOLE = st.integers(-10, 300) | st.integers(-(10**30), 10**30) | st.sampled_from([10**6, 25 * 10**5])
FLOATS = st.floats(allow_nan=False) | st.integers(-(10**4), 10**4).map(lambda cents: cents / 100)
ODD = (
    st.none()
    | st.booleans()
    | WHOLE
    | FLOATS
    | TEXTS
    | st.lists(st.none() | WHOLE | TEXTS | st.lists(WHOLE), max_size=2)
)
USUAL: dict[tuple[str, str], st.SearchStrategy[Any]] = {
    ("count", "int"): st.integers(0, 2**40),
    ("sum", "float"): st.none() | WHOLE,
    ("min", "float"): st.none() | FLOATS,
    ("max", "datetime"): st.integers(-(2**60), 2**60),
    ("last", "string"): st.none() | TEXTS,
    ("last", "bool"): st.none() | st.booleans(),
    ("last_n", "string"): st.none() | st.lists(TEXTS, max_size=3),
    ("last_n", "float"): st.none() | st.lists(FLOATS, max_size=2),
    ("distinct", "string"): st.none() | st.sampled_from(list(SKETCHES.values())),
}


@st.composite
def entities(draw: st.DrawFn) -> list[list[list[Tile]]]:
    """Of some entities the tiles of each round."""
    clean = draw(st.sampled_from([True, True, False]))
    partials = [USUAL[c.aggregate, c.kind] for c in ALL.columns]
    if not clean:
        partials = [usual | ODD for usual in partials]
    indexes = st.integers(-20, 60) if clean else st.integers(-20, 60) | st.integers(-(2**63), 2**63 - 1)
    tiles = st.builds(tile, st.sampled_from(ALL.steps), indexes, st.integers(0, 2**40), *partials)
    rounds = draw(st.integers(1, 3))
    return draw(
        st.lists(st.lists(st.lists(tiles, max_size=6), min_size=rounds, max_size=rounds), min_size=1, max_size=4)
    )


@settings(max_examples=60, deadline=None)
@given(entities())
def test_rounds_of_packing_equal_a_plain_merge(every: list[list[list[Tile]]]) -> None:
    rows: list[bytes | None] = [None] * len(every)
    for tails in zip(*every, strict=True):
        rows = [*pack(ALL, list(zip(rows, tails, strict=True)))]
    together = [[each for tiles in rounds for each in tiles] for rounds in every]
    for row, tiles in zip(rows, together, strict=True):
        assert row is not None
        assert_same(ALL, row, tiles)
    assert pack(ALL, [(None, tiles) for tiles in together]) == rows
    alone = [pack(ALL, [(None, tiles)])[0] for tiles in together]
    assert alone == rows


# Reads ---------------------------------------------------------------------------------------------------------------

DAY = 24 * HOUR
WINDOWS = ((HOUR, 5 * MINUTE), (3 * HOUR, 5 * MINUTE), (DAY, HOUR), (2 * DAY, HOUR), (12 * DAY, DAY))
COLUMNS = [
    Column("count", None, "int"),
    Column("sum", "price", "float", scale=2),
    Column("min", "price", "float"),
    Column("max", "number", "int"),
    Column("last", "item", "string"),
    Column("last_n", "item", "string", size=3),
    Column("distinct", "item", "string", size=8),
]


def some_columns(view: Definition) -> Definition:
    """A view in which each window has other columns."""
    windows = sorted({f.window for f in view.windowed if f.window is not None})
    kept = [f for f in view.windowed if (f.columns[0] + windows.index(f.window or 0)) % 3]
    return replace(view, features=tuple(kept))


READ = definition(COLUMNS, WINDOWS, "broker")
# The shorter ones of one step are a part of the longer ones.
NESTED = definition(COLUMNS, ((HOUR, 5 * MINUTE), (DAY, HOUR), (2 * DAY, HOUR), (7 * DAY, HOUR)), "broker")
VIEWS = (READ, NESTED, some_columns(NESTED))


class Entity:
    """The tiles of random events: all of them, and as a store has them, of which some are packed."""

    def __init__(self, chance: random.Random, view: Definition) -> None:
        self.chance, self.view = chance, view
        self._events: dict[tuple[int, int], list[dict[str, Any]]] = {}
        self.loose: dict[bytes, bytes] = {}
        self.plain: dict[bytes, bytes] = {}
        self._packed: bytes | None = None
        self.newest = self._batch = 0

    def event(self, at: int) -> None:
        number = self.chance.randrange(60)
        event = {
            "at": at,
            "number": number,
            "item": None if number % 5 == 0 else f"i{number}",
            "price": None if number % 7 == 0 else self.chance.randrange(400) / 100,
        }
        self.newest, self._batch = max(self.newest, at), self._batch + 1
        for step in self.view.steps:
            events = self._events.setdefault((step, at // step), [])
            events.append(event)
            events.sort(key=lambda event: int(event["at"]))
            partials = [partial(column, events) for column in self.view.columns]
            name = field(step, at // step, self.view.rings[step]).encode()
            _, text = tile(step, at // step, self._batch, *partials)
            if name not in self.plain or json.loads(self.plain[name])[0] <= at // step:
                self.plain[name] = text
                self.loose[name] = text

    def pack(self) -> None:
        newest = {}
        for name in sorted(self.loose, key=lambda name: int(json.loads(self.loose[name])[0])):
            newest[name.partition(b":")[0]] = name
        old = {name: value for name, value in self.loose.items() if name not in newest.values()}
        tiles = [(int(name.partition(b":")[0]) * SECOND, value) for name, value in old.items()]
        at = self.newest - self.newest % self.view.steps[0]
        (self._packed,) = pack_until(self.view, [(self._packed, tiles, at)])
        self.loose = {name: value for name, value in self.loose.items() if name not in old}

    @property
    def held(self) -> dict[bytes, bytes]:
        return self.loose | ({} if self._packed is None else {b"packed": self._packed})


@pytest.mark.parametrize("view", VIEWS, ids=("mixed", "nested", "some"))
@pytest.mark.parametrize("seed", range(9))
def test_reads_of_packed_tiles_are_those_of_plain_ones(seed: int, view: Definition) -> None:
    """At every moment that a store answers, now and in the past, while events come, also late ones."""
    chance = random.Random(seed)
    entity, now = Entity(chance, view), 20_000 * DAY + chance.randrange(24) * HOUR
    pause = (20 * MINUTE, 3 * HOUR, 30 * HOUR)[seed % 3]
    compared = 0
    for _ in range(40):
        now += int(pause * chance.random() * chance.choice((0.1, 1, 2)))
        late = chance.choice((0, 0, 0, 2 * HOUR, 30 * HOUR)) * chance.random()
        entity.event(now - int(late))
        if chance.random() < 0.3:
            entity.pack()
        moments = [now + 1, *(now + chance.randrange(3 * DAY) for _ in range(4)), now + chance.randrange(14 * DAY)]
        for at in moments:
            compared += assert_same_read(entity, at, exact=False)
        for _ in range(2):
            edge = now - chance.randrange(DAY)
            assert_same_read(entity, edge - edge % view.steps[0], exact=True)
    assert compared > 100


@pytest.mark.parametrize("seed", range(3))
def test_an_answer_holds_exactly_as_long_as_it_says(seed: int) -> None:
    """A row is read at each of the finest steps, until all windows have passed it."""
    chance = random.Random(seed)
    entity, now = Entity(chance, READ), 20_000 * DAY
    for _ in range(25):
        now += int(5 * HOUR * chance.random() ** 3)
        entity.event(now)
    entity.pack()
    answers = Packed(READ, entity.held[b"packed"]).answers()
    assert answers is not None
    assert min(answers.seconds) > 0
    for at in range(now - now % READ.steps[0] + READ.steps[0], now + 14 * DAY, READ.steps[0]):
        assert_same_read(entity, at, exact=False)


def assert_same_read(entity: Entity, at: int, *, exact: bool) -> bool:
    """Compare a read of what is packed with one of plain tiles. Returns whether something was found."""
    view, finest = entity.view, entity.view.steps[0]
    tick = at - at % finest
    plan = TileRead(view, at, at, exact=True) if exact else TileRead(view, tick, tick + finest, exact=False)
    results: list[Any] = []
    for held in (entity.held, entity.plain):
        try:
            part = plan.values(held, at)
            results.append((repr(part.values), part.found))
        except StoreError as refused:
            results.append(refused.code)
    assert results[0] == results[1], (at, exact)
    return results[0][1] is True


# Faults --------------------------------------------------------------------------------------------------------------


def assert_unreadable(row: bytes) -> str:
    with pytest.raises(StoreError) as read:
        unpack(ALL, row)
    with pytest.raises(StoreError) as packed:
        pack(ALL, [(None, ()), (row, ()), (None, ())])
    assert read.value.code == packed.value.code == "packed-row-unreadable"
    return str(read.value)


def full_row() -> bytes:
    texts, sketch = ["i1", "ж"], SKETCHES["2 values"]
    tiles = [tile(HOUR, i, 1, i, BIG, 1.5, None, "i1", True, texts, [2.5], sketch) for i in range(3)]
    (row,) = pack(ALL, [(None, tiles)])
    return row


def test_a_row_of_another_version_is_refused() -> None:
    message = assert_unreadable(bytes((VERSION + 1,)) + full_row()[1:])
    assert f"version {VERSION + 1}" in message
    assert "leftfold rebuild users" in message


def test_a_row_that_was_cut_is_refused() -> None:
    row = full_row()
    for size in range(1, len(row)):
        assert_unreadable(row[:size])
    assert_unreadable(row + b"\0")
    with pytest.raises(StoreError):
        unpack(ALL, b"")


def test_a_text_that_is_missing_is_refused() -> None:
    view = definition([column("last", "string")])
    (row,) = pack(view, [(None, [tile(5 * MINUTE, i, 1, text) for i, text in enumerate("ab")])])
    wrong = row.replace(b"a\0b", b"a b")
    with pytest.raises(StoreError, match="packed-row-unreadable"):
        pack(view, [(wrong, ())])
    with pytest.raises(StoreError, match="packed-row-unreadable"):
        unpack(view, wrong)
