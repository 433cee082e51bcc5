"""The features of every entity at one moment, directly from its accepted events, and features from any partials.

It uses the same `Definition` and the same Catalyst as the live view. The result is what a read of the store would have
returned, to the last bit. The caller decides which partials a feature is made of: in `features_at` they come from all
events in one aggregation, in a training set from whole tiles and single events (`spark.training.as_of`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from leftfold.fold import columns
from leftfold.fold.definition import Definition, Derived, Windowed
from leftfold.fold.tiles import floor
from leftfold.fold.values import INT64, Kind
from leftfold.spark.catalyst import entity, formula
from leftfold.spark.views.tiles import OWN, aggregate, values_of_texts

_TYPES: dict[Kind, str] = {"string": "string", "int": "long", "float": "double", "bool": "boolean"}

Partials = Callable[[Windowed, int], Column]  # (feature, number of a column) -> the merged partial


def features_at(rows: DataFrame, definition: Definition, at: int) -> DataFrame:
    """Columns entity and every visible feature. `rows` come from `tiles.accepted`.

    An entity without any event in reach of a feature has no row. All its features are missing, or defaults.
    """
    starts = {f.name: None if f.window is None else floor(at - f.window, f.step) for f in definition.windowed}
    reached = F.col("event_us") < F.lit(at)
    if not definition.lifetime:
        reached &= F.col("event_us") >= F.lit(min(start for start in starts.values() if start is not None))
    partials = {
        _partial(start, number): _within(start, definition.columns[number], ties=definition.stream is not None)
        for feature, start in zip(definition.windowed, starts.values(), strict=True)
        for number in feature.columns
    }
    folded = (
        rows.where(reached)
        .groupBy(entity(definition.keys, OWN).alias("entity"))
        .agg(*(partial.alias(name) for name, partial in partials.items()), F.max("event_us").alias("newest"))
    )
    return finished(
        folded,
        definition,
        lambda feature, number: F.col(_partial(starts[feature.name], number)),
        at=F.lit(at),
        kept=["entity"],
    ).select("entity", *(F.col(f"f{i}").alias(name) for i, name in enumerate(definition.visible)))


def finished(
    folded: DataFrame, definition: Definition, partials: Partials, *, at: Column, kept: Sequence[str]
) -> DataFrame:
    """The columns `kept`, and the visible features as f0, f1, … in their order, because a user may choose any names.

    `folded` has the merged partials, all null for an entity without events, and `newest`, its newest event time.
    """
    # A feature's own name may be anything, also that of another column here. The name of a hidden one contains dots.
    names = {name: f"f{i}" for i, name in enumerate(definition.visible)}
    names |= {f.name: f"h{i}" for i, f in enumerate(definition.features) if f.name not in names}
    kinds = definition.kinds()
    windowed = [
        _or_default(f, _value(definition, f, partials, at), kinds).alias(names[f.name]) for f in definition.windowed
    ]
    table = folded.select(*kept, *windowed)
    known = {f.name: F.col(names[f.name]) for f in definition.features}
    for feature in definition.features:  # each comes after those that it is derived from
        if isinstance(feature, Derived):
            result = _or_default(feature, formula(feature.node, known, kinds), kinds)
            table = table.withColumn(names[feature.name], result)
    return table.select(*kept, *(names[name] for name in definition.visible))


def _partial(start: int | None, number: int) -> str:
    return f"p{number}" if start is None else f"p{number}_{start}"


def _within(start: int | None, column: columns.Column, *, ties: bool) -> Column:
    return aggregate(column, ties=ties, within=None if start is None else F.col("event_us") >= F.lit(start))


def _value(definition: Definition, feature: Windowed, partials: Partials, at: Column) -> Column:
    value, *counts = (final_value(definition.columns[number], partials(feature, number)) for number in feature.columns)
    if counts:
        value = F.when(value.isNotNull(), value.cast("double") / counts[0].cast("double"))
    if feature.ttl is None:
        return value
    alive = F.col("newest") >= at - F.lit(feature.ttl)
    return F.when(alive, value).otherwise(_nothing(definition.columns[feature.columns[0]], mean=bool(counts)))


def final_value(column: columns.Column, partial: Column) -> Column:
    """The final value of a merged partial, the same as fold.columns.final."""
    match column.aggregate:
        case "count":
            return F.coalesce(partial, F.lit(0).cast("long"))
        case "distinct":  # a sketch merged with itself forgets how it was filled, see fold.sketches
            return F.coalesce(F.hll_sketch_estimate(F.hll_union(partial, partial)), F.lit(0).cast("long"))
        case "last_n":
            texts = F.coalesce(partial, F.array().cast("array<string>"))
            return F.transform(values_of_texts(texts), lambda text: read_as(text, column.kind))
        case "sum":
            return _sum(column, partial)
        case _:
            return read_as(partial, column.kind)


def _nothing(column: columns.Column, *, mean: bool) -> Column:
    """The value of an aggregate over no events."""
    if column.aggregate in ("count", "distinct"):
        return F.lit(0).cast("long")
    if column.aggregate == "last_n":
        return F.array().cast(f"array<{type_of(column.kind)}>")
    return F.lit(None).cast("double" if mean else type_of(column.kind))


def _sum(column: columns.Column, units: Column) -> Column:
    if column.kind == "int":
        fits = units.between(F.lit(str(-INT64)).cast("decimal(38,0)"), F.lit(str(INT64 - 1)).cast("decimal(38,0)"))
        return F.when(fits, units.cast("long"))
    known = F.abs(units) < F.lit(str(columns.OVERFLOW // 2)).cast("decimal(38,0)")
    # Parsed from text, because that rounds once, like Python's division of ints. A cast and a division round twice.
    return F.when(known, F.concat(units.cast("string"), F.lit(f"E-{column.scale}")).cast("double"))


def read_as(value: Column, kind: Kind) -> Column:
    """A plain value as a user reads it: times as timestamps, others in the type of their kind."""
    return F.timestamp_micros(value.cast("long")) if kind == "datetime" else value.cast(type_of(kind))


def type_of(kind: Kind) -> str:
    return "timestamp" if kind == "datetime" else _TYPES[kind]


def _or_default(feature: Windowed | Derived, value: Column, kinds: dict[str, Kind]) -> Column:
    return value if feature.default is None else F.coalesce(value, read_as(F.lit(feature.default), kinds[feature.name]))
