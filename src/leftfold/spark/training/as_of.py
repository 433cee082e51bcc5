"""Windowed features of many entities, each at its own moment, as they were known then: the point-in-time join.

For an entity with few events, the features at moment t are made from these events. For an entity with many events, they
are made from whole tiles, coarse to fine, as far as every event in them surely counts at t, and from single events
after that. Tiles and events are joined with the asked rows by (entity, tile), so that an entity with most of the events
is spread over all tasks. The partials are those of the live view, so the values are the same too.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import add

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from leftfold.fold.definition import Definition, Windowed
from leftfold.fold.known import ALL_BATCHES, AsOf
from leftfold.fold.tiles import STEPS, ladder
from leftfold.spark.catalyst import entity
from leftfold.spark.training.offline import finished
from leftfold.spark.views.batch_tiles import merged
from leftfold.spark.views.tiles import OWN, aggregate, hashing, partials

# The columns of an asked row: the entity, the moment (µs), and the last batch that is known.
KEYS = ("entity", "at", "upto")

_LARGEST = STEPS[-1]
# An entity with more events than this is made from tiles. With fewer events, its tiles would hold an event or two each,
# and making them would cost more than they save. So the set of busy entities, which every task gets, has at most one
# entity per this many events.
MANY_EVENTS = 2_000


def known_by_event(asked: DataFrame) -> DataFrame:
    """Add upto and complete to `asked` (entity, at) for mode "event".

    Every event that happened before the moment counts, however late it was logged.
    """
    return asked.select("entity", "at", F.lit(ALL_BATCHES).alias("upto"), F.col("at").alias("complete"))


def known_by_log(asked: DataFrame, definition: Definition) -> DataFrame:
    """Add upto and complete to `asked` (entity, at) for mode "log": an event counts if it was logged before the moment.

    An accepted event is logged at most `lateness` after it happened. So all events that happened more than `lateness`
    before the moment count.
    """
    complete = F.col("at") - F.lit(definition.lateness)
    return asked.select("entity", "at", F.lit(ALL_BATCHES).alias("upto"), complete.alias("complete"))


def features_as_of(asked: DataFrame, rows: DataFrame, definition: Definition, as_of: AsOf) -> DataFrame:
    """Columns entity, at, upto, and the visible features as f0, f1, …: one row for each row of `asked`.

    The rows of `asked` must be distinct. They also have `complete`: every event before that moment counts. `rows` come
    from `tiles.accepted`. An event after `complete` counts for "log" if it was logged before `at`, and for "served" if
    its `batch` is at most `upto`.
    """
    past = _Past(definition)
    wanted = past.wanted(asked)
    rows = rows.withColumn("entity", entity(definition.keys, OWN))
    busy = rows.groupBy("entity").count().where(F.col("count") > MANY_EVENTS).select("entity")
    if busy.isEmpty():  # a cheap query that saves the plan for tiles if nobody needs it
        return past.of_events(wanted, rows, as_of)
    few = past.of_events(_without(wanted, busy), _without(rows, busy), as_of)
    base = _only(rows, busy).withColumn("start", past.floor("event_us", past.steps[0]))
    wanted = _only(wanted, busy)
    pieces = [past.whole_tiles(wanted, base), past.single_events(wanted, base, as_of)]
    if definition.lifetime:
        pieces.append(past.all_before(wanted, base))
    return few.unionByName(past.merged(wanted, pieces))


def _only(rows: DataFrame, busy: DataFrame) -> DataFrame:
    """The rows of busy entities. `busy` is broadcast: a shuffle by entity would put a busy one into one task."""
    return rows.join(F.broadcast(busy), "entity", "left_semi")


def _without(rows: DataFrame, busy: DataFrame) -> DataFrame:
    return rows.join(F.broadcast(busy), "entity", "left_anti")


class _Past:
    """The features of one definition, computed from tiles and events."""

    def __init__(self, definition: Definition) -> None:
        self._definition = definition
        self._spans = sorted({(f.window, f.step) for f in definition.windowed if f.window is not None})
        finest = definition.steps[0] if definition.steps else _LARGEST
        longest = _LARGEST if definition.lifetime else max(definition.longest_window, finest)
        self.steps = ladder(finest, longest, definition.lateness)
        # The start of each window is a column. A piece that lies after it has the window's bit in its mask. A lifetime
        # has a column and a bit too.
        self._starts = [f"s{i}" for i in range(len(self._spans) + definition.lifetime)]

    def floor(self, time: str | Column, step: int) -> Column:
        moment = F.col(time) if isinstance(time, str) else time
        return moment - F.pmod(moment, F.lit(step))

    def wanted(self, asked: DataFrame) -> DataFrame:
        """The asked rows with the end of whole tiles (`whole`) and the start of each window."""
        whole = self.floor(F.least("at", "complete"), self.steps[0])
        starts = {
            f"s{i}": self.floor(F.col("at") - F.lit(window), step) for i, (window, step) in enumerate(self._spans)
        }
        bounded = asked.withColumns({"whole": whole, **starts})
        if self._definition.lifetime:
            # Before the first window, a lifetime is made from the largest tiles. After that it is made like a window.
            first = F.least("whole", *starts) if starts else F.col("whole")
            bounded = bounded.withColumn(self._starts[-1], self.floor(first, self.steps[-1]))
        return bounded

    def of_events(self, wanted: DataFrame, rows: DataFrame, as_of: AsOf) -> DataFrame:
        """Features from events alone, in one aggregation. An asked row without events stays, with empty features."""
        events = rows.withColumnRenamed("entity", "whose").hint("merge")
        counts = (F.col("entity") == F.col("whose")) & (F.col("event_us") < F.col("at")) & _counts(as_of)
        if not self._definition.lifetime:
            counts &= F.col("event_us") >= F.array_min(F.array(*self._starts))
        joined = wanted.join(events, counts, "left")
        features = {}
        for feature in self._definition.windowed:
            # Without this, a count would count the empty row of a left join without events.
            within = F.col("whose").isNotNull()
            if feature.window is not None:
                within &= F.col("event_us") >= F.col(f"s{self._bit(feature)}")
            for number in feature.columns:
                column = self._definition.columns[number]
                ties = self._definition.stream is not None
                features[self._name(feature, number)] = aggregate(column, ties=ties, within=within)
        return self._finished(joined, features, F.max("event_us"))

    # Pieces: entity, at, upto, mask (windows that hold it), late (1 for single events), p0…pn, newest ----------------

    def whole_tiles(self, wanted: DataFrame, base: DataFrame) -> DataFrame:
        """Pieces from whole tiles: the fewest that fit between two window starts, and up to `whole`."""
        edges = F.sort_array(F.array(*self._starts))
        segments = F.transform(
            F.sequence(F.lit(0), F.lit(len(self._starts) - 1)),
            lambda i: F.struct(
                F.get(edges, i).alias("a"),
                F.least(F.coalesce(F.get(edges, i + 1), F.col("whole")), F.col("whole")).alias("e"),
            ),
        )
        cut = wanted.select("*", F.explode(segments).alias("segment")).where("segment.a < segment.e")
        a, e = F.col("segment.a"), F.col("segment.e")
        exploded = cut.select(*KEYS, self._mask(a).alias("mask"), F.explode(self._cover(a, e)).alias("tile"))
        tiles = reduce(DataFrame.unionByName, self._tiles(base))
        joined = exploded.select(*KEYS, "mask", "tile.step", "tile.start").join(
            tiles.hint("merge"), ["entity", "step", "start"]
        )
        return self._merged_by(joined, [*KEYS, "mask"]).withColumn("late", F.lit(0))

    def single_events(self, wanted: DataFrame, base: DataFrame, as_of: AsOf) -> DataFrame:
        step = self.steps[0]
        bounded = wanted.withColumn("since", F.greatest("whole", F.array_min(F.array(*self._starts))))
        reached = F.sequence(self.floor("since", step), self.floor(F.col("at") - 1, step), F.lit(step))
        exploded = bounded.where("since < at").withColumn("start", F.explode(reached))
        counts = (F.col("event_us") >= F.col("since")) & (F.col("event_us") < F.col("at"))
        joined = exploded.join(base.hint("merge"), ["entity", "start"]).where(counts & _counts(as_of))
        folded = joined.groupBy(*KEYS, self._mask(F.col("event_us")).alias("mask")).agg(
            *partials(self._definition), F.max("event_us").alias("newest"), *hashing(self._definition)
        )
        return folded.select(*KEYS, "mask", *self._widened()).withColumn("late", F.lit(1))

    def all_before(self, wanted: DataFrame, base: DataFrame) -> DataFrame:
        """Pieces of a lifetime from the largest tiles, before all windows.

        An entity has few of them, so they are joined by entity alone.
        """
        largest = self._tiles(base)[-1].withColumnRenamed("entity", "whose")
        lifetime = wanted.select(*KEYS, self._starts[-1])
        before = F.col("start") < F.col(self._starts[-1])
        joined = lifetime.join(largest.hint("merge"), (F.col("entity") == F.col("whose")) & before)
        pieces = self._merged_by(joined, [*KEYS])
        return pieces.withColumns({"mask": F.lit(self._lifetime_bit).cast("long"), "late": F.lit(0)})

    def merged(self, wanted: DataFrame, pieces: Sequence[DataFrame]) -> DataFrame:
        empty = [F.lit(None).cast(pieces[0].schema[n].dataType).alias(n) for n in self._partials]
        # Each asked row is also an empty piece, so that it has a result even without events.
        itself = wanted.select(*KEYS, F.lit(0).cast("long").alias("mask"), F.lit(0).alias("late"), *empty)
        every = reduce(DataFrame.unionByName, [*pieces, itself])
        order = F.col("mask") * 2 + F.col("late")  # masks grow with time, and single events come after whole tiles
        features = {}
        for feature in self._definition.windowed:
            held = F.col("mask").bitwiseAND(F.lit(1 << self._bit(feature))) != 0
            for number in feature.columns:
                column = self._definition.columns[number]
                features[self._name(feature, number)] = merged(column, F.col(f"p{number}"), order=order, within=held)
        return self._finished(every, features, F.max("newest"))

    # Details ---------------------------------------------------------------------------------------------------------

    def _finished(self, rows: DataFrame, features: dict[str, Column], newest: Column) -> DataFrame:
        aggregates = [column.alias(name) for name, column in features.items()]
        folded = rows.groupBy(*KEYS).agg(*aggregates, newest.alias("newest"), *hashing(self._definition))
        return finished(
            folded, self._definition, lambda f, number: F.col(self._name(f, number)), at=F.col("at"), kept=KEYS
        )

    def _tiles(self, base: DataFrame) -> list[DataFrame]:
        """The tiles of each step: the finest from events, each other from those of the step before."""
        finest = base.groupBy("entity", "start").agg(
            *partials(self._definition), F.max("event_us").alias("newest"), *hashing(self._definition)
        )
        levels = [finest.select("entity", F.lit(self.steps[0]).alias("step"), "start", *self._partials)]
        for step in self.steps[1:]:
            finer = levels[-1].withColumnRenamed("start", "at").withColumn("start", self.floor("at", step))
            coarser = self._merged_by(finer.drop("step"), ["entity", "start"], order="at")
            levels.append(coarser.select("entity", F.lit(step).alias("step"), "start", *self._partials))
        return levels

    def _cover(self, a: Column, e: Column) -> Column:
        """The tiles from a to e, which are multiples of the first step: coarse ones, with finer ones at both ends."""
        ranges = []
        ups = [a, *(-self.floor(-a, step) for step in self.steps[1:])]
        downs = [e, *(self.floor(e, step) for step in self.steps[1:])]
        for level, step in enumerate(self.steps):
            up, down = ups[level], downs[level]
            if level + 1 == len(self.steps):
                ranges.append(_starts(up, down, step))
                continue
            room = ups[level + 1] <= downs[level + 1]
            ranges.append(_starts(up, F.when(room, ups[level + 1]).otherwise(down), step))
            ranges.append(_starts(F.when(room, downs[level + 1]).otherwise(down), down, step))
        return F.concat(*ranges)

    def _mask(self, moment: Column) -> Column:
        bits = [F.when(moment >= F.col(s), F.lit(1 << i)).otherwise(F.lit(0)) for i, s in enumerate(self._starts)]
        return reduce(add, bits).cast("long")

    def _bit(self, feature: Windowed) -> int:
        return len(self._spans) if feature.window is None else self._spans.index((feature.window, feature.step))

    @property
    def _lifetime_bit(self) -> int:
        return 1 << len(self._spans)

    def _name(self, feature: Windowed, number: int) -> str:
        return f"w{self._bit(feature)}_{number}"

    @property
    def _partials(self) -> list[str]:
        return [*(f"p{i}" for i in range(len(self._definition.columns))), "newest"]

    def _widened(self) -> list[Column]:
        """The columns p0…pn and newest, with one type for all sums.

        A sum of sums has more digits than a sum, and pieces of both kinds are united.
        """
        sums = [f"p{i}" for i, column in enumerate(self._definition.columns) if column.aggregate == "sum"]
        return [F.col(n).cast("decimal(38,0)").alias(n) if n in sums else F.col(n) for n in self._partials]

    def _merged_by(self, rows: DataFrame, by: Sequence[str], order: str = "start") -> DataFrame:
        merges = [
            merged(column, F.col(f"p{i}"), order=F.col(order)).alias(f"p{i}")
            for i, column in enumerate(self._definition.columns)
        ]
        folded = rows.groupBy(*by).agg(*merges, F.max("newest").alias("newest"), *hashing(self._definition))
        return folded.select(*by, *self._widened())


def _counts(as_of: AsOf) -> Column:
    """True if an event that happened before the moment was known then, by the mode."""
    if as_of == "log":
        return F.col("log_us") < F.col("at")
    return F.col("batch") <= F.col("upto") if as_of == "served" else F.lit(True)


def _starts(lo: Column, hi: Column, step: int) -> Column:
    """All tiles of a step from lo to hi; none if lo is not before hi."""
    none = F.array().cast("array<struct<step:bigint,start:bigint>>")
    tiles = F.transform(
        F.sequence(lo, hi - F.lit(step), F.lit(step)),
        lambda start: F.struct(F.lit(step).cast("long").alias("step"), start.alias("start")),
    )
    return F.when(lo < hi, tiles).otherwise(none)
