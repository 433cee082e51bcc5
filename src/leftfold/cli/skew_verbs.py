"""The verb skew: compares the logged values of a scorer's predictions with what the log gives at their batches."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import click
from rich.table import Table
from rich.text import Text

from leftfold.cli.given import Moment
from leftfold.cli.output import document, json_option, next_step, people, profile_option, say

if TYPE_CHECKING:
    from leftfold.quality.skew import FeatureSkew, Skew

# Monitoring needs to tell "wrong, or not shown to be right" from an error of the command itself.
_NOT_EQUAL = 4


@click.command()
@click.argument("scorer")
@click.option("--from", "start", type=Moment(), help="Start of the predictions, by log time. [default: the oldest]")
@click.option("--to", "end", type=Moment(), help="End of the predictions, exclusive, by log time. [default: now]")
@click.option(
    "--sample",
    type=click.IntRange(min=1),
    metavar="COUNT",
    help="Approximate number of predictions: all of some entities. [default: all]",
)
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    metavar="COUNT",
    default=20,
    show_default=True,
    help="Maximum number of differences to list.",
)
@profile_option
@json_option
def skew(
    scorer: str,
    start: datetime | None,
    end: datetime | None,
    sample: int | None,
    limit: int,
    profile: str | None,
    as_json: bool,
) -> None:
    """Compare logged features with the log. Each value of SCORER is computed again at its own build and batch.

    Exit code 4 if a value differs, or if of some feature nothing could be compared.
    """
    import leftfold

    if start is not None and end is not None and start >= end:
        raise click.UsageError("--from must be before --to")
    app = leftfold.open(profile=profile)
    app.catalog.scorer(scorer)  # reports an undeclared name before any engine is asked
    found = app.skew(scorer, start=start, end=end, sample=sample, most=limit)
    if as_json:
        document("skew", **found.as_json())
    else:
        show(found)
    if found.verdict != "equal":
        raise SystemExit(_NOT_EQUAL)


def show(found: Skew) -> None:
    from leftfold.quality.skew import REASONS

    span = "" if found.first is None else f" read {found.first:%Y-%m-%d %H:%M:%S} to {found.last:%Y-%m-%d %H:%M:%S} UTC"
    builds = sum(len(of_view) for of_view in found.builds.values())
    say(f"{found.topic}: {found.predictions:,} predictions{span}, {builds} build{'' if builds == 1 else 's'}")
    table = Table(box=None, header_style="bold", padding=(0, 0, 0, 2), pad_edge=True)
    table.add_column("feature")
    for name in ("compared", "≠ served", "≠ log", "only then", "only now"):
        table.add_column(name, justify="right")
    for one in found.features:
        numbers = (f"{n:,}" for n in (one.compared, one.not_served))
        rest = (f"{n:,}" for n in (one.only_then, one.only_now))
        table.add_row(*(Text(cell) for cell in (one.feature, *numbers, _share(one), *rest)))
    people().print(table)
    for reason in found.not_compared:
        say(f"  {reason.predictions:,} not compared: {REASONS[reason.reason]} (first: {reason.example})")
    for value in found.values:
        say(f"  {value.prediction_id}  {value.feature}: logged {value.then!r}, its batch gives {value.now!r}")
        key = ", ".join(f"{name}={part}" for name, part in value.key.items())
        say(f"    {key} at {value.at:%Y-%m-%d %H:%M:%S.%f} UTC, {value.view} {value.build} batch {value.batch}")
    wrong = sum(one.not_served for one in found.features)
    if found.verdict == "equal":
        say("✓ every value that was compared is what the log gives at its own batch")
    elif found.verdict == "differs":
        say(f"✗ {wrong:,} value{' is' if wrong == 1 else 's are'} not what the log gives at the batch")
        if found.values:
            next_step(found.values[0].command)
    else:
        nothing = [one.feature for one in found.features if not one.compared]
        say(f"? UNKNOWN: nothing of {', '.join(nothing) or 'it'} could be compared")


def _share(one: FeatureSkew) -> str:
    return f"{one.not_log:,}" + (f" ({one.not_log / one.compared:.1%})" if one.not_log else "")
