"""run and get: views at work."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click
from rich.live import Live
from rich.table import Table

from leftfold import clock
from leftfold.cli.output import VERSION, document, json_option, next_step, people, profile_option, say
from leftfold.settings import LISTENING

if TYPE_CHECKING:
    from leftfold.run.progress import Progress

SYMBOLS = {
    "starting": "…",
    "reading history": "◀",
    "running": "▶",
    "repairing": "+",
    "waiting": "…",
    "caught up": "✓",
    "stopped": "■",
    "failed": "✗",
}
_KINDS = ("views", "helpers")
# Where there is no terminal to redraw, a line every so often.
_LINE_EVERY_S = 10.0


def _listening(_: click.Context, __: click.Parameter, address: str | None) -> str | None:
    if address is not None and not re.fullmatch(LISTENING, address):
        raise click.BadParameter(f"{address!r} is neither PORT nor HOST:PORT")
    return address


@click.command()
@click.option("--views", help="Only these views: a,b. [default: all]")
@click.option("--until-caught-up", is_flag=True, help="End when all that is in the log now has been applied.")
@click.option(
    "--fresh",
    multiple=True,
    metavar="VIEW",
    help="Read the log from its start into a new build of VIEW (or TOPIC.intake).",
)
@click.option("--metrics", metavar="[HOST:]PORT", callback=_listening, help="Serve /metrics for Prometheus there.")
@profile_option
@json_option
def run(
    views: str | None,
    until_caught_up: bool,
    fresh: tuple[str, ...],
    metrics: str | None,
    profile: str | None,
    as_json: bool,
) -> None:
    """Run views on Spark until stopped. SIGTERM and Ctrl-C end it after the current batch."""
    import leftfold

    app = leftfold.open(profile=profile)
    names = [n.strip() for n in views.split(",")] if views else list(app.catalog.views)
    supervisor = app.supervisor(views=names, until_caught_up=until_caught_up, fresh=fresh)
    known = [p.view for p in supervisor.progress]
    if stray := set(fresh) - set(known):
        raise click.UsageError(f"--fresh {min(stray)}: it is not among what is to run ({', '.join(known)})")
    end_after_the_batch(supervisor.stop)
    started = clock.monotonic()
    with _metrics(metrics or app.profile.metrics, lambda: supervisor.progress):
        ended = supervisor.run(_json_lines()) if as_json else _with_table(supervisor.run)
    seconds = clock.monotonic() - started
    failed = [p for p in ended if p.error is not None]
    if as_json:
        told = {kind: [p.as_json() for p in ended if (p.kind == "view") == (kind == "views")] for kind in _KINDS}
        document("run", **told, seconds=round(seconds, 3))
    else:
        _summary(ended, seconds)
    if failed:
        raise SystemExit(1)


@contextmanager
def _metrics(address: str | None, progress: Callable[[], Sequence[Progress]]) -> Iterator[None]:
    if address is None:
        yield
        return
    from leftfold.run.metrics import MetricsServer

    server = MetricsServer(address, progress)
    say(f"metrics at {server.url}")
    try:
        yield
    finally:
        server.close()


def end_after_the_batch(stop: Callable[[], None]) -> None:
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
            SYMBOLS[p.state],
            p.view,
            p.state,
            f"{p.rate:,.0f}",
            _number(p.lag, ",.0f"),
            _number(p.lag_s, ",.1f"),
            _number(p.last.freshness_s if p.last else None, ",.1f"),
            _number(p.last.number if p.last else None, "d"),
            *(_counts(counts) if p.kind == "view" else ("", "", "")),
        )
    return table


def _counts(counts: dict[str, int]) -> tuple[str, str, str]:
    return f"{counts['accepted']:,}", f"{counts['late']:,}", f"{counts['future'] + counts['rejected']:,}"


def _number(value: float | None, form: str) -> str:
    return "–" if value is None else format(value, form)


def _plain_lines() -> Callable[[list[Progress]], None]:
    said = {"at": clock.monotonic() - _LINE_EVERY_S + 1.0}

    def look(progress: list[Progress]) -> None:
        if clock.monotonic() - said["at"] >= _LINE_EVERY_S:
            said["at"] = clock.monotonic()
            for p in progress:
                if p.kind == "view" or p.state == "waiting":
                    say(f"  {SYMBOLS[p.state]} {p.view}: {_doing(p)}")

    return look


def _doing(p: Progress) -> str:
    if p.state == "waiting" and p.error is not None:
        return f"failed, and tries again in a while: {p.error.what}"
    if p.state == "repairing":
        return "its store has lost data, which is computed again from the log"
    if p.last is None:
        return "no batch yet" if p.state == "running" else "starting Spark"
    return f"{p.records()['accepted']:,} accepted, {_number(p.lag, ',.0f')} records behind"


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
        if p.kind == "view" or p.error is not None:
            say(f"{SYMBOLS[p.state]} {p.view} {p.state}" + (_did(p, seconds) if p.kind == "view" else ""))
        if p.note is not None:
            say(f"  {p.note}")
        if p.error is not None:
            say(str(p.error))
    if all(p.error is None for p in ended) and ended:
        next_step(f"leftfold get {ended[0].view} KEY")


def _did(p: Progress, seconds: float) -> str:
    counts = p.records()
    rest = "".join(f", {n:,} {outcome}" for outcome, n in counts.items() if n and outcome != "accepted")
    batches = "1 batch" if p.batches == 1 else f"{p.batches} batches"
    repaired = "" if not p.repairs else "; a store that had lost data was filled again from the log"
    pending = "" if not p.pending else f"; {p.pending:,} re-driven records wait for their tiles to close"
    return (
        f": {counts['accepted']:,} records accepted{rest}; {p.tiles:,} tiles written in {batches}, "
        f"{seconds:.1f} s{repaired}{pending}"
    )


@click.command()
@click.argument("view")
@click.argument("key", nargs=-1, required=True)
@profile_option
@json_option
def get(view: str, key: tuple[str, ...], profile: str | None, as_json: bool) -> None:
    """The row of one entity, or a vector, now. KEY is the value, or name=value for each of several."""
    import leftfold

    app = leftfold.open(profile=profile)
    row = app.get(view, **parsed_key(app.reader.keys(view), key))
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


def parsed_key(kinds: dict[str, str], given: tuple[str, ...]) -> dict[str, Any]:
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
