"""The resources of a view (Spark cores, rows and bytes of state, memory of the online store) and its freshness."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

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

# The model was never tested with more than a thousand cores for one view.
_MOST_CORES = 1_024
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
        shape = Shape((0.0,), load.keys, partitions(load))  # one row per key, like a feature of all time, but no state
        storage = [*_table_lines(definition, load, constants, namespace)]
    else:
        shape = Shape.of(definition, load.keys, partitions(load))
        storage = [*_state_lines(definition, load, constants), *_online_lines(definition, load, constants, namespace)]
    needed = cores_needed(shape, load, constants)
    used = cores or needed or shape.partitions
    now, backlog = steady(shape, load.rate, used, constants), full(shape, load.rate, used, constants)
    chosen = Line(
        "Spark cores",
        _why_so_many(load, constants, given=cores is not None, enough=needed is not None),
        str(used),
        used,
        "cores",
    )
    lines = (chosen, *_pace_lines(load, constants, now, backlog, cores=used), *storage)
    return Sized(lines, tuple(_advice(load, constants, now, backlog, shape, cores=used, needed=needed)))


def _why_so_many(load: Load, constants: Constants, *, given: bool, enough: bool) -> str:
    if given:
        return "those that there are"
    asked = f"λ/R up to {constants.busy:g} that catch up within {amount(load.catch_up_s, 's')}"
    return f"the fewest with {asked}" if enough else f"one for each partition, as there is no number with {asked}"


def cores_needed(shape: Shape, load: Load, constants: Constants) -> int | None:
    """The fewest cores that leave room for peaks and catch up in time after an outage.

    None if no number of cores is enough: batches have a largest size, and a fixed cost that more cores do not reduce.
    """
    for cores in range(1, _MOST_CORES + 1):
        now, backlog = steady(shape, load.rate, cores, constants), full(shape, load.rate, cores, constants)
        if load.rate / now.rate <= constants.busy and _catch_up_s(load, backlog) <= load.catch_up_s:
            return cores
    return None


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
    each = online_bytes(definition, most, constants, namespace)
    yield _in_all(load, "online bytes, at most", each)
    tiles = expected_tiles(definition, load, MONTH_S)
    yield Line(
        "tiles after 30 days",
        "for each step: slots × (1 - e^-(records of a key ÷ slots)): what such a load has filled by then",
        " + ".join(f"{count:.3g} of {text(step) if step else 'all time'}" for step, count in tiles.items()),
        sum(tiles.values()),
        "tiles",
    )
    yield _in_all(load, "online bytes, 30 days", online_bytes(definition, tiles, constants, namespace))


def expected_tiles(definition: Definition, load: Load, age_s: float) -> dict[int, float]:
    """The number of slots of each step that an entity has filled after `age_s`, if records arrive evenly."""
    assert load.keys is not None
    records = load.rate / load.keys * age_s
    rings = {step: min(ring, age_s * SECOND / step + 1) for step, ring in definition.rings.items()}
    tiles = {step: slots * -math.expm1(-records / slots) for step, slots in rings.items()}
    return {**tiles, 0: 1.0} if definition.lifetime else tiles


def online_bytes(definition: Definition, tiles: dict[int, float], constants: Constants, namespace: str) -> float:
    """The bytes in the online store for one entity that holds so many tiles of each step."""
    name = widths.row_name(definition.view, namespace, len(definition.keys))
    beside = _beside(sum(tiles.values()), widths.value_text(definition), constants)
    texts = sum(count * (widths.tile_text(definition, step) + beside) for step, count in tiles.items())
    return constants.entity_bytes + name + texts


def _beside(tiles: float, value: int, constants: Constants) -> float:
    """The bytes that Redis adds to a tile. They are few while it packs the row, that is, with few and short values."""
    packs = tiles <= constants.packed_tiles and value <= constants.packed_value_bytes
    return constants.tile_bytes if packs else constants.loose_tile_bytes


def _entity_line(definition: Definition, tiles: dict[int, float], constants: Constants, namespace: str) -> Line:
    count = sum(tiles.values())
    beside = _beside(count, widths.value_text(definition), constants)
    mean = sum(n * widths.tile_text(definition, step) for step, n in tiles.items()) / count
    name = widths.row_name(definition.view, namespace, len(definition.keys))
    return Line(
        "online bytes per entity",
        "of a row + its name + tiles × (text + what Redis adds)",
        f"{constants.entity_bytes:.0f} + {name} + {number(count)} × ({mean:.0f} + {beside:.0f})",
        online_bytes(definition, tiles, constants, namespace),
        "B",
    )


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
        yield _in_all(load, "online bytes, at most", each)


def _advice(
    load: Load, constants: Constants, now: Pace, backlog: Pace, shape: Shape, *, cores: int, needed: int | None
) -> Iterator[Advice]:
    share = load.rate / now.rate
    more = "use more partitions, or a larger most_offsets: batches are too small for any number of cores"
    if needed is not None:
        more = f"give it about {needed} cores"
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
    elif (late := _catch_up_s(load, backlog)) > load.catch_up_s:
        taken = "forever" if math.isinf(late) else amount(late, "s")
        yield Advice(
            "view-slow-to-catch-up",
            f"after an outage of {amount(load.downtime_s, 's')} it takes {taken} "
            f"to catch up, and you allow {amount(load.catch_up_s, 's')}",
            f"full batches process {number(backlog.through)} records/s, and {number(load.rate)} arrive meanwhile",
            more,
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
    if cores > shape.partitions and cores != needed:
        yield Advice(
            "cores-idle",
            f"{counted(cores, 'core')} read {counted(shape.partitions, 'partition')}",
            "Spark reads a partition with one core; the other cores wait until there is something to fold",
            f"declare {counted(cores, 'partition')}, or use {counted(shape.partitions, 'core')}",
        )
    written = load.rate * now.tiles_per_record
    if written > constants.store_tiles:
        yield Advice(
            "store-busy",
            f"{number(written)} tiles/s are written, and one Redis takes about {number(constants.store_tiles)}",
            "Redis runs one script at a time, and readers wait meanwhile",
            "use windows that share a step, or run the view under a profile whose Redis is its own",
        )
