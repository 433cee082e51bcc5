"""run and get: views at work."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click
from rich.live import Live
from rich.table import Table

from leftfold import clock
from leftfold.cli.output import VERSION, document, json_option, next_step, people, profile_option, say

if TYPE_CHECKING:
    from leftfold.run.progress import Progress

_SYMBOLS = {"starting": "…", "running": "▶", "caught up": "✓", "stopped": "■", "failed": "✗"}
# Where there is no terminal to redraw, a line every so often.
_LINE_EVERY_S = 10.0


@click.command()
@click.option("--views", help="Only these views: a,b. [default: all]")
@click.option("--until-caught-up", is_flag=True, help="End when all that is in the log now has been applied.")
@click.option("--fresh", multiple=True, metavar="VIEW", help="Read the log from its start into a new build of VIEW.")
@profile_option
@json_option
def run(views: str | None, until_caught_up: bool, fresh: tuple[str, ...], profile: str | None, as_json: bool) -> None:
    """Run views on Spark until stopped. SIGTERM and Ctrl-C end it after the current batch."""
    import leftfold

    app = leftfold.open(profile=profile)
    names = [n.strip() for n in views.split(",")] if views else list(app.catalog.views)
    if stray := set(fresh) - set(names):
        raise click.UsageError(f"--fresh {min(stray)}: it is not among the views to run ({', '.join(names)})")
    supervisor = app.supervisor(views=names, until_caught_up=until_caught_up, fresh=fresh)
    _end_after_the_batch(supervisor.stop)
    started = clock.monotonic()
    ended = supervisor.run(_json_lines()) if as_json else _with_table(supervisor.run)
    seconds = clock.monotonic() - started
    failed = [p for p in ended if p.error is not None]
    if as_json:
        document("run", views=[p.as_json() for p in ended], seconds=round(seconds, 3))
    else:
        _summary(ended, seconds)
    if failed:
        raise SystemExit(1)


def _end_after_the_batch(stop: Callable[[], None]) -> None:
    """The first SIGTERM or Ctrl-C is a request, the second is meant at once."""

    def request(number: int, _: object) -> None:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
        stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, request)


def _with_table(supervise: Callable[[Callable[[list[Progress]], None]], list[Progress]]) -> list[Progress]:
    console = people()
    if not console.is_terminal:
        return supervise(_plain_lines())
    with Live(console=console, refresh_per_second=4, transient=True) as live:
        return supervise(lambda progress: live.update(_table(progress)))


def _table(progress: Sequence[Progress]) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in ("", "view", "state", "records/s", "lag", "lag s", "fresh s", "batch", "accepted", "late", "other"):
        table.add_column(name, justify="left" if name in ("", "view", "state") else "right")
    for p in progress:
        counts = p.records()
        table.add_row(
            _SYMBOLS[p.state],
            p.view,
            p.state,
            f"{p.rate:,.0f}",
            _number(p.lag, ",.0f"),
            _number(p.lag_s, ",.1f"),
            _number(p.last.freshness_s if p.last else None, ",.1f"),
            _number(p.last.number if p.last else None, "d"),
            f"{counts['accepted']:,}",
            f"{counts['late']:,}",
            f"{counts['future'] + counts['rejected']:,}",
        )
    return table


def _number(value: float | None, form: str) -> str:
    return "–" if value is None else format(value, form)


def _plain_lines() -> Callable[[list[Progress]], None]:
    said = {"at": clock.monotonic() - _LINE_EVERY_S + 1.0}

    def look(progress: list[Progress]) -> None:
        if clock.monotonic() - said["at"] >= _LINE_EVERY_S:
            said["at"] = clock.monotonic()
            for p in progress:
                done, lag = p.records()["accepted"], _number(p.lag, ",.0f")
                doing = f"{done:,} accepted, {lag} records behind" if p.last else "starting Spark and its first batch"
                say(f"  {_SYMBOLS[p.state]} {p.view}: {doing}")

    return look


def _json_lines() -> Callable[[list[Progress]], None]:
    """One line for every batch that was applied, and one when the view has caught up."""
    seen: dict[str, tuple[int, bool]] = {}

    def look(progress: list[Progress]) -> None:
        for p in progress:
            now = (p.last.number, p.lag == 0) if p.last else None
            if now is not None and seen.get(p.view) != now:
                seen[p.view] = now
                click.echo(json.dumps({"version": VERSION, "verb": "run", "event": "batch", **p.as_json()}))

    return look


def _summary(ended: Sequence[Progress], seconds: float) -> None:
    for p in ended:
        counts = p.records()
        rest = ", ".join(f"{n:,} {outcome}" for outcome, n in counts.items() if n and outcome != "accepted")
        batches = "1 batch" if p.batches == 1 else f"{p.batches} batches"
        say(
            f"{_SYMBOLS[p.state]} {p.view} {p.state}: {counts['accepted']:,} records accepted"
            f"{', ' + rest if rest else ''}; {p.tiles:,} tiles written in {batches}, {seconds:.1f} s"
        )
        if p.error is not None:
            say(str(p.error))
    if all(p.error is None for p in ended) and ended:
        next_step(f"leftfold get {ended[0].view} KEY")


@click.command()
@click.argument("view")
@click.argument("key", nargs=-1, required=True)
@profile_option
@json_option
def get(view: str, key: tuple[str, ...], profile: str | None, as_json: bool) -> None:
    """The row of one entity, or a vector, now. KEY is the value, or name=value for each of several."""
    import leftfold

    app = leftfold.open(profile=profile)
    row = app.get(view, **_key(app.reader.keys(view), key))
    if as_json:
        document(
            "get",
            view=view,
            key=list(key),
            found=row.found,
            features={name: v.isoformat() if isinstance(v, datetime) else v for name, v in row.values.items()},
            read_at=row.read_at.isoformat(),
            provenance=[asdict(p) for p in row.provenance],
        )
        return
    width = max(len(name) for name in row.values)
    say(f"{view} {' '.join(key)}")
    for name, value in row.values.items():
        click.echo(f"  {name:{width}}  {'–' if value is None else value}")
    say(f"read at {row.read_at:%Y-%m-%d %H:%M:%S} UTC")
    for p in row.provenance:
        say(f"  {p.view}: build {p.build}, batch {p.batch}" + ("" if p.found else "   (it holds nothing of this key)"))


def _key(kinds: dict[str, str], given: tuple[str, ...]) -> dict[str, Any]:
    """Parts by name, the others in the order of the key; what fits neither stays in, for the message."""
    named = {n: v for n, e, v in (text.partition("=") for text in given) if e and n in kinds}
    rest = [text for text in given if text.partition("=")[0] not in named]
    free = [n for n in kinds if n not in named] + [f"part {i}" for i in range(len(rest))]
    parts = {**named, **dict(zip(free, rest, strict=False))}
    return {n: _typed(kinds.get(n, "string"), v) for n, v in parts.items()}


def _typed(kind: str, text: str) -> Any:
    """As the key wants it; a text that is not of that kind stays as it is, for the message."""
    if kind == "int" and re.fullmatch(r"-?[0-9]+", text):
        return int(text)
    if kind == "float" and re.fullmatch(r"-?[0-9]+(\.[0-9]+)?", text):
        return float(text)
    return {"true": True, "false": False}.get(text.lower(), text) if kind == "bool" else text
