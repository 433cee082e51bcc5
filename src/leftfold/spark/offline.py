"""The features of every entity at one moment, straight from its accepted events: the base of training sets.

The same `Definition` and the same Catalyst as the live view, in one aggregation and without tiles. What it gives is
what a read of the store would have given, to the last bit.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from leftfold.fold import columns
from leftfold.fold.definition import Definition, Derived, Windowed
from leftfold.fold.tiles import floor
from leftfold.fold.values import INT64, Kind
from leftfold.spark.catalyst import entity, formula
from leftfold.spark.tiles import OWN, aggregate, values_of_texts

_TYPES: dict[Kind, str] = {"string": "string", "int": "long", "float": "double", "bool": "boolean"}


def features_at(rows: DataFrame, definition: Definition, at: int) -> DataFrame:
    """entity, and every visible feature. `rows` are as `tiles.accepted` gives them.

    An entity without an event that any feature could reach has no row: there all is missing, or a default.
    """
    starts = [None if f.window is None else floor(at - f.window, f.step) for f in definition.windowed]
    reached = F.col("event_us") < F.lit(at)
    if not definition.lifetime:
        reached &= F.col("event_us") >= F.lit(min(start for start in starts if start is not None))
    partials = {
        _partial(start, number): _within(start, definition.columns[number], ties=definition.stream is not None)
        for feature, start in zip(definition.windowed, starts, strict=True)
        for number in feature.columns
    }
    folded = (
        rows.where(reached)
        .groupBy(entity(definition.keys, OWN).alias("entity"))
        .agg(*(made.alias(name) for name, made in partials.items()), F.max("event_us").alias("newest"))
    )
    # A feature's own name may be anything, also that of another column here; and a hidden one's holds dots.
    names = {feature.name: f"f{i}" for i, feature in enumerate(definition.features)}
    kinds = definition.kinds()
    by_name = dict(zip((f.name for f in definition.windowed), starts, strict=True))
    windowed = [
        _or_default(f, _value(definition, f, by_name[f.name], at), kinds).alias(names[f.name])
        for f in definition.windowed
    ]
    table = folded.select("entity", *windowed)
    known = {f.name: F.col(names[f.name]) for f in definition.features}
    for feature in definition.features:  # each after those that it is derived from
        if isinstance(feature, Derived):
            result = _or_default(feature, formula(feature.node, known, kinds), kinds)
            table = table.withColumn(names[feature.name], result)
    return table.select("entity", *(known[name].alias(name) for name in definition.visible))


def _partial(start: int | None, number: int) -> str:
    return f"p{number}" if start is None else f"p{number}_{start}"


def _within(start: int | None, column: columns.Column, *, ties: bool) -> Column:
    return aggregate(column, ties=ties, within=None if start is None else F.col("event_us") >= F.lit(start))


def _value(definition: Definition, feature: Windowed, start: int | None, at: int) -> Column:
    value, *counts = (_final(definition.columns[number], F.col(_partial(start, number))) for number in feature.columns)
    if counts:
        value = F.when(value.isNotNull(), value.cast("double") / counts[0].cast("double"))
    if feature.ttl is None:
        return value
    alive = F.col("newest") >= F.lit(at - feature.ttl)
    return F.when(alive, value).otherwise(_nothing(definition.columns[feature.columns[0]], mean=bool(counts)))


def _final(column: columns.Column, partial: Column) -> Column:
    """The same as fold.columns.final."""
    match column.aggregate:
        case "count":
            return partial
        case "distinct":  # merged with itself a sketch forgets how it was filled, see fold.sketches
            return F.coalesce(F.hll_sketch_estimate(F.hll_union(partial, partial)), F.lit(0).cast("long"))
        case "last_n":
            return F.transform(values_of_texts(partial), lambda text: _read(text, column.kind))
        case "sum":
            return _sum(column, partial)
        case _:
            return _read(partial, column.kind)


def _nothing(column: columns.Column, *, mean: bool) -> Column:
    """The value of an aggregate of no event."""
    if column.aggregate in ("count", "distinct"):
        return F.lit(0).cast("long")
    if column.aggregate == "last_n":
        return F.array().cast(f"array<{_type(column.kind)}>")
    return F.lit(None).cast("double" if mean else _type(column.kind))


def _sum(column: columns.Column, units: Column) -> Column:
    if column.kind == "int":
        fits = units.between(F.lit(str(-INT64)).cast("decimal(38,0)"), F.lit(str(INT64 - 1)).cast("decimal(38,0)"))
        return F.when(fits, units.cast("long"))
    known = F.abs(units) < F.lit(str(columns.OVERFLOW // 2)).cast("decimal(38,0)")
    # Parsed, because a text of digits is rounded once, as Python's division of ints is; a cast and a division twice.
    return F.when(known, F.concat(units.cast("string"), F.lit(f"E-{column.scale}")).cast("double"))


def _read(value: Column, kind: Kind) -> Column:
    return F.timestamp_micros(value.cast("long")) if kind == "datetime" else value.cast(_type(kind))


def _type(kind: Kind) -> str:
    return "timestamp" if kind == "datetime" else _TYPES[kind]


def _or_default(feature: Windowed | Derived, value: Column, kinds: dict[str, Kind]) -> Column:
    return value if feature.default is None else F.coalesce(value, _read(F.lit(feature.default), kinds[feature.name]))
