"""The verbs run and get: run views, and read their values."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click
from rich.console import Group
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from leftfold import clock
from leftfold.cli.fixes import for_profile
from leftfold.cli.given import names_option
from leftfold.cli.metrics import metrics_option, serving
from leftfold.cli.output import VERSION, document, json_option, next_step, people, profile_option, say
from leftfold.cli.progress import Interval, end_on_signal

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


@click.command()
@names_option("--views", "Views to run. [default: all]")
@click.option("--until-caught-up", is_flag=True, help="End when all that is in the log now has been applied.")
@click.option(
    "--fresh",
    multiple=True,
    metavar="VIEW",
    help="View whose log is read from its start, into a new build. Also TOPIC.intake, and VIEW.lake.",
)
@click.option(
    "--take-over",
    is_flag=True,
    help="Move readers to a changed definition once it has caught up. [default: in the local profile only]",
)
@metrics_option
@profile_option
@json_option
def run(
    views: tuple[str, ...],
    until_caught_up: bool,
    fresh: tuple[str, ...],
    take_over: bool,
    metrics: str | None,
    profile: str | None,
    as_json: bool,
) -> None:
    """Run views on Spark until stopped. SIGTERM and Ctrl-C end it after the current batch."""
    import leftfold

    app = leftfold.open(profile=profile)
    names = views or tuple(app.catalog.views)
    supervisor = app.supervisor(views=names, until_caught_up=until_caught_up, fresh=fresh, take_over=take_over or None)
    known = [p.view for p in supervisor.progress]
    if stray := set(fresh) - set(known):
        raise click.UsageError(f"--fresh {min(stray)}: it is not among what is to run ({', '.join(known)})")
    end_on_signal(supervisor.stop)
    started = clock.monotonic()
    with serving(
        metrics or app.profile.metrics, lambda: _metrics(supervisor.progress), lambda: _health(supervisor.progress)
    ):
        ended = supervisor.run(_json_lines()) if as_json else _with_table(supervisor.run)
    seconds = clock.monotonic() - started
    failed = [p for p in ended if p.error is not None]
    if as_json:
        by_kind = {kind: [p.as_json() for p in ended if (p.kind == "view") == (kind == "views")] for kind in _KINDS}
        document("run", **by_kind, seconds=round(seconds, 3))
    else:
        _summary(ended, seconds)
    if failed:
        raise SystemExit(1)


def _metrics(progress: Sequence[Progress]) -> Iterator[Any]:
    from leftfold.run.metrics import view_metrics

    return view_metrics(progress)


def _health(progress: Sequence[Progress]) -> dict[str, tuple[str, bool]]:
    return {p.view: (p.state, p.state not in ("failed", "stopped")) for p in progress}


def _with_table(supervise: Callable[[Callable[[list[Progress]], None]], list[Progress]]) -> list[Progress]:
    console = people()
    if not console.is_terminal:
        return supervise(_plain_lines())
    with Live(console=console, refresh_per_second=4, transient=True) as live:
        return supervise(lambda progress: live.update(Group(_table(progress), *_troubles(progress))))


def _troubles(progress: Sequence[Progress]) -> Iterator[str]:
    """The reason of each view that waits after a failure or has failed."""
    for p in progress:
        if p.error is not None:
            yield escape(f"{SYMBOLS[p.state]} {p.view}: {_doing(p)}")


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
    interval = Interval(first_s=1.0)

    def look(progress: list[Progress]) -> None:
        if interval.due():
            for p in progress:
                if p.kind == "view" or p.error is not None:
                    say(f"  {SYMBOLS[p.state]} {p.view}: {_doing(p)}")

    return look


def _doing(p: Progress) -> str:
    if p.error is not None:
        return f"{_tries(p)}: error[{p.error.code}]: {p.error.what}: {p.error.why}"
    if p.state == "repairing":
        return "its store has lost data, which is computed again from the log"
    if p.last is None:
        return "no batch yet" if p.state == "running" else "starting Spark"
    return f"{p.records()['accepted']:,} accepted, {_number(p.lag, ',.0f')} records behind"


def _tries(p: Progress) -> str:
    """Describe the failures of a view so far. This is a snapshot: the view may run again by now."""
    failing = p.failing
    if failing is None or p.state == "failed":
        return "failed for good"
    times = "once" if failing.tries == 1 else f"{failing.tries} times"
    since = f"{datetime.fromtimestamp(failing.since, UTC):%H:%M:%S} UTC"
    return f"failed {times} since {since}, tries again in {failing.next_try_s:.0f} s"


def _json_lines() -> Callable[[list[Progress]], None]:
    """Print one line for every applied batch, one when a view has caught up, and one for every failure."""
    seen: dict[tuple[str, str], object] = {}

    def tell(event: str, p: Progress, now: object) -> None:
        if now is not None and seen.get((event, p.view)) != now:
            seen[event, p.view] = now
            click.echo(json.dumps({"version": VERSION, "verb": "run", "event": event, **p.as_json()}))

    def look(progress: list[Progress]) -> None:
        for p in progress:
            tell("batch", p, (p.last.number, p.lag == 0) if p.last else None)
            tell("failure", p, (p.state, p.restarts) if p.error is not None else None)

    return look


def _summary(ended: Sequence[Progress], seconds: float) -> None:
    for p in ended:
        if p.kind == "view" or p.error is not None:
            say(f"{SYMBOLS[p.state]} {p.view} {p.state}" + (_did(p, seconds) if p.kind == "view" else ""))
        if p.note is not None:
            say(f"  {p.note}")
        if p.error is not None:
            say(str(for_profile(p.error)))
    if all(p.error is None for p in ended) and ended:
        next_step(f"leftfold get {ended[0].view} KEY")


def _did(p: Progress, seconds: float) -> str:
    counts = p.records()
    rest = "".join(f", {n:,} {outcome}" for outcome, n in counts.items() if n and outcome != "accepted")
    batches = "1 batch" if p.batches == 1 else f"{p.batches} batches"
    repaired = "" if not p.repairs else "; a store that had lost data was filled again from the log"
    pending = "" if not p.pending else f"; {p.pending:,} re-driven records wait for their tiles to close"
    beyond = (
        f"; {p.beyond:,} re-driven records have no effect: the log lost the rest of their tiles" if p.beyond else ""
    )
    return (
        f": {counts['accepted']:,} records accepted{rest}; {p.tiles:,} tiles written in {batches}, "
        f"{seconds:.1f} s{repaired}{pending}{beyond}"
    )


@click.command()
@click.argument("view")
@click.argument("key", nargs=-1, required=True)
@profile_option
@json_option
def get(view: str, key: tuple[str, ...], profile: str | None, as_json: bool) -> None:
    """Read the row of one entity, or a vector. KEY is the value, or name=value for each of several."""
    from leftfold import app as projects  # the public names, which declarations need, are not imported here

    app = projects.open(profile=profile)
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


def parsed_key(kinds: dict[str, str], texts: tuple[str, ...]) -> dict[str, Any]:
    """The parts of a key, by name. A part without a name gets the next free name, in the order of the key.

    A surplus part stays in as "part 0", "part 1" and so on, so that the error message can show it.
    """
    named = {n: v for n, e, v in (text.partition("=") for text in texts) if e and n in kinds}
    rest = [text for text in texts if text.partition("=")[0] not in named]
    free = [n for n in kinds if n not in named] + [f"part {i}" for i in range(len(rest))]
    parts = {**named, **dict(zip(free, rest, strict=False))}
    return {n: _typed(kinds.get(n, "string"), v) for n, v in parts.items()}


def _typed(kind: str, text: str) -> Any:
    """The text as a value of this kind. A text that is not of this kind stays as it is, for the error message."""
    if kind == "int" and re.fullmatch(r"-?[0-9]+", text):
        return int(text)
    if kind == "float" and re.fullmatch(r"-?[0-9]+(\.[0-9]+)?", text):
        return float(text)
    return {"true": True, "false": False}.get(text.lower(), text) if kind == "bool" else text
