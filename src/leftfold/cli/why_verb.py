"""The verb why: shows the tiles and events that made a value."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from leftfold.cli.given import Moment
from leftfold.cli.output import document, json_option, profile_option
from leftfold.cli.progress import counted
from leftfold.cli.view_verbs import parsed_key
from leftfold.fold.expressions import from_micros

if TYPE_CHECKING:
    from leftfold.run.evidence import Evidence
    from leftfold.run.why import EventOf, TileOf, Why

SHOWN = 20  # fits a screen; --all and --json show the rest
_PIPED_WIDTH = 160
_MARKS = {"same": "✓", "different": "✗", "unknown": "?"}


@click.command()
@click.argument("view")
@click.argument("key", nargs=-1, required=True)
@click.option("--at", type=Moment(), help="Time of the values, in the recent past. [default: now]")
@click.option("--all", "everything", is_flag=True, help=f"All tiles and events, not only the newest {SHOWN}.")
@profile_option
@json_option
def why(
    view: str, key: tuple[str, ...], at: datetime | None, everything: bool, profile: str | None, as_json: bool
) -> None:
    """Show the records behind the values of one entity. Its tiles, its events, whether both agree. KEY as for get."""
    import leftfold

    app = leftfold.open(profile=profile)
    app.catalog.view(view)  # reports an undeclared name before any engine is asked
    parts = parsed_key(app.reader.keys(view), key)
    with counted(f"reading the log of {view}", verb="why", as_json=as_json) as watch:
        explained = app.why(view, at=at, watch=watch, **parts)
    if as_json:
        document("why", key=list(key), **as_document(explained))
    else:
        show(explained, " ".join(key), _answers(), shown=None if everything else SHOWN)
    if explained.verdict == "different":
        raise SystemExit(1)


def _answers() -> Console:
    """The console on standard output, because this is what the user asked for. A pipe gets 160 columns."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=_PIPED_WIDTH)


# For people ---------------------------------------------------------------------------------------------------------


def show(explained: Why, key: str, console: Console, *, shown: int | None = None) -> None:
    def line(text: str) -> None:
        console.print(text, markup=False, soft_wrap=True)

    line(f"{explained.view} {key}")
    line(f"  for {explained.moment:%Y-%m-%d %H:%M:%S} UTC, build {explained.build}, batch {explained.batch}")
    line("")
    console.print(_values(explained))
    if explained.position is not None:
        noun = "offset" if explained.kind == "table" else "position"
        line(f"\n  the row is of {noun} {explained.position[0]}, written by batch {explained.position[1]}")
    if explained.tiles:
        line("")
        console.print(_tiles(_newest(explained.tiles, shown), explained.columns))
        _left_out(line, "tiles", len(explained.tiles), shown)
    if explained.found is not None:
        line("")
        console.print(
            _events(_newest(explained.events, shown), explained.says) if explained.events else "  no event of this key"
        )
        _left_out(line, "events", len(explained.events), shown)
        line(f"  {_read(explained)}")
    line("")
    line(f"{_MARKS[explained.verdict]} {explained.reason}")


def _newest(all_of_them: Sequence[Any], shown: int | None) -> Sequence[Any]:
    return all_of_them if shown is None else all_of_them[-shown:]


def _left_out(line: Callable[[str], None], noun: str, number: int, shown: int | None) -> None:
    if shown is not None and number > shown:
        line(f"  … and {number - shown:,} older {noun}: --all shows them")


def _table(*columns: str, right: Sequence[str] = ()) -> Table:
    table = Table(box=None, header_style="bold", padding=(0, 0, 0, 2), pad_edge=True)
    for name in columns:
        table.add_column(name, justify="right" if name in right else "left", overflow="fold")
    return table


def _add(table: Table, *cells: str) -> None:
    """Add a row of plain texts. Without Text, rich would read a "[b]" in a user's data as a style."""
    table.add_row(*(Text(cell) for cell in cells))


def _values(explained: Why) -> Table:
    table = _table("feature" if explained.kind == "features" else "column", "store", "log", "", "tiles")
    for value in explained.values:
        known = explained.found is not None
        mark = ("✓" if value.same else "✗") if known else ""
        log = _shown(value.log) if known else ""
        _add(table, value.name, _shown(value.store), log, mark, _numbers(value.tiles))
    return table


def _tiles(tiles: Sequence[TileOf], columns: Sequence[str]) -> Table:
    from leftfold.run.why import tile_name

    table = _table("tile", "step", "from", "until", "batch", "holds", right=("tile", "batch"))
    for tile in tiles:
        start, end = (None if us is None else from_micros(us) for us in (tile.start, tile.end))
        held = ", ".join(f"{c} {_shown(v)}" for c, v in zip(columns, tile.store, strict=True))
        if tile.batch is None:
            held = "✗ the store has no such tile"
        elif tile.store != tile.log and tile.log:
            held += "  ✗ the log gives " + ", ".join(
                f"{c} {_shown(b)}" for c, a, b in zip(columns, tile.store, tile.log, strict=True) if a != b
            )
        _add(
            table,
            str(tile.number),
            tile_name(tile),
            "–" if start is None else f"{start:%m-%d %H:%M:%S}",
            "–" if end is None else f"{end:%H:%M:%S}",
            _shown(tile.batch),
            held,
        )
    return table


def _events(events: Sequence[EventOf], says: Sequence[str]) -> Table:
    table = _table("event", "happened", "logged", "outcome", "tiles", "what it says")
    table.columns[-1].overflow = "ellipsis"
    for column in table.columns:
        column.no_wrap = True
    for event in events:
        record = event.record
        happened = "–" if record.event_us is None else f"{from_micros(record.event_us):%m-%d %H:%M:%S.%f}"[:-3]
        _add(
            table,
            f"{record.topic}/{record.partition}/{record.offset}",
            happened,
            f"{from_micros(record.log_us):%m-%d %H:%M:%S.%f}"[:-3],
            record.outcome,
            _numbers(event.tiles),
            _said(record, says),
        )
    return table


def _said(record: Evidence, says: Sequence[str]) -> str:
    if record.fields is None:
        return "deleted" if record.deleted else "no record of this event"
    return " ".join(f"{name}={_shown(record.fields[name])}" for name in says)


def _read(explained: Why) -> str:
    assert explained.found is not None
    ranges = [r for r in explained.found.ranges if r.start < r.end]
    looked = sum(r.end - r.start for r in ranges)
    where = f"{len(ranges)} partition{'' if len(ranges) == 1 else 's'}"
    only = "" if explained.found.whole else ", where this key belongs"
    return f"read: {looked:,} offsets of {where}{only}, up to what batch {explained.batch} applied"


def _numbers(numbers: Sequence[int]) -> str:
    """Numbers as ranges, for example "1–3 7"."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return " ".join(str(run[0]) if len(run) == 1 else f"{run[0]}–{run[-1]}" for run in runs)


def _shown(value: Any) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    return "–" if value is None else str(value)


# For programs -------------------------------------------------------------------------------------------------------


def as_document(explained: Why) -> dict[str, Any]:
    from leftfold.run.why import step_seconds

    search = explained.found
    return {
        "view": explained.view,
        "kind": explained.kind,
        "build": explained.build,
        "batch": explained.batch,
        "moment": explained.moment.isoformat(),
        "values": [
            {
                "name": value.name,
                "store": _plain(value.store),
                "log": _plain(value.log),
                "same": value.same if search is not None else None,
                "tiles": list(value.tiles),
            }
            for value in explained.values
        ],
        "position": None if explained.position is None else explained.position[0],
        "columns": list(explained.columns),
        "tiles": [
            {
                "number": tile.number,
                "step_s": step_seconds(tile),
                "start": _moment(tile.start),
                "end": _moment(tile.end),
                "batch": tile.batch,
                "store": [_plain(v) for v in tile.store],
                "log": [_plain(v) for v in tile.log] if search is not None else None,
            }
            for tile in explained.tiles
        ],
        "events": [
            {
                "topic": event.record.topic,
                "partition": event.record.partition,
                "offset": event.record.offset,
                "event_time": _moment(event.record.event_us),
                "log_time": _moment(event.record.log_us),
                "outcome": event.record.outcome,
                "deleted": event.record.deleted,
                "tiles": list(event.tiles),
                "fields": event.record.fields,
            }
            for event in explained.events
        ],
        "read": None
        if search is None
        else [{"topic": r.topic, "partition": r.partition, "start": r.start, "end": r.end} for r in search.ranges],
        "verdict": explained.verdict,
        "reason": explained.reason,
    }


def _moment(us: int | None) -> str | None:
    return None if us is None else from_micros(us).isoformat()


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(v) for v in value]
    return value.isoformat() if isinstance(value, datetime) else value
