"""The resources of a view (Spark cores, rows and bytes of state, memory of the online store) and its freshness."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from leftfold.declare.batches import BACKLOG_S
from leftfold.fold.definition import Definition
from leftfold.fold.durations import SECOND, text
from leftfold.fold.latest import Latest
from leftfold.sizing import widths
from leftfold.sizing.constants import Constants
from leftfold.sizing.line import Advice, Line
from leftfold.sizing.load import Load
from leftfold.sizing.log_size import partitions
from leftfold.sizing.pace import Pace, Shape, full, steady
from leftfold.sizing.wrong_tool import soonest_s
from leftfold.units import amount, counted, number, percent

# More would be a slip in a number of the load.
_MOST_CORES = 100_000
# The model was compared with runs on two cores. With more than this, say that one driver plans every batch.
_LARGE_CORES = 1_024
# With more bytes than this in memory, advise a store on disks.
_IN_MEMORY = 1e12
MONTH_S = 30 * 86_400.0


@dataclass(frozen=True)
class Sized:
    """The calculations for one view, and the advice that follows from them."""

    lines: tuple[Line, ...]
    advice: tuple[Advice, ...] = ()

    def result(self, name: str) -> float:
        return next(line.result for line in self.lines if line.name == name)


def size_view(
    definition: Definition | Latest, load: Load, constants: Constants, *, cores: int | None = None, namespace: str = ""
) -> Sized:
    """Size one view. `cores` is the number of cores that the view has; with None, find the number that it needs.

    A view that shares its cores with others has fewer.
    """
    if isinstance(definition, Latest):
        made = Shape((0.0,), load.keys, partitions(load))  # one row per key, like a feature of all time, but no state
        storage = [*_table_lines(definition, load, constants, namespace)]
    else:
        made = Shape.of(definition, load.keys, partitions(load))
        storage = [*_state_lines(definition, load, constants), *_online_lines(definition, load, constants, namespace)]
    # Batches are sized for the load before cores are. If a run would make smaller ones, the advice says so.
    shape = replace(made, record_bytes=load.record_bytes, declared_rate=load.rate)
    needed = Needed.of(shape, load, constants)
    used = cores or needed.keep_up or shape.partitions
    now, backlog = steady(shape, load.rate, used, constants), full(shape, load.rate, used, constants)
    lines = (
        _cores_line(load, constants, now, used, given=cores is not None, enough=needed.keep_up is not None),
        *_catch_up_cores(load, shape, constants, needed.catch_up),
        *_batch_lines(load, shape, used),
        *_pace_lines(load, constants, now, backlog, cores=used),
        *storage,
    )
    advice = (
        *_advice(load, constants, now, backlog, shape, cores=used, needed=needed, given=cores is not None),
        *_batch_advice(load, constants, shape, needed),
        *_store_advice(load, constants, now.tiles_per_record * load.rate, storage),
    )
    return Sized(lines, advice)


@dataclass(frozen=True)
class Needed:
    """The fewest cores for a load. None if no number of cores is enough.

    That is so because a batch has a largest size, and a fixed cost that more cores do not reduce.
    """

    keep_up: int | None  # and leave room for peaks
    catch_up: int | None  # and work off an outage in time

    @classmethod
    def of(cls, shape: Shape, load: Load, constants: Constants) -> Needed:
        def keeps_up(cores: int) -> bool:
            now = steady(shape, load.rate, cores, constants)
            return not math.isinf(now.seconds) and load.rate / now.rate <= constants.busy

        def catches_up(cores: int) -> bool:
            backlog = full(shape, load.rate, cores, constants)
            return keeps_up(cores) and _catch_up_s(load, backlog) <= load.catch_up_s

        return cls(_fewest(keeps_up), _fewest(catches_up))


def _fewest(enough: Callable[[int], bool]) -> int | None:
    """The smallest number of cores that is enough. More than that are enough, too."""
    if not enough(_MOST_CORES):
        return None
    return bisect_left(range(1, _MOST_CORES), True, key=enough) + 1


def _cores_line(load: Load, constants: Constants, now: Pace, cores: int, *, given: bool, enough: bool) -> Line:
    each = now.rate / cores
    if given:
        formula, numbers = "those that there are", str(cores)
    elif not enough:
        formula = f"one for each partition, as there is no number with λ/R up to {constants.busy:g}"
        numbers = str(cores)
    else:
        formula = (
            f"the fewest with λ/R up to {constants.busy:g}: records/s ÷ ({constants.busy:g} × R of one), rounded up"
        )
        numbers = f"{number(load.rate)} ÷ ({constants.busy:g} × {number(each)})"
        if math.ceil(load.rate / (constants.busy * each)) != cores:  # batches must also be short enough to be held
            formula, numbers = f"the fewest with λ/R up to {constants.busy:g} and batches that hold T", str(cores)
    return Line("Spark cores", formula, numbers, cores, "cores")


def _catch_up_cores(load: Load, shape: Shape, constants: Constants, cores: int | None) -> Iterator[Line]:
    if cores is None:
        return
    backlog = full(shape, load.rate, cores, constants)
    records, wanted = number(backlog.records), load.rate * (1 + load.downtime_s / load.catch_up_s)
    yield Line(
        "cores, to catch up",
        f"the fewest n whose full batches do records/s × (1 + {amount(load.downtime_s, 's')} of outage ÷ "
        f"{amount(load.catch_up_s, 's')} to catch up), and that keep up",
        f"{records} ÷ ({backlog.fixed_s:.2f} s + {records} ÷ (n × {number(backlog.rate / cores)})) ≥ {number(wanted)}",
        cores,
        "cores",
    )


def _batch_lines(load: Load, shape: Shape, cores: int) -> Iterator[Line]:
    task, most = number(shape.per_task), shape.full_batch(cores)
    yield Line(
        "records of a full batch",
        f"{BACKLOG_S} s × the smaller of records/s and {task}/s × cores; {task} × partitions at the least",
        f"max({BACKLOG_S} s × min({number(load.rate)}, {task} × {number(cores)}), {task} × {number(shape.partitions)})",
        most,
        "records",
    )
    yield Line(
        "offsets of a partition in it",
        "records of a full batch ÷ partitions",
        f"{number(most)} ÷ {number(shape.partitions)}",
        most / shape.partitions,
        "offsets",
    )


def _catch_up_s(load: Load, backlog: Pace) -> float:
    left = backlog.through - load.rate
    return load.rate * load.downtime_s / left if left > 0 else math.inf


def _pace_lines(load: Load, constants: Constants, now: Pace, backlog: Pace, *, cores: int) -> Iterator[Line]:
    rate, r = number(load.rate), number(now.rate)
    yield Line(
        "view rate R",
        "cores ÷ (1 ÷ records/s of a core + tiles per record ÷ tiles/s of a core)",
        f"{cores} ÷ (1 ÷ {number(constants.records_per_core)} + {now.tiles_per_record:.2f} ÷ "
        f"{number(constants.tiles_per_core)})",
        now.rate,
        "records/s",
    )
    yield Line("load λ/R", "records/s ÷ R", f"{rate} ÷ {r}", load.rate / now.rate, "")
    yield Line(
        "batch time T",
        "b ÷ (1 - λ/R)",
        f"{now.fixed_s:.2f} s ÷ (1 - {load.rate / now.rate:.2f})",
        now.seconds,
        "s",
    )
    yield Line(
        "records in a batch", "λ × T", f"{rate} × {amount(now.seconds, 's')}", load.rate * now.seconds, "records"
    )
    yield Line(
        "freshness, usual",
        "T ÷ 2 until the next batch begins, and T until it is written",
        f"1.5 × {amount(now.seconds, 's')}",
        1.5 * now.seconds,
        "s",
    )
    yield Line(
        "freshness, worst", "a whole T of waiting, and T", f"2 × {amount(now.seconds, 's')}", 2 * now.seconds, "s"
    )
    yield Line(
        "rate of full batches",
        "records of a full batch ÷ (b + records ÷ R of it)",
        f"{number(backlog.records)} ÷ ({backlog.fixed_s:.2f} s + {number(backlog.records)} ÷ {number(backlog.rate)})",
        backlog.through,
        "records/s",
    )
    behind = load.rate * load.downtime_s
    yield Line(
        "catch-up",
        f"backlog of {amount(load.downtime_s, 's')} ÷ (rate of full batches - λ)",
        f"{number(behind)} ÷ ({number(backlog.through)} - {rate})",
        _catch_up_s(load, backlog),
        "s",
    )
    written = load.rate * now.tiles_per_record
    yield Line(
        "written to the store",
        "λ × tiles per record",
        f"{rate} × {now.tiles_per_record:.2f}",
        written,
        "tiles/s",
    )
    yield Line(
        "Redis, for writes",
        "tiles/s ÷ what one Redis takes, rounded up",
        f"{number(written)} ÷ {number(constants.store_tiles)}",
        _nodes(written, constants.store_tiles),
        "nodes",
    )


def _nodes(whole: float, each: float) -> int:
    return max(1, math.ceil(whole / each))


def _state_lines(definition: Definition, load: Load, constants: Constants) -> Iterator[Line]:
    live, shown = 0.0, []
    kept_s = load.lateness_s + constants.state_slack_s
    for step in definition.steps:
        tiles, share = kept_s * SECOND / step + 1, _filled(load, step / SECOND)
        live += tiles * share
        shown.append(f"{tiles:.3g} × {share:.2f} of {text(step)}")
    if definition.lifetime:
        live += 1
        shown.append("1 of all time")
    yield Line(
        "live tiles per key",
        "for each step: ((lateness + slack) ÷ step + 1) × the share of them that has a record",
        " + ".join(shown),
        live,
        "tiles",
    )
    if load.keys is None:
        return
    ledger = 4 * partitions(load)
    rows = load.keys * live + ledger
    yield Line(
        "state rows",
        "keys × live tiles + 4 of the ledger per partition",
        f"{number(load.keys)} × {live:.2f} + {ledger}",
        rows,
        "rows",
    )
    yield Line(
        "state bytes",
        "rows × (bytes of a row × what packing leaves of it + what RocksDB adds)",
        f"{number(rows)} × ({widths.state_row(definition)} B × {constants.state_packing:.2f} + "
        f"{number(constants.state_row_bytes)} B)",
        rows * (widths.state_row(definition) * constants.state_packing + constants.state_row_bytes),
        "B",
    )


def _filled(load: Load, step_s: float) -> float:
    """The share of a key's tiles of this step that have a record, if records arrive evenly; 1 if keys are not known."""
    return 1.0 if load.keys is None else -math.expm1(-load.rate / load.keys * step_s)


def _online_lines(definition: Definition, load: Load, constants: Constants, namespace: str) -> Iterator[Line]:
    most = {step: float(ring) for step, ring in definition.rings.items()}
    if definition.lifetime:
        most[0] = 1
    yield Line(
        "tiles per entity, at most",
        "for each step the ring of slots: a slot keeps its tile until the next one needs it",
        " + ".join(f"{ring:g} of {text(step) if step else 'all time'}" for step, ring in most.items()),
        sum(most.values()),
        "tiles",
    )
    yield _entity_line(definition, most, constants, namespace)
    if load.keys is None:
        return
    yield from _at_most(load, online_bytes(definition, most, constants, namespace), constants)
    tiles = expected_tiles(definition, load, MONTH_S)
    yield Line(
        "tiles after 30 days",
        "for each step: slots × (1 - e^-(records of a key in their time ÷ slots)): what such a load fills",
        " + ".join(f"{count:.3g} of {text(step) if step else 'all time'}" for step, count in tiles.items()),
        sum(tiles.values()),
        "tiles",
    )
    records = load.rate / load.keys * sum(ring * step / SECOND for step, ring in definition.rings.items())
    each = online_bytes(
        definition,
        tiles,
        constants,
        namespace,
        events=records / sum(tiles.values()),
        slots=sum(_filled_slots(definition, load, MONTH_S, MONTH_S).values()),
    )
    yield _in_all(load, "online bytes, 30 days", each)


def expected_tiles(definition: Definition, load: Load, age_s: float) -> dict[int, float]:
    """The number of tiles of each step that reads reach and an entity has after `age_s`, if records arrive evenly.

    A tile that no read reaches any more is dropped when the row is packed.
    """
    return _filled_slots(definition, load, age_s, 0)


def _filled_slots(definition: Definition, load: Load, age_s: float, least_s: float) -> dict[int, float]:
    """The number of slots of each step that the records of an entity have filled, at least those of `least_s`."""
    assert load.keys is not None
    each = load.rate / load.keys
    rings = {step: min(ring, age_s * SECOND / step + 1) for step, ring in definition.rings.items()}
    spans = {step: min(age_s, max(n * step / SECOND, least_s)) for step, n in rings.items()}
    tiles = {step: n * -math.expm1(-each * spans[step] / n) for step, n in rings.items()}
    return {**tiles, 0: 1.0} if definition.lifetime else tiles


def online_bytes(
    definition: Definition,
    tiles: dict[int, float],
    constants: Constants,
    namespace: str,
    *,
    events: float | None = None,
    slots: float = 0,
) -> float:
    """The bytes in the online store for one entity that holds so many tiles of each step, with so many events in each.

    Without a number of events, those that it can take at most. With `slots` filled, some of them by tiles that no read
    reaches any more, a row with few other tiles is packed too.
    """
    name = widths.row_name(definition.view, namespace, len(definition.keys))
    loose, packed = _loose_and_packed(definition, tiles, constants, slots)
    mean = _tile_text(definition, tiles, events) + _beside_tile(definition, tiles, constants, slots)
    whole = _packed_field(definition, tiles, constants, events) + packed * widths.packed_tile(definition, events)
    return constants.entity_bytes + name + loose * mean + (whole if packed else 0)


def _packed_field(definition: Definition, tiles: dict[int, float], constants: Constants, events: float | None) -> float:
    """The bytes of the packed field without its tiles."""
    return constants.packed_row_bytes + widths.answers(definition, events and events * sum(tiles.values()))


def _loose_and_packed(
    definition: Definition, tiles: dict[int, float], constants: Constants, slots: float = 0
) -> tuple[float, float]:
    """The tiles of a row that are fields of their own, and those that are packed into one.

    When there are too many fields, all are packed but the newest of each step. So on average half of the others are
    there, and half of these are of a step so short that nothing of it is read any more.
    """
    count = sum(tiles.values())
    if max(count, slots) <= constants.loose_tiles:
        return count, 0
    loose = (len(definition.steps) + constants.loose_tiles) / 2
    return loose, max(0, count - loose / 2)


def _tile_text(definition: Definition, tiles: dict[int, float], events: float | None) -> float:
    return sum(n * widths.tile_text(definition, step, events) for step, n in tiles.items()) / sum(tiles.values())


def _beside_tile(definition: Definition, tiles: dict[int, float], constants: Constants, slots: float = 0) -> float:
    loose, packed = _loose_and_packed(definition, tiles, constants, slots)
    return constants.loose_tile_bytes if packed else _beside(loose, widths.value_text(definition), constants)


def _beside(tiles: float, value: float, constants: Constants) -> float:
    """The bytes that Redis adds to a tile. They are few while it packs the row, that is, with few and short values."""
    packs = tiles <= constants.packed_tiles and value <= constants.packed_value_bytes
    return constants.tile_bytes if packs else constants.loose_tile_bytes


def _entity_line(definition: Definition, tiles: dict[int, float], constants: Constants, namespace: str) -> Line:
    name = widths.row_name(definition.view, namespace, len(definition.keys))
    loose, packed = _loose_and_packed(definition, tiles, constants)
    mean, beside = _tile_text(definition, tiles, None), _beside_tile(definition, tiles, constants)
    formula = "of a row + its name + tiles × (text + what Redis adds)"
    numbers = f"{constants.entity_bytes:.0f} + {name} + {number(loose)} × ({mean:.0f} + {beside:.0f})"
    if packed:
        formula += " + of the packed field + packed tiles × bytes of one"
        numbers += (
            f" + {_packed_field(definition, tiles, constants, None):.0f} + {number(packed)} × "
            f"{widths.packed_tile(definition, None):.0f}"
        )
    each = online_bytes(definition, tiles, constants, namespace)
    return Line("online bytes per entity", formula, numbers, each, "B")


def _in_all(load: Load, name: str, each: float) -> Line:
    assert load.keys is not None
    numbers = f"{number(load.keys)} × {amount(each, 'B')}"
    return Line(name, "keys × bytes per entity", numbers, load.keys * each, "B")


def _table_lines(definition: Latest, load: Load, constants: Constants, namespace: str) -> Iterator[Line]:
    value = widths.row_text(definition)
    beside = _beside(1, value, constants)
    name = widths.row_name(definition.view, namespace, len(definition.keys))
    each = constants.entity_bytes + name + value + beside
    yield Line(
        "online bytes per entity",
        "of a row + its name + its text + what Redis adds",
        f"{constants.entity_bytes:.0f} + {name} + {value} + {beside:.0f}",
        each,
        "B",
    )
    if load.keys is not None:
        yield from _at_most(load, each, constants)


def _at_most(load: Load, each: float, constants: Constants) -> Iterator[Line]:
    whole = _in_all(load, "online bytes, at most", each)
    yield whole
    yield Line(
        "Redis, for memory",
        "online bytes, at most ÷ memory of one for rows, rounded up; as many again for each replica",
        f"{amount(whole.result, 'B')} ÷ {amount(constants.store_node_bytes, 'B')}",
        _nodes(whole.result, constants.store_node_bytes),
        "nodes",
    )


def _advice(
    load: Load,
    constants: Constants,
    now: Pace,
    backlog: Pace,
    shape: Shape,
    *,
    cores: int,
    needed: Needed,
    given: bool,
) -> Iterator[Advice]:
    share = load.rate / now.rate
    larger = "use more partitions, or a larger most_offsets: batches are too small for any number of cores"
    more = larger if needed.keep_up is None else f"give it about {counted(needed.keep_up, 'core')}"
    if math.isinf(now.seconds) or share >= 1:
        yield Advice(
            "view-falls-behind",
            f"{number(load.rate)} records/s arrive, and {counted(cores, 'core')} can process {number(backlog.through)}",
            "the view never catches up: it falls further behind until retention deletes records that it has not read",
            more,
        )
    elif share > constants.busy:
        yield Advice(
            "view-busy",
            f"the view is at {percent(share)} utilisation, and {percent(constants.busy)} is the target",
            f"batches take {1 / (1 - share):.1f} times as long as without load, and the view never catches up again "
            f"once the rate grows to {1 / share:.2f} times this one",
            more,
        )
    # The cores that catch up in time are shown with those that keep up. There need not be so many all the time.
    elif (late := _catch_up_s(load, backlog)) > load.catch_up_s and (given or needed.catch_up is None):
        taken = "forever" if math.isinf(late) else amount(late, "s")
        yield Advice(
            "view-slow-to-catch-up",
            f"after an outage of {amount(load.downtime_s, 's')} it takes {taken} "
            f"to catch up, and you allow {amount(load.catch_up_s, 's')}",
            f"full batches process {number(backlog.through)} records/s, and {number(load.rate)} arrive meanwhile",
            larger
            if needed.catch_up is None
            else f"give it about {counted(needed.catch_up, 'core')} until it has caught up",
        )
    wanted = load.freshness_s
    if wanted is not None and soonest_s(constants) <= wanted < 2 * now.seconds < math.inf:
        yield Advice(
            "view-not-fresh",
            f"a record is in its features after up to {amount(2 * now.seconds, 's')}, and you need it within "
            f"{amount(wanted, 's')}",
            f"a batch takes {amount(now.seconds, 's')}, of which {amount(now.fixed_s, 's')} is its fixed cost, and a "
            "record may wait for one batch before its own",
            "give it more cores; they shorten all of a batch except its fixed cost",
        )
    has_more_tasks = shape.full_batch(cores) > shape.per_task * shape.partitions
    if cores > shape.partitions and cores not in (needed.keep_up, needed.catch_up) and not has_more_tasks:
        yield Advice(
            "cores-idle",
            f"{counted(cores, 'core')} read {counted(shape.partitions, 'partition')}",
            "Spark reads a partition with one core; the other cores wait until there is something to fold",
            f"declare {counted(cores, 'partition')}, or use {counted(shape.partitions, 'core')}",
        )
    if cores > _LARGE_CORES:
        parts = math.ceil(cores / _LARGE_CORES)
        yield Advice(
            "view-large",
            f"{number(load.rate)} records/s take {counted(cores, 'core')} for one view, and {shape.partitions:,} "
            f"{'partition' if shape.partitions == 1 else 'partitions'}",
            "one driver plans and commits every batch, and this model was never compared with so many cores",
            f"divide the records by key among {parts} topics, each with a view of its own, or add up the records of a "
            "key before you send them",
        )


def _batch_advice(load: Load, constants: Constants, shape: Shape, needed: Needed) -> Iterator[Advice]:
    """Advice if a run would make smaller batches than the sizing counts with, so that the view needs more cores."""
    as_run = replace(shape, declared_rate=load.declared_rate, most_offsets=load.most_offsets)
    if needed.keep_up is None or as_run.full_batch(needed.keep_up) >= shape.full_batch(needed.keep_up):
        return
    takes = Needed.of(as_run, load, constants).keep_up
    if takes is not None and takes <= needed.keep_up:
        return
    small, wanted = as_run.full_batch(needed.keep_up), shape.full_batch(needed.keep_up)
    sized = f"{number(wanted)} are {BACKLOG_S} s of {number(load.rate)} records/s"
    if load.most_offsets is not None:
        because = f"most_offsets = {load.most_offsets} of the profile"
        fix = f"remove most_offsets from the profile, or set it to {math.ceil(wanted / shape.partitions)}"
    else:
        known = load.declared_rate
        because = "no rate is declared" if known is None else f"{number(known)} records/s are declared"
        fix = f'declare rate="{_rate_text(load.rate)}" for what the view reads'
    what = f"a batch holds at most {number(small)} records ({because}), and {sized}"
    if takes is None:
        why = "batches pay their fixed cost so often that the view never catches up, whatever the number of cores"
        yield Advice("view-falls-behind", what, why, fix)
    else:
        why = f"batches pay their fixed cost so often that it takes {counted(takes, 'core')} instead of "
        yield Advice("batch-small", what, f"{why}{needed.keep_up:,}", fix)


def _rate_text(rate: float) -> str:
    return f"{rate / 1e6:.3g}m/s" if rate >= 1e6 else f"{rate / 1e3:.3g}k/s"


def _store_advice(load: Load, constants: Constants, written: float, storage: list[Line]) -> Iterator[Advice]:
    if written > constants.store_tiles:
        nodes = _nodes(written, constants.store_tiles)
        yield Advice(
            "store-busy",
            f"{number(written)} tiles/s are written, and one Redis takes about {number(constants.store_tiles)}: it "
            f"takes {nodes:,} of them",
            "Redis runs one script at a time, and readers wait meanwhile. A view writes into one Redis",
            f"use windows that share a step, or divide the records by key among {nodes:,} topics, each with a view "
            "under a profile whose Redis is its own",
        )
    held = next((line.result for line in storage if line.name == "online bytes, at most"), 0.0)
    if held > _IN_MEMORY:
        assert load.keys is not None
        nodes = _nodes(held, constants.store_node_bytes)
        yield Advice(
            "store-large",
            f"{number(load.keys)} entities take up to {amount(held, 'B')} of memory, {nodes:,} Redis of "
            f"{amount(constants.store_node_bytes, 'B')}",
            "Redis keeps every row in memory, and in that of each replica. A view writes into one Redis",
            f"use shorter windows, or windows that share a step. Above {amount(_IN_MEMORY, 'B')} keep the rows in a "
            "store on disks: declare a changelog (to=lf.Changelog()), and feed the store from it",
        )
