"""The verbs consume, position, pause and resume."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click
from rich.live import Live
from rich.table import Table

from leftfold import clock
from leftfold.cli.fixes import for_profile
from leftfold.cli.given import Moment, names_option
from leftfold.cli.metrics import metrics_option, serving
from leftfold.cli.output import VERSION, document, json_option, next_step, people, profile_option, say
from leftfold.cli.progress import Interval, end_on_signal
from leftfold.units import counted

if TYPE_CHECKING:
    from leftfold.consume.position import Move
    from leftfold.consume.progress import ConsumerProgress

_SYMBOLS = {
    "starting": "…",
    "running": "▶",
    "idle": "–",
    "paused": "■",
    "waiting": "…",
    "caught up": "✓",
    "stopped": "■",
    "failed": "✗",
}
_Rates = dict[str, float]


@click.command()
@names_option("--consumers", "Consumers to run. [default: all]")
@click.option("--until-caught-up", is_flag=True, help="End when all that is in the log now has been handled.")
@metrics_option
@profile_option
@json_option
def consume(
    consumers: tuple[str, ...], until_caught_up: bool, metrics: str | None, profile: str | None, as_json: bool
) -> None:
    """Run consumers and stream scorers until stopped. SIGTERM and Ctrl-C end it after the calls under way."""
    import leftfold

    app = leftfold.open(profile=profile)
    crew = app.crew(*consumers, until_caught_up=until_caught_up)
    end_on_signal(crew.stop)
    started = clock.monotonic()
    with serving(metrics or app.profile.metrics, lambda: _metrics(crew.progress), lambda: _health(crew.progress)):
        ended = crew.run(_json_lines()) if as_json else _with_table(crew.run)
    seconds = clock.monotonic() - started
    if as_json:
        document("consume", consumers=[p.as_json() for p in ended], seconds=round(seconds, 3))
    else:
        for p in ended:
            say(f"{_SYMBOLS[p.shown]} {p.consumer} {p.shown}: {_did(p)}")
            if p.error is not None:
                say(str(for_profile(p.error)))
            elif p.dead:
                next_step(f"leftfold dead list {p.consumer}")
    if any(p.error is not None for p in ended):
        raise SystemExit(1)


def _metrics(progress: Sequence[ConsumerProgress]) -> Iterator[Any]:
    from leftfold.consume.metrics import consumer_metrics

    return consumer_metrics(progress)


def _health(progress: Sequence[ConsumerProgress]) -> dict[str, tuple[str, bool]]:
    return {p.consumer: (p.shown, p.state in ("running", "idle", "caught up")) for p in progress}


def _did(p: ConsumerProgress) -> str:
    parts = [counted(p.handled, "record") + " handled"]
    parts += [f"{p.dead:,} dead"] if p.dead else []
    parts += [f"{p.skipped:,} skipped"] if p.skipped else []
    parts += [f"{p.failures:,} failed calls"] if p.failures else []
    return ", ".join(parts)


def _with_table(
    run: Callable[[Callable[[list[ConsumerProgress]], None]], list[ConsumerProgress]],
) -> list[ConsumerProgress]:
    console, rates = people(), _rates()
    if not console.is_terminal:
        return run(_plain_lines(rates))
    with Live(console=console, refresh_per_second=4, transient=True) as live:
        return run(lambda progress: live.update(_table(progress, rates(progress))))


def _rates() -> Callable[[Sequence[ConsumerProgress]], _Rates]:
    """Return a function that gives the records per second of each consumer, over about the last two seconds."""
    before: dict[str, tuple[float, int]] = {}
    rates: _Rates = {}

    def look(progress: Sequence[ConsumerProgress]) -> _Rates:
        now = clock.monotonic()
        for p in progress:
            since, handled = before.setdefault(p.consumer, (now, p.handled))
            if now - since >= 2.0:
                rates[p.consumer] = (p.handled - handled) / (now - since)
                before[p.consumer] = now, p.handled
        return rates

    return look


def _table(progress: Sequence[ConsumerProgress], rates: _Rates) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in ("", "consumer", "state", "partitions", "records/s", "lag", "lag s", "handled", "dead"):
        table.add_column(name, justify="left" if name in ("", "consumer", "state") else "right")
    for p in progress:
        table.add_row(
            _SYMBOLS[p.shown],
            p.consumer,
            p.shown,
            str(p.partitions),
            f"{rates.get(p.consumer, 0.0):,.0f}",
            "–" if p.lag is None else f"{p.lag:,}",
            "–" if p.lag_s is None else f"{p.lag_s:,.1f}",
            f"{p.handled:,}",
            f"{p.dead:,}",
        )
    return table


def _plain_lines(rates: Callable[[Sequence[ConsumerProgress]], _Rates]) -> Callable[[list[ConsumerProgress]], None]:
    interval = Interval(first_s=1.0)

    def look(progress: list[ConsumerProgress]) -> None:
        now = rates(progress)
        if interval.due():
            for p in progress:
                lag = "" if p.lag is None else f", {p.lag:,} records behind"
                rate = f", {now.get(p.consumer, 0.0):,.0f}/s"
                say(f"  {_SYMBOLS[p.shown]} {p.consumer} {p.shown}: {_did(p)}{rate}{lag}")

    return look


def _json_lines() -> Callable[[list[ConsumerProgress]], None]:
    interval = Interval(first_s=1.0)

    def look(progress: list[ConsumerProgress]) -> None:
        if interval.due():
            for p in progress:
                click.echo(json.dumps({"version": VERSION, "verb": "consume", "event": "progress", **p.as_json()}))

    return look


@click.group()
def position() -> None:
    """Show or set the position of a consumer in the log."""


@position.command("show")
@click.argument("consumer")
@profile_option
@json_option
def show_position(consumer: str, profile: str | None, as_json: bool) -> None:
    """Show a consumer's position in each partition. Beside it stands the log of CONSUMER's topics."""
    import leftfold

    positions = leftfold.open(profile=profile).position(consumer).show()
    if as_json:
        document("position show", consumer=consumer, partitions=[p.as_json() for p in positions])
        return
    rows: list[tuple[str, ...]] = [("partition", "position", "first", "end", "lag", "handled beyond")]
    for p in positions:
        if p.position is None and not p.end:
            continue
        numbers = (p.position, p.first, p.end, p.lag, p.settled_beyond)
        rows.append((f"{p.topic}/{p.partition}", *("–" if n is None else f"{n:,}" for n in numbers)))
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for first, *others in rows:
        click.echo("  ".join([first.ljust(widths[0]), *(o.rjust(w) for o, w in zip(others, widths[1:], strict=True))]))


@position.command("set")
@click.argument("consumer")
@click.option(
    "--start", required=True, metavar="beginning|now|TIME|PARTITION:OFFSET,…", help="Position to continue at."
)
@click.option("--yes", is_flag=True, help="Skip the confirmation.")
@profile_option
@json_option
def set_position(consumer: str, start: str, yes: bool, profile: str | None, as_json: bool) -> None:
    """Set the position of a consumer. CONSUMER must not run. Shows first what is skipped, and what is handled again."""
    import leftfold

    of = leftfold.open(profile=profile).position(consumer)
    moves = of.moves(_start(start))
    if not as_json:
        for move in moves:
            say(f"  {move.topic}/{move.partition}: {_moved(move)}")
    if not yes and not click.confirm("set these positions?", err=True):
        raise click.Abort
    of.set(moves)
    if as_json:
        document("position set", consumer=consumer, moves=[move.as_json() for move in moves])
    else:
        say(f"✓ {consumer} goes on from there")
        next_step(f"leftfold consume --consumers {consumer}")


def _start(text: str) -> str | datetime | dict[int, int]:
    if text in ("beginning", "now"):
        return text
    pairs = [pair.partition(":") for pair in text.split(",")]
    if all(p.strip().isdecimal() and o.strip().isdecimal() for p, _, o in pairs):
        return {int(p): int(o) for p, _, o in pairs}
    return Moment().convert(text, None, None)


def _moved(move: Move) -> str:
    if move.before is None:
        return f"begins at {move.after:,}"
    if move.skipped > 0:
        return f"{move.before:,} → {move.after:,}, {move.skipped:,} offsets are skipped"
    if move.skipped < 0:
        return f"{move.before:,} → {move.after:,}, {-move.skipped:,} offsets are handled again"
    return f"stays at {move.after:,}"


@click.command()
@click.argument("consumer")
@profile_option
@json_option
def pause(consumer: str, profile: str | None, as_json: bool) -> None:
    """Pause a consumer until it is resumed. The members of CONSUMER stay in the group."""
    import leftfold

    leftfold.open(profile=profile).pause(consumer)
    if as_json:
        document("pause", consumer=consumer)
    else:
        say(f"■ {consumer} is paused: its members notice within a second, and those that start later too")
        next_step(f"leftfold resume {consumer}")


@click.command()
@click.argument("consumer")
@profile_option
@json_option
def resume(consumer: str, profile: str | None, as_json: bool) -> None:
    """Let a paused consumer go on."""
    import leftfold

    leftfold.open(profile=profile).resume(consumer)
    if as_json:
        document("resume", consumer=consumer)
    else:
        say(f"▶ {consumer} goes on")
