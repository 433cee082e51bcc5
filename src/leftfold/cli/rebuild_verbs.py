"""The verbs rebuild, compare, promote and rollback: make a second build of a view, and move readers to it."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from leftfold import clock
from leftfold.cli.fixes import for_profile
from leftfold.cli.given import Moment, TimeSpan, column_option
from leftfold.cli.output import VERSION, document, json_option, next_step, profile_option, say
from leftfold.cli.progress import Interval, end_on_signal
from leftfold.cli.view_verbs import SYMBOLS
from leftfold.fold.expressions import from_micros

if TYPE_CHECKING:
    from leftfold.rebuild.compare import Comparison
    from leftfold.run.choice import Engine
    from leftfold.run.progress import Progress
    from leftfold.store.standings import Standing

_LINE_EVERY_S = 5.0


@click.command()
@click.argument("view")
@click.option("--from", "since", type=Moment(), help="Start of the history, by log time. [default: all of it]")
@click.option("--until-caught-up", is_flag=True, help="End when all that is in the log now has been applied.")
@click.option(
    "--restart", is_flag=True, help="Start over: set aside what an earlier rebuild of this definition has done."
)
@click.option(
    "--cores",
    type=click.IntRange(min=1),
    metavar="COUNT",
    default=1,
    show_default=True,
    help="Maximum number of cores.",
)
@profile_option
@json_option
def rebuild(
    view: str,
    since: datetime | None,
    until_caught_up: bool,
    restart: bool,
    cores: int,
    profile: str | None,
    as_json: bool,
) -> None:
    """Backfill a view's definition beside the live one. VIEW is run over all of history, into a build of its own.

    It then follows the live head until stopped. Readers stay where they are: promote moves them.
    """
    import leftfold

    app = leftfold.open(profile=profile)
    job = app.rebuild(view, since=since, restart=restart, until_caught_up=until_caught_up, cores=cores)
    end_on_signal(job.stop)
    started = clock.monotonic()
    ended = job.run(_json_lines() if as_json else _lines())
    seconds = clock.monotonic() - started
    if as_json:
        document("rebuild", **ended.as_json(), seconds=round(seconds, 3))
    else:
        did = f"build {ended.build}, {ended.totals()['accepted']:,} records accepted, {seconds:.1f} s"
        say(f"{SYMBOLS[ended.state]} {view} {ended.state}: {did}")
        if ended.error is not None:
            say(str(for_profile(ended.error)))
        else:
            next_step(f"leftfold compare {view}" if ended.state == "caught up" else f"leftfold rebuild {view}")
    if ended.error is not None:
        raise SystemExit(1)


def _lines() -> Callable[[Progress], None]:
    interval = Interval(_LINE_EVERY_S, first_s=1.0)

    def look(progress: Progress) -> None:
        if interval.due():
            say(f"  {progress.view}: {_doing(progress)}")

    return look


def _doing(progress: Progress) -> str:
    history = progress.history
    if progress.state == "reading history" and history is not None:
        eta = "" if history.eta_s is None else f", about {history.eta_s:,.0f} s to go"
        return f"history: {history.done:,} of {history.total:,} offsets{eta}"
    if progress.state == "waiting" and progress.error is not None:
        return f"failed, and tries again in a while: {progress.error.what}"
    if progress.last is None:
        return "starting Spark" if history is None else "starting its stream"
    return f"batch {progress.last.number}, {'–' if progress.lag is None else f'{progress.lag:,}'} records behind"


def _json_lines() -> Callable[[Progress], None]:
    """Print one line for every batch, and one whenever more of the history has been read."""
    seen: list[tuple[Any, ...]] = [()]

    def look(progress: Progress) -> None:
        history = progress.history
        now = (history and history.done, progress.last and progress.last.number, progress.lag == 0)
        if now != seen[0]:
            seen[0] = now
            click.echo(json.dumps({"version": VERSION, "verb": "rebuild", "event": "progress", **progress.as_json()}))

    return look


@click.command()
@click.argument("view")
@click.option(
    "--against", metavar="DIR", help="Table to compare with (Parquet or Delta), instead of the followed build."
)
@column_option("Column of a key or feature in DIR. [default: its own name]")
@click.option("--at", type=Moment(), help="Time of the values. [default: now, or the newest event]")
@click.option(
    "--tolerance",
    type=click.FloatRange(min=0),
    metavar="NUMBER",
    default=0.0,
    help="Relative tolerance of numbers, as in 1e-9. [default: 0]",
)
@click.option(
    "--top",
    type=click.IntRange(min=0),
    metavar="COUNT",
    default=5,
    show_default=True,
    help="Number of keys to show for each feature.",
)
@click.option("--engine", type=click.Choice(["arrow", "spark"]), help="Engine that compares. [default: the faster one]")
@click.option("--explain", is_flag=True, help="Say which engine compares, and why.")
@click.option(
    "--cores",
    type=click.IntRange(min=1),
    metavar="COUNT",
    default=1,
    show_default=True,
    help="Maximum number of cores of Spark.",
)
@profile_option
@json_option
def compare(
    view: str,
    against: str | None,
    columns: tuple[tuple[str, str], ...],
    at: datetime | None,
    tolerance: float,
    top: int,
    engine: Engine | None,
    explain: bool,
    cores: int,
    profile: str | None,
    as_json: bool,
) -> None:
    """Compare a staged build with the live one. VIEW's features are compared one by one, at one position of the log."""
    import leftfold

    if columns and against is None:
        raise click.UsageError("--column goes with --against")
    app = leftfold.open(profile=profile)
    diff = app.compare(
        view, at=at, against=against, keys=dict(columns), tolerance=tolerance, top=top, cores=cores, engine=engine
    )
    if as_json:
        document("compare", **diff.as_json())
        return
    if explain:
        say(str(diff.choice))
    _show(diff)


def _show(diff: Comparison) -> None:
    say(f"{diff.view} at {from_micros(diff.at):%Y-%m-%d %H:%M:%S} UTC, {diff.differences.entities:,} entities")
    say(f"  left:  {diff.left}")
    say(f"  right: {diff.right}")
    width = max((len(f.feature) for f in diff.differences.features), default=0)
    for f in diff.differences.features:
        counts = f"{f.equal:,} equal, {f.different:,} different, {f.only_left:,} only left, {f.only_right:,} only right"
        empty = f", {f.empty:,} empty on both sides" if f.empty else ""
        click.echo(f"  {f.feature:{width}}  {counts}{empty}")
        for one in f.largest:
            by = "" if one.difference is None else f"   ({one.difference:+g})"
            click.echo(f"  {'':{width}}    {one.entity}: {one.left} → {one.right}{by}")
    for side, names in (("left", diff.only_left), ("right", diff.only_right)):
        if names:
            say(f"  only {side}: {', '.join(names)}")
    next_step(f"leftfold promote {diff.view}")


@click.command()
@click.argument("view")
@click.option("--keep", type=TimeSpan(), default="24h", show_default=True, help="Time for which rollback is possible.")
@click.option(
    "--behind",
    type=click.IntRange(min=0),
    metavar="RECORDS",
    help="Number of records that the build may be behind. [default: 1000]",
)
@profile_option
@json_option
def promote(view: str, keep: int, behind: int | None, profile: str | None, as_json: bool) -> None:
    """Move readers of a view to its staged build. All of VIEW's at once. The build they leave is kept for a while."""
    from datetime import timedelta

    import leftfold

    app = leftfold.open(profile=profile)
    _moved("promote", app.promote(view, keep=timedelta(microseconds=keep), behind=behind), as_json=as_json)


@click.command()
@click.argument("view")
@profile_option
@json_option
def rollback(view: str, profile: str | None, as_json: bool) -> None:
    """Move readers back to the build they left. All readers of VIEW at once, to the build before the last promote."""
    import leftfold

    _moved("rollback", leftfold.open(profile=profile).rollback(view), as_json=as_json)


def _moved(verb: str, standing: Standing, *, as_json: bool) -> None:
    if as_json:
        document(verb, **standing.as_json())
        return
    say(f"✓ readers of {standing.view} follow {standing.followed}")
    if standing.previous is not None:
        until = from_micros(standing.previous.until)
        say(f"  {standing.previous.build} is kept until {until:%Y-%m-%d %H:%M} UTC; keep a process running it as long")
        next_step(f"leftfold rollback {standing.view}, if it was a mistake")
    elif standing.staged is not None:
        say(f"  {standing.staged} is staged again")
        next_step(f"leftfold compare {standing.view}")
