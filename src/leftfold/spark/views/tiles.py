"""A view of windowed features as one stateful operator, without Python per record.

The plan is made from the same definition as all other reads, so features have only one meaning. Every record becomes
one row per step (its tiles) and one ledger row (its outcome, counted per partition). One aggregation folds all of them,
so the ledger's counts are part of the state, and therefore exactly-once.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from operator import and_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.internal import InternalFunction

from leftfold.declare.acceptance import ACCEPTED
from leftfold.declare.event import fields_of
from leftfold.declare.stream import RECORD, Stream
from leftfold.fold import columns
from leftfold.fold.definition import Definition
from leftfold.fold.durations import SECOND
from leftfold.fold.values import INT64, Kind
from leftfold.spark.accept import COUNTS, DIGEST, NAME, hashes_in_ledger, judged, ledger_step, tally
from leftfold.spark.catalyst import condition, entity, json_text, plain
from leftfold.spark.source import HASHES
from leftfold.spark.views.inspect import GIVEN
from leftfold.store.layout import LIFETIME_FIELD

_NEVER = "9999-12-31"
# The prefix of the columns of the event's fields, so that a field may have any name: "offset", "step", "entity".
OWN = "own_"
# A record is exploded to its steps, to _LIFETIME for the tile of all time, and to _LEDGER for its ledger row.
_LEDGER, _LIFETIME = -1, 0
_PLACE_WIDTH = 34
_HASHED = "hashed"


@dataclass(frozen=True)
class TilesJob:
    """The Spark job of a `Definition`, with the stream between topics and view, if there is one."""

    definition: Definition
    between: Stream | None = None
    only: Column | None = None  # folds only these of the exploded rows: see `cutover`
    sweeps = True
    cumulative = True

    def stream(self, records: DataFrame, delay: int) -> DataFrame:
        return tiles(records, self.definition, delay=delay, stream=self.between, only=self.only)

    def packed(self, batch: DataFrame, number: int) -> DataFrame:
        return pack(batch, self.definition, number)

    def made(self, records: DataFrame) -> DataFrame:
        """The rows that the stream makes of records, to inspect its plan."""
        assert self.between is not None
        return _called(self.between, _stream_input(_seen(records, self.definition, self.between)))

    @property
    def kinds(self) -> dict[str, Kind]:
        return self.definition.judged()

    @property
    def rows_per_record(self) -> int | None:
        return len(self.definition.steps) + self.definition.lifetime if self.between is None else None


def tiles(
    records: DataFrame,
    definition: Definition,
    *,
    delay: int,
    stream: Stream | None = None,
    only: Column | None = None,
) -> DataFrame:
    """Fold records to columns entity, step (µs), tile_end, p0…pn, and those of `tally`.

    A ledger row has its outcome as entity and -(slot + 1) as step. It is never evicted. `delay` is the distance of the
    watermark from the newest log time. `only` is a condition on the exploded rows: rows that do not meet it are not
    folded. It may use the step `s` (negative for a ledger row), event_us, slot and offset.
    """
    delay_ms = delay // 1_000
    kinds = definition.judged()
    marked = records.withWatermark("log_time", f"{delay_ms} milliseconds")
    seen = _seen(marked, definition, stream)
    steps = (*definition.steps, *((_LIFETIME,) if definition.lifetime else ()))
    if stream is None:
        rows = exploded(_own_columns(seen, definition, kinds, "event."), steps)
    else:
        rows = exploded(
            _placed(_called(stream, _stream_input(seen)), definition, kinds), steps, ledger=False
        ).unionByName(exploded(_own_columns(seen, definition, {}, "event."), ()), allowMissingColumns=True)
    rows = hashes_in_ledger(rows if only is None else rows.where(only))
    # State is evicted by the tile's end. Computing it lost the watermark's metadata, so it is set again.
    keyed = rows.select("*", *tile(entity(definition.keys, OWN), {"spark.watermarkDelayMs": delay_ms}))
    return keyed.groupBy("entity", "step", "tile_end").agg(
        *partials(definition),
        *hashing(definition),
        *tally(),
    )


def tile(whose: Column, mark: dict[str, int] | None = None) -> list[Column]:
    """Columns entity, step and tile_end of a row that is exploded to step `s`."""
    is_ledger, is_lifetime = F.col("s") == _LEDGER, F.col("s") == _LIFETIME
    start = F.col("event_us") - F.pmod("event_us", F.when(F.col("s") > 0, F.col("s")).otherwise(F.lit(1)))
    never = F.lit(_NEVER).cast("timestamp")
    end = F.when(is_ledger | is_lifetime, never).otherwise(F.timestamp_micros(start + F.col("s")))
    return [
        F.when(is_ledger, F.col("outcome")).otherwise(whose).alias("entity"),
        F.when(is_ledger, ledger_step()).otherwise(F.col("s")).alias("step"),
        end.alias("tile_end", metadata=mark) if mark else end.alias("tile_end"),
    ]


def hashed(folded: DataFrame) -> DataFrame:
    """Drop the column of `hashing` from tiles that a batch made, but read it first.

    A batch has no state, so Spark would remove a column that nobody reads, and then sort all rows.
    """
    return folded.where(F.size(_HASHED) == 0).drop(_HASHED) if _HASHED in folded.columns else folded


def partials(definition: Definition) -> list[Column]:
    """The partials p0…pn over rows that `accepted` returned."""
    ties = definition.stream is not None
    return [aggregate(column, ties=ties).alias(f"p{i}") for i, column in enumerate(definition.columns)]


def hashing(definition: Definition) -> list[Column]:
    """An extra aggregate that makes Spark hash the groups instead of sorting all rows.

    Spark sorts for an aggregation that holds values of varying width, unless one of its functions keeps objects. This
    aggregate keeps an empty list. It is added only where "last" is used and no other aggregate keeps objects.
    """
    aggregates = {column.aggregate for column in definition.columns}
    if "last" not in aggregates or aggregates & {"last_n", "distinct"}:
        return []
    return [F.collect_list(F.when(F.lit(False), F.lit(0))).alias(_HASHED)]


def accepted(records: DataFrame, definition: Definition, stream: Stream | None = None) -> DataFrame:
    """The rows that a view folds: slot, offset, log_us, event_us, outcome, and the event's fields under `OWN`."""
    if stream is not None:
        return _placed(
            _called(stream, _stream_input(_seen(records, definition, stream))), definition, definition.judged()
        )
    return judged_rows(records, definition).where(F.col("outcome") == ACCEPTED)


def judged_rows(records: DataFrame, definition: Definition) -> DataFrame:
    """The rows of all records, accepted or not, with their outcome. For a view without a stream in between."""
    return _own_columns(_seen(records, definition, None), definition, definition.judged(), "event.")


def _own_columns(seen: DataFrame, definition: Definition, kinds: dict[str, Kind], prefix: str) -> DataFrame:
    fields = [plain(F.col(prefix + n), k).alias(OWN + n) for n, k in sorted(kinds.items()) if n != definition.time]
    return seen.select(
        *("slot", "offset", "log_us", "event_us", "outcome", *HASHES),
        F.col("event_us").alias(OWN + definition.time),
        *fields,
    )


def _seen(records: DataFrame, definition: Definition, stream: Stream | None) -> DataFrame:
    """The records with their outcome, judged by the fields that the view reads.

    Before a stream they are judged by all fields of the event, because the stream may read any of them.
    """
    fields = {} if stream is None else fields_of(stream.topics[0].event)
    return judged(
        records,
        origins=definition.origins,
        time=definition.time,
        future=definition.future,
        required=[f.name for f in fields.values() if not f.optional] if fields else [k.name for k in definition.keys],
        kinds={f.name: f.kind for f in fields.values() if not f.repeated} if fields else definition.judged(),
        rules=definition.rules,
        keys=[definition.keys if stream is None else stream.topics[0].keys],
    )


def _called(stream: Stream, events: DataFrame) -> DataFrame:
    output: DataFrame = stream(events)
    return output


def _stream_input(seen: DataFrame) -> DataFrame:
    """The input of a stream: accepted events, each with the position and time of its record."""
    record = F.struct("slot", "offset", "log_us", "event_us", "outcome").alias(RECORD)
    return seen.where(F.col("outcome") == ACCEPTED).select("event.*", record).alias(GIVEN)


def _placed(rows: DataFrame, definition: Definition, kinds: dict[str, Kind]) -> DataFrame:
    """The rows of a stream, at the position and time of their records. A row without its key stops the view."""
    fields = []
    for name, kind in sorted(kinds.items()):
        value = plain(F.col(name), kind)
        if kind == "float":  # a function can make NaN or infinity, unlike an accepted record; it counts as missing
            value = F.when(~F.isnan(value) & (F.abs(value) != F.lit(float("inf"))), value)
        if name in [k.name for k in definition.keys]:
            unkeyed = F.raise_error(F.lit(f"{definition.view}: the stream gave a row without {name}"))
            value = F.when(value.isNull(), unkeyed).otherwise(value)
        if name != definition.time:
            fields.append(value.alias(OWN + name))
    return rows.select(f"{RECORD}.*", F.col(f"{RECORD}.event_us").alias(OWN + definition.time), *fields)


def exploded(rows: DataFrame, steps: tuple[int, ...], *, ledger: bool = True) -> DataFrame:
    """Explode each row to one row per step. A record that was not accepted gets only its ledger row.

    The steps are constants, so nothing is allocated per record.
    """
    every = F.array(*(F.lit(s).cast("long") for s in (*steps, *((_LEDGER,) if ledger else ()))))
    if not ledger or not steps:
        return rows.withColumn("s", F.explode(every))
    only = F.array(F.lit(_LEDGER).cast("long"))
    return rows.withColumn("s", F.explode(F.when(F.col("outcome") == ACCEPTED, every).otherwise(only)))


def aggregate(
    column: columns.Column, *, ties: bool = False, within: Column | None = None, placed: bool = False
) -> Column:
    """A column's partial over rows that `accepted` returned, or over those of them that meet the condition `within`.

    `ties` says that several rows may have the same position, which only a stream makes. Among those the largest text is
    the last. `placed` keeps the position with the last value, for partials that overlap in time.
    """
    conditions = ([] if within is None else [within]) + ([] if column.where is None else [condition(column.where, OWN)])
    where = reduce(and_, conditions) if conditions else None
    if column.field is None:
        return F.count(F.lit(1)) if where is None else F.count(F.when(where, F.lit(1)))
    value = F.col(OWN + column.field)
    chosen = value if where is None else F.when(where, value)
    if column.aggregate == "last_n":
        # Spark's own bounded aggregate: state holds n values, whatever the number of events.
        return InternalFunction.collect_top_k(_placed_text(chosen), column.size, False)
    if column.aggregate == "last":
        return _last(value, chosen.isNotNull(), ties=ties, placed=placed)
    if column.aggregate == "distinct":
        return F.hll_sketch_agg(chosen, column.size)
    if column.aggregate == "sum":
        return F.sum(chosen.cast("decimal(19,0)") if column.kind == "int" else _float_units(chosen, column.scale))
    if column.aggregate != "count" and column.kind == "float":
        chosen = F.when(chosen == 0.0, F.lit(0.0)).otherwise(chosen)  # never -0.0: it would depend on the order
    return {"count": F.count, "min": F.min, "max": F.max}[column.aggregate](chosen)


def _last(value: Column, counts: Column, *, ties: bool, placed: bool) -> Column:
    position = F.struct("event_us", "slot", "offset", *((value.cast("string"),) if ties else ()))
    if placed:
        return F.max(F.when(counts, F.struct(position.alias("position"), value.alias("value"))))
    return F.max_by(value, F.when(counts, position))


def _placed_text(value: Column) -> Column:
    """A text that sorts by position: time, slot and offset in digits of fixed width, followed by the value.

    With a struct, Spark would build the comparison again for every group: ten times the cost of all the rest.
    """
    time, slot, offset = F.col("event_us") + F.lit(1 << 55), F.col("slot").cast("long"), F.col("offset")
    digits = [F.lpad(F.hex(number), width, "0") for number, width in ((time, 14), (slot, 8))]
    # An imported record has a negative offset: "-", which sorts before every digit, then the offset plus 2**44.
    past = F.concat(F.lit("-"), F.lpad(F.hex(offset + F.lit(1 << 44)), 11, "0"))
    placed = F.when(offset < 0, past).otherwise(F.lpad(F.hex(offset), 12, "0"))
    return F.concat(*digits, placed, value.cast("string"))


def values_of_texts(texts: Column) -> Column:
    """The values of texts that `_placed_text` made, as text. The order stays: newest first."""
    return F.transform(texts, lambda text: F.substring(text, _PLACE_WIDTH + 1, 2**30))


def _float_units(value: Column, scale: int) -> Column:
    """A float as a whole number of units of 10**-scale.

    It uses the same IEEE operations as fold.columns.units, so that both give the same integer.
    """
    scaled = value * F.lit(float(10**scale)) + F.lit(0.5)
    fits = F.abs(scaled) < F.lit(float(INT64))
    whole = F.floor(F.when(fits, scaled)).cast("decimal(19,0)")
    overflow = F.lit(str(columns.OVERFLOW)).cast("decimal(38,0)")
    return F.when(fits, whole.cast("decimal(38,0)")).when(value.isNotNull(), overflow)


def pack(batch: DataFrame, definition: Definition, number: int) -> DataFrame:
    """Pack a batch to columns entity (null for a ledger row), store field, value, digest (null for a ledger row).

    The expressions are SQL text. With column objects, each batch would need a hundred calls into the JVM. The digest
    leaves sketches out, because their bytes depend on the order in which they were filled.
    """
    index = "(unix_micros(tile_end) div nullif(step, 0) - 1)"
    slots = " ".join(f"when {step} then {ring}" for step, ring in definition.rings.items())
    field = f"concat_ws(':', step div {SECOND}, pmod({index}, case step {slots} end))" if slots else "null"
    if definition.lifetime:
        field = f"if(step = {_LIFETIME}, '{LIFETIME_FIELD}', {field})"
        index = f"if(step = {_LIFETIME}, newest_event, {index})"
    texts = [_json(f"p{i}", column) for i, column in enumerate(definition.columns)]
    packed = batch.selectExpr(
        "if(step < 0, null, entity) as entity",
        f"if(step < 0, {NAME.format(topics=_topics(definition))}, {field}) as name",
        f"if(step < 0, {COUNTS}, concat('[', concat_ws(',', {index}, '{number}', {', '.join(texts)}), ']')) as value",
        *([f"concat_ws(',', {index}, {_repeatable(definition, texts)}) as text"] if _sketches(definition) else ()),
    )
    # In a second projection: within the same one, Spark would make each text twice.
    if _sketches(definition):
        return packed.selectExpr("entity", "name", "value", DIGEST.replace("value)", "text)"))
    return packed.selectExpr("*", DIGEST)


def _sketches(definition: Definition) -> bool:
    return any(column.aggregate == "distinct" for column in definition.columns)


def _repeatable(definition: Definition, texts: list[str]) -> str:
    stable = [text for text, column in zip(texts, definition.columns, strict=True) if column.aggregate != "distinct"]
    return ", ".join(stable) or "null"


def _topics(definition: Definition) -> str:
    return ", ".join(f"'{o.topic}'" for o in definition.origins)


def _json(name: str, column: columns.Column) -> str:
    if column.aggregate == "distinct":  # Spark inserts line breaks into base64
        return f"concat('\"', translate(base64({name}), concat(char(13), char(10)), ''), '\"')"
    if column.aggregate == "last_n":
        texts = f"transform({name}, x -> substring(x, {_PLACE_WIDTH + 1}))"
        return f"to_json({texts})" if column.kind == "string" else f"concat('[', array_join({texts}, ','), ']')"
    return json_text(name, column.kind if column.aggregate == "last" else "int")
