"""The algebra in Catalyst against the oracle of tests/unit/fold: tiles, features at a moment, formulas.

Needs Spark and no Kafka: records are made here, with the columns that a source gives them.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from operator import xor
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import leftfold as lf
from leftfold.fold import derived, sketches
from leftfold.fold.definition import Definition
from leftfold.fold.derived import Arithmetic, Constant, Node, Value
from leftfold.fold.expressions import to_micros
from leftfold.fold.values import Kind
from leftfold.offsets import SLOTS_PER_TOPIC
from leftfold.spark.catalyst import formula
from leftfold.spark.source import HASHES
from leftfold.spark.training.offline import features_at
from leftfold.spark.views.tiles import accepted, pack, tiles
from tests.unit.fold import oracle
from tests.unit.fold.generated import (
    AGGREGATES,
    DEFAULTS,
    ITEMS,
    KINDS,
    NUMBERS,
    PRICES,
    SEEN,
    TAKES,
    USERS,
    D,
    H,
    M,
    S,
    Thing,
    declare,
    kind_of,
    things,
)
from tests.unit.fold.oracle import Asked, Formula

RECORDS = 3_000
BASE = 1_767_571_200 * S  # a midnight
LATENESS, FUTURE = 10 * M, 60 * S
older = lf.Topic("older", Thing, key=Thing.user, time=Thing.at, lateness="1h", log_time="producer")

WINDOWS = ((12 * S, S), (10 * M, 10 * S), (H, 5 * M), (H + 1, M), (24 * H, H), (3 * D, D), (D, 5 * M))
WHERE: tuple[oracle.Condition, ...] = (
    ("price", ">", 2.5),
    ("flag", "=", True),
    ("item", "!=", None),
    ("and", ("n", ">=", 0), ("item", "!=", "a")),
    ("or", ("seen", ">", 0), ("price", "=", None)),
)


@dataclass(frozen=True)
class Record:
    slot: int
    offset: int
    log: int
    by_broker: bool
    event: dict[str, Any] | None

    def outcome(self, definition: Definition, reads: set[str]) -> str:
        """By the table of docs/reference/protocol.md."""
        origin = definition.origins[self.slot // SLOTS_PER_TOPIC]
        event = self.event
        if event is None or (origin.log_time == "broker" and not self.by_broker):
            return "rejected"
        if event["at"] is None or event["shop"] > 1_000_000 or any(event[k.name] is None for k in definition.keys):
            return "rejected"
        if "price" in reads and event["price"] is not None and not abs(event["price"]) < float("inf"):
            return "rejected"
        if event["at"] < self.log - origin.lateness:
            return "late"
        return "future" if event["at"] > self.log + FUTURE else "accepted"


# In the place of a record's hashes: numbers that a test can make as well.
HASHED_BY = dict(zip(HASHES, ((7_919, 1), (-31, 17)), strict=True))


def made_records(chance: random.Random, topics: int) -> list[Record]:
    """Hot keys, ties, times at the edges of tiles and of lateness, and all that is not accepted."""
    records, offsets = [], Counter[int]()
    tied = BASE
    for _ in range(RECORDS):
        slot = chance.randrange(topics) * SLOTS_PER_TOPIC + chance.randrange(3)
        around = BASE + chance.choice([0, H, D, 3 * D, 3 * D + 5 * M])
        log = around + chance.randrange(-420_000, 420_000) * 1_000  # whole milliseconds, as a broker's
        step = chance.choice([S, 10 * S, M, 5 * M, H, D])
        edge = log // step * step + chance.choice([-1, 0, 0, 1])
        near = chance.choice([log - chance.randrange(10 * M), log - LATENESS, log + FUTURE, tied, edge])
        time = near if chance.random() < 0.9 else log + chance.choice([-LATENESS - 1, FUTURE + 1, -2 * H])
        tied = time
        event: dict[str, Any] | None = {
            "user": chance.choice(USERS) if chance.random() < 0.4 else "hot",
            "shop": chance.choice([0, 11, -5]),
            "at": time,
            # Values that overflow a sum are rare, or every sum of a hot key would be unknown.
            "n": chance.choice(NUMBERS) if chance.random() < 0.1 else chance.randrange(-100, 100),
            "price": chance.choice(PRICES) if chance.random() < 0.1 else chance.uniform(-1e4, 1e4),
            "item": chance.choice(ITEMS) if chance.random() < 0.5 else f"item {chance.randrange(400)}",
            "flag": chance.choice([None, True, False]),
            "seen": chance.choice(SEEN),
        }
        assert event is not None
        broken = chance.random()
        if broken < 0.01:
            event = None
        elif broken < 0.06:
            event |= chance.choice(
                [{"user": None}, {"at": None}, {"shop": 1_000_001}, {"price": float("nan")}, {"price": float("-inf")}]
            )
        records.append(Record(slot, offsets[slot], log, chance.random() > 0.02, event))
        offsets[slot] += chance.choice([1, 1, 2])
    return records


def frame(spark: SparkSession, records: list[Record]) -> DataFrame:
    """slot, offset, key, deleted, log_time, by_broker, event: as leftfold.spark.source makes them."""
    fields = ("user", "shop", "at", *KINDS)
    nothing = dict.fromkeys(fields)
    rows = [(r.slot, r.offset, r.log, r.by_broker, *((r.event or nothing)[name] for name in fields)) for r in records]
    shape = "slot int, offset long, log long, by_broker boolean, user string, shop long, at long, n long, "
    flat = spark.createDataFrame(rows, shape + "price double, item string, flag boolean, seen long")
    moments = {"at", "seen"}
    event = F.struct(*(F.timestamp_micros(n).alias(n) if n in moments else F.col(n) for n in fields))
    return flat.select(
        *("slot", "offset", F.lit(None).cast("binary").alias("key"), F.lit(False).alias("deleted")),
        *(F.timestamp_micros("log").alias("log_time"), "by_broker", event.alias("event")),
        *(F.expr(f"bigint(slot) * {a} + offset * {b}").alias(name) for name, (a, b) in HASHED_BY.items()),
    )


# Views --------------------------------------------------------------------------------------------------------------


def made_features(chance: random.Random, *, lifetimes: bool) -> dict[str, Asked | Formula]:
    """Every aggregate of every kind that it takes, over windows, conditions and defaults by chance; and formulas."""
    asked: dict[str, Asked | Formula] = {}
    for aggregate in AGGREGATES:
        for field in TAKES.get(aggregate, (None,)):
            window, step = chance.choice(WINDOWS)
            scale = chance.choice([0, 2, 6]) if field == "price" and aggregate in ("sum", "mean") else 0
            size = {"last_n": chance.choice([1, 3, 50]), "distinct": 9}.get(aggregate, 0)
            kind = KINDS[field] if field else "int"
            where = chance.choice(WHERE) if chance.random() < 0.4 else None
            one = Asked(aggregate, field, kind, window, step, None, where, scale, size)
            if lifetimes and chance.random() < 0.5:
                one = replace(one, window=None, step=0, ttl=chance.choice([None, 2 * H]))
            if aggregate != "last_n" and chance.random() < 0.4:
                one = replace(one, default=chance.choice(DEFAULTS[kind_of({}, one)]))
            asked[f"{aggregate}_{field or 'events'}"] = one
    numbers = [n for n, a in asked.items() if kind_of(asked, a) in ("int", "float") and not n.startswith("last_n")]
    for i, op in enumerate("+-*/" * 2):
        hidden = Asked("count", None, "int", *chance.choice(WINDOWS), default=None)
        rights: tuple[Any, ...] = (chance.choice(numbers), chance.choice([0, 3, 0.5, 2**62]), hidden)
        right = chance.choice(rights)
        made = Formula(op, chance.choice(numbers), right)
        asked[f"d{i}"] = replace(made, default=chance.choice([None, *DEFAULTS[kind_of(asked, made)]]))
        numbers.append(f"d{i}")
    return asked


@dataclass(frozen=True)
class Made:
    """A view and its records, in the oracle's words and in Spark's."""

    asked: dict[str, Asked | Formula]
    definition: Definition
    records: list[Record]
    frame: DataFrame

    @property
    def outcomes(self) -> Iterator[tuple[Record, str]]:
        reads = self.definition.fields()
        return ((record, record.outcome(self.definition, reads)) for record in self.records)

    @property
    def by_entity(self) -> dict[str, list[dict[str, Any]]]:
        """Accepted events in log order."""
        found: dict[str, list[dict[str, Any]]] = {}
        for record, outcome in sorted(self.outcomes, key=lambda pair: (pair[0].slot, pair[0].offset)):
            if outcome == "accepted":
                assert record.event is not None
                found.setdefault(_entity(self.definition, record.event), []).append(record.event)
        return found


def _entity(definition: Definition, event: Mapping[str, Any]) -> str:
    texts = [str(event[k.name]) for k in definition.keys]
    return texts[0] if len(texts) == 1 else "".join(f"{len(t.encode())}:{t}" for t in texts)


VIEWS: dict[str, tuple[tuple[str, ...], Any, bool]] = {
    "windows by a key": (("user",), things, False),
    "lifetimes by two keys": (("user", "shop"), things, True),
    "two topics": (("shop",), (things, older), False),
}


@pytest.fixture(scope="module", params=sorted(VIEWS))
def made(request: pytest.FixtureRequest, spark: SparkSession) -> Made:
    keys, of, lifetimes = VIEWS[request.param]
    chance = random.Random(request.param)
    asked = made_features(chance, lifetimes=lifetimes)
    records = made_records(chance, len(of) if isinstance(of, tuple) else 1)
    return Made(asked, declare(asked, keys, of), records, frame(spark, records).cache())


# Tiles --------------------------------------------------------------------------------------------------------------


def held_columns(made: Made) -> dict[int, Asked]:
    """What each column of a tile holds, in the oracle's words; a mean is a sum and a count."""
    found: dict[int, Asked] = {}
    for feature in made.definition.windowed:
        asked = made.asked.get(feature.name)
        if isinstance(asked, Asked):
            aggregates = ("sum", "count") if asked.aggregate == "mean" else (asked.aggregate,)
            for number, aggregate in zip(feature.columns, aggregates, strict=True):
                field = made.definition.columns[number].field
                found[number] = replace(asked, aggregate=aggregate, field=field)
    return found


def expected_tiles(made: Made) -> dict[tuple[str, str, int], list[dict[str, Any]]]:
    """(entity, field of the store, index) -> the tile's events. Some of these share a slot: a batch writes them all."""
    found: dict[tuple[str, str, int], list[dict[str, Any]]] = {}
    for entity, events in made.by_entity.items():
        for event in events:
            for step in made.definition.steps:
                index = event["at"] // step
                place = f"{step // S}:{index % made.definition.rings[step]}"
                found.setdefault((entity, place, index), []).append(event)
        if made.definition.lifetime:
            found[entity, "life", max(e["at"] for e in events)] = events
    return found


def test_tiles_and_ledger(made: Made) -> None:
    batch = tiles(made.frame, made.definition, delay=H)
    tiles_found, ledger = {}, {}
    for row in pack(batch, made.definition, 7).collect():
        if row.entity is None:
            ledger[row.name] = row.value
        else:
            index, number, *partials = json.loads(row.value)
            assert number == 7
            tiles_found[row.entity, row["name"], index] = partials
    expected, holding = expected_tiles(made), held_columns(made)
    assert tiles_found.keys() == expected.keys()
    compared: Counter[str] = Counter()
    for place, events in expected.items():
        for number, asked in holding.items():
            partial = tiles_found[place][number]
            if asked.aggregate == "distinct":
                partial = sketches.estimate(partial, asked.size)
            wanted = oracle.tile(asked, events)
            if wanted is None and asked.aggregate == "last_n":
                wanted = []
            assert repr(partial) == repr(wanted), (place, asked)
            compared[asked.aggregate] += 1
    assert set(compared) == set(AGGREGATES) - {"mean"}
    assert min(compared.values()) >= 1_000, compared
    assert ledger == expected_ledger(made)


def expected_ledger(made: Made) -> dict[str, str]:
    groups: dict[tuple[int, str], list[Record]] = {}
    for record, outcome in made.outcomes:
        groups.setdefault((record.slot, outcome), []).append(record)
    assert {outcome for _, outcome in groups} == {"accepted", "late", "future", "rejected"}
    entries = {}
    for (slot, outcome), records in groups.items():
        topic, partition = divmod(slot, SLOTS_PER_TOPIC)
        times = [r.event["at"] for r in records if r.event is not None and r.event["at"] is not None]
        newest = (max(r.log for r in records), max(times, default=0), max(r.offset for r in records))
        name = f"{made.definition.origins[topic].topic}/{partition}:{outcome}"
        hashes = [[r.slot * a + r.offset * b for r in records] for a, b in HASHED_BY.values()]
        last = max(zip((r.offset for r in records), hashes[0], strict=True))[1]
        entries[name] = ":".join(map(str, (len(records), *newest, *(reduce(xor, some) for some in hashes), last)))
    return entries


# Features at a moment -----------------------------------------------------------------------------------------------


def plain(value: Any) -> Any:
    """Moments in microseconds: of a timestamp Spark's Python shows the wall clock of this machine."""
    if isinstance(value, list):
        return [plain(v) for v in value]
    return to_micros(value) if hasattr(value, "tzinfo") else value


def in_micros(table: DataFrame) -> DataFrame:
    shown = []
    for name, kind in table.dtypes:
        column = F.col(name)
        moments = {"timestamp": F.unix_micros(column), "array<timestamp>": F.transform(column, F.unix_micros)}
        shown.append(moments.get(kind, column).alias(name))
    return table.select(*shown)


MOMENTS = (BASE, BASE + 5 * M + 1, BASE + 3 * D + 10 * S)


def test_features_at_a_moment(made: Made) -> None:
    rows = accepted(made.frame, made.definition).cache()
    windowed = [a for a in made.asked.values() if isinstance(a, Asked)]
    windowed += [s for f in made.asked.values() if isinstance(f, Formula) for s in (f.right,) if isinstance(s, Asked)]
    compared: Counter[str] = Counter()
    for at in MOMENTS:
        table = features_at(rows, made.definition, at)
        assert table.columns == ["entity", *made.definition.visible]
        found = {row.entity: row.asDict() for row in in_micros(table).collect()}
        expected = {
            entity: {"entity": entity, **{n: plain(v) for n, v in oracle.values(made.asked, events, at).items()}}
            for entity, events in made.by_entity.items()
            if any(oracle.chosen(replace(asked, ttl=None), events, at) for asked in windowed)
        }
        assert found.keys() == expected.keys()
        for entity, wanted in expected.items():
            assert {n: repr(v) for n, v in found[entity].items()} == {n: repr(v) for n, v in wanted.items()}
            compared["values"] += len(made.asked)
            sums = [value for name, value in wanted.items() if name.startswith(("sum", "mean"))]
            compared["sums"] += sum(value is not None for value in sums)
            compared["unknown sums"] += sum(value is None for value in sums)
    assert compared["values"] >= len(MOMENTS) * 3 * len(made.asked) // 2, compared
    assert min(compared["sums"], compared["unknown sums"]) >= 3, compared


# Formulas -----------------------------------------------------------------------------------------------------------

FIELDS: dict[str, Kind] = {"i": "int", "j": "int", "x": "float", "y": "float"}
INTS = (None, 0, 1, -1, 3, 2**31, 2**53 + 1, 2**62, 2**63 - 1, -(2**63))
FLOATS = (None, 0.0, -0.0, 0.1, -2.5, 5e-324, 1e300, -1e308, 1.7976931348623157e308)
TREES, ROWS = 100, 300


def made_node(chance: random.Random, depth: int) -> Node:
    if depth == 0 or chance.random() < 0.2:
        if chance.random() < 0.7:
            return Value(chance.choice(sorted(FIELDS)))
        return Constant(chance.choice([v for v in (*INTS, *FLOATS) if v is not None]))
    return Arithmetic(chance.choice("+-*/"), made_node(chance, depth - 1), made_node(chance, depth - 1))


def test_formulas(spark: SparkSession) -> None:
    chance = random.Random("formulas")
    values = [
        {name: chance.choice(INTS if kind == "int" else FLOATS) for name, kind in FIELDS.items()} for _ in range(ROWS)
    ]
    nodes = [made_node(chance, 1 + i % 2) for i in range(TREES)]
    table = spark.createDataFrame(
        [(i, *row.values()) for i, row in enumerate(values)], "id int, i long, j long, x double, y double"
    )
    known = {name: F.col(name) for name in FIELDS}
    results: Counter[str] = Counter()
    for start in range(0, TREES, 25):  # a plan of a hundred trees takes the compiler longer than four of these
        some = nodes[start : start + 25]
        columns = [formula(node, known, FIELDS).alias(f"r{i}") for i, node in enumerate(some)]
        for row in table.select("id", *columns).collect():
            for i, node in enumerate(some):
                wanted = derived.evaluate(node, values[row.id])
                assert repr(row[f"r{i}"]) == repr(wanted), (derived.to_json(node), values[row.id])
                results[type(wanted).__name__] += 1
    assert sum(results.values()) == TREES * ROWS
    assert min(results["int"], results["float"], results["NoneType"]) > ROWS
