"""The verb outcomes: what happened after the predictions of a scorer, counted, written or appended to the lake."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from leftfold.cli.given import Moment
from leftfold.cli.output import document, json_option, next_step, profile_option, say

if TYPE_CHECKING:
    from leftfold.quality.outcomes import Outcomes


@click.command()
@click.argument("name")
@click.option("--from", "start", type=Moment(), help="Start of the predictions. [default: the oldest]")
@click.option("--to", "end", type=Moment(), help="End of the predictions, exclusive. [default: now]")
@click.option("--out", metavar="DIR", help="New directory for the closed rows, as Parquet files.")
@click.option("--append", is_flag=True, help="Add the rows that were closed since the last time to the lake's table.")
@profile_option
@json_option
def outcomes(
    name: str,
    start: datetime | None,
    end: datetime | None,
    out: str | None,
    append: bool,
    profile: str | None,
    as_json: bool,
) -> None:
    """Join predictions with what happened after them. NAME is a declared outcome. Counts by label."""
    import leftfold

    if append and (end or out):
        raise click.UsageError("--append goes on to the newest closed row: it takes neither --to nor --out.")
    app = leftfold.open(profile=profile)
    if append:
        _append(app, name, start, as_json=as_json)
        return
    with app.outcomes(name, start=start, end=end) as made:
        written = None if out is None else made.write(out)
        _show(name, made, out, written, as_json=as_json)


def _append(app: Any, name: str, start: datetime | None, *, as_json: bool) -> None:
    appended = app.append_outcomes(name, start=start)
    if as_json:
        document("outcomes", outcome=name, table=appended.table, rows=appended.rows, closed_until=appended.closed_until)
        return
    if appended.closed_until is None:
        say(f"no prediction of {name} is closed yet")
        return
    until = appended.closed_until.isoformat(timespec="seconds")
    say(f"✓ {appended.rows:,} rows added to {appended.table}, which holds every prediction up to {until}")


def _show(name: str, made: Outcomes, out: str | None, written: int | None, *, as_json: bool) -> None:
    from leftfold.quality.outcomes import counts_as_json

    counts = made.report()
    if as_json:
        ranges = {topic: ranges.as_json() for topic, ranges in made.ranges.items()}
        document(
            "outcomes",
            outcome=name,
            counts=counts_as_json(counts),
            closed_until=made.closed_until,
            ranges=ranges,
            directory=out,
            rows=written,
        )
        return
    say(f"{counts.predictions:,} predictions: {counts.closed:,} closed, {counts.open:,} open")
    for number, what in (
        (counts.matched, "closed predictions have an event"),
        (counts.events_credited, "events are credited to a prediction"),
        (counts.events_without_prediction, "events have no prediction"),
        (counts.repeated, "records repeat a prediction, and were dropped"),
        (counts.lost, "predictions are older than the events that the log still has: they get no label"),
    ):
        if number:
            say(f"  {number:,} {what}")
    if written is not None:
        say(f"✓ {written:,} closed rows are in {out}")
    else:
        next_step(f"leftfold outcomes {name} --append")
