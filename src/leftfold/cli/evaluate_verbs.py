"""The verbs evaluate and drift: how well a scorer tells what happens, and how far its input has moved."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import click
from rich.table import Table
from rich.text import Text

from leftfold.cli.given import Moment
from leftfold.cli.output import document, json_option, next_step, people, profile_option, say

if TYPE_CHECKING:
    from leftfold.fold.profiles import ColumnDrift
    from leftfold.quality.drift import Drift
    from leftfold.quality.evaluation import Evaluation, Judged

DRIFTED = 4
_SHOWN = 20  # columns of a group; --json has all
_WIDEST = 120


def _names(_: click.Context, __: click.Parameter, value: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in value.split(",") if name.strip())


@click.command()
@click.argument("scorer")
@click.option("--outcome", required=True, metavar="NAME", help="Outcome with the labels, as declared by lf.Outcome.")
@click.option(
    "--by",
    default="version,role",
    show_default=True,
    callback=_names,
    metavar="FIELD,FIELD",
    help="Fields of the prediction to group by, or hour. An empty text groups nothing.",
)
@click.option("--label", metavar="NAME", help="Label to compare with. [default: the only one that is true or false]")
@click.option(
    "--score",
    metavar="NAME",
    help="Field of the prediction to judge. [default: the only number that the prediction declares]",
)
@click.option("--from", "start", type=Moment(), help="Start of the predictions. [default: the oldest]")
@click.option("--to", "end", type=Moment(), help="End of the predictions, exclusive. [default: now]")
@profile_option
@json_option
def evaluate(
    scorer: str,
    outcome: str,
    by: tuple[str, ...],
    label: str | None,
    score: str | None,
    start: datetime | None,
    end: datetime | None,
    profile: str | None,
    as_json: bool,
) -> None:
    """Judge predictions: AUC, log loss, calibration. What happened after each of SCORER's predictions decides.

    Only closed predictions with the model's own answer count.
    """
    import leftfold

    app = leftfold.open(profile=profile)
    found = app.evaluate(scorer, outcome, by=by, label=label, score=score, start=start, end=end)
    total = found.over_hours() if "hour" in by else None
    if as_json:
        document("evaluate", **found.as_json(), over_hours=None if total is None else total.as_json()["groups"])
        return
    _show_evaluation(found)
    if total is not None:
        _show_evaluation(total)
    if not any(group.scores.rows for group in found.groups):
        next_step(f"leftfold outcomes {outcome}")


def _show_evaluation(found: Evaluation) -> None:
    say(f"{found.score} of {found.scorer} against {found.label} of {found.outcome}")
    if not found.groups:
        say("  no predictions")
        return
    table = Table(box=None, header_style="bold", padding=(0, 0, 0, 2), pad_edge=True)
    for name in found.by:
        table.add_column(name, no_wrap=True)
    for name in ("closed", "positive", "AUC", "log loss", "Brier", "calibration"):
        table.add_column(name, justify="right", no_wrap=True)
    for group in found.groups:
        table.add_row(*(Text(cell) for cell in (*_names_of(group), *_figures_of(group))))
    _print(table)
    for group in found.groups:
        named = " ".join(_names_of(group)) or "all"
        for why in dict.fromkeys(group.figures.reasons.values()):
            say(f"  {named}: {why}")
        if left_out := [f"{number:,} {what}" for number, what in _left_out(group) if number]:
            say(f"  {named}: left out are {', '.join(left_out)}")


def _names_of(group: Judged) -> list[str]:
    return [f"{v:%Y-%m-%d %H:%M}" if isinstance(v, datetime) else v for v in group.by.values()]


def _figures_of(group: Judged) -> list[str]:
    found = group.figures
    return [
        f"{found.rows:,}",
        "–" if found.base_rate is None else f"{found.base_rate:.2%}",
        "–" if found.auc is None else f"{found.auc:.4f} ± {found.auc_error:.4f}",
        _number(found.log_loss),
        _number(found.brier),
        _number(found.calibration_error),
    ]


def _left_out(group: Judged) -> list[tuple[int, str]]:
    return [
        (group.open, "open"),
        (group.fallback, "fallbacks"),
        (group.without_score, "without a score"),
        (group.without_label, "without a label"),
    ]


@click.command()
@click.argument("scorer")
@click.option("--against", metavar="DIR", help="Training set to compare with, as leftfold training-set --out wrote it.")
@click.option("--from", "start", type=Moment(), help="Start of the predictions, by log time. [default: the oldest]")
@click.option("--to", "end", type=Moment(), help="End of the predictions, exclusive, by log time. [default: now]")
@click.option("--against-from", type=Moment(), help="Start of the earlier predictions, instead of --against.")
@click.option("--against-to", type=Moment(), help="End of the earlier predictions, exclusive, instead of --against.")
@click.option(
    "--by",
    metavar="FIELD,FIELD",
    default="version",
    show_default=True,
    callback=_names,
    help="Fields of the prediction to group by.",
)
@click.option(
    "--fail-above",
    type=click.FloatRange(min=0),
    metavar="PSI",
    help="Limit of the PSI. Above it and five times its noise, or if nothing was compared, the exit code is 4.",
)
@profile_option
@json_option
def drift(
    scorer: str,
    against: str | None,
    start: datetime | None,
    end: datetime | None,
    against_from: datetime | None,
    against_to: datetime | None,
    by: tuple[str, ...],
    fail_above: float | None,
    profile: str | None,
    as_json: bool,
) -> None:
    """Compare what a scorer sees with a training set. Features, requests and answers of SCORER; or an earlier time.

    A column is marked if its PSI is above 0.1 and above five times what chance alone makes of it.
    """
    import leftfold

    app = leftfold.open(profile=profile)
    found = app.drift(
        scorer, against=against, start=start, end=end, against_start=against_from, against_end=against_to, by=by
    )
    fails = fail_above is not None and found.fails(fail_above)
    if as_json:
        document("drift", **found.as_json(), fail_above=fail_above, failed=fails)
    else:
        _show_drift(found)
    if fails:
        raise SystemExit(DRIFTED)


def _show_drift(found: Drift) -> None:
    say(f"{found.scorer} against {found.against}")
    if not any(group.rows for group in found.groups):
        say("  nothing could be compared: there are no predictions that a model answered")
    for group in found.groups:
        named = ", ".join(f"{name} {value}" for name, value in group.by.items())
        say(f"{f'{named}: ' if named else ''}{group.rows:,} predictions")
        table = Table(box=None, header_style="bold", padding=(0, 0, 0, 2), pad_edge=True)
        for name in ("column", "PSI", "noise", "KS", "noise", "missing", "new"):
            table.add_column(name, justify="left" if name == "column" else "right", no_wrap=name != "column")
        for column in group.columns[:_SHOWN]:
            table.add_row(*(Text(cell) for cell in _drift_cells(column)))
        _print(table)
        if len(group.columns) > _SHOWN:
            say(f"  and {len(group.columns) - _SHOWN} more that have moved less: --json has them")
    for name, why in found.not_compared.items():
        say(f"  {name} is not compared: {why}")
    moved = found.flagged
    if moved:
        say(f"✗ {len(moved)} of the columns have moved by more than chance explains")
    elif any(group.rows for group in found.groups):
        say("✓ no column has moved by more than 0.1 and five times its noise")


def _drift_cells(column: ColumnDrift) -> list[str]:
    return [
        f"{'✗ ' if column.flagged else ''}{column.name}",
        _number(column.psi),
        _number(column.psi_noise),
        _number(column.ks),
        _number(column.ks_noise),
        _change(column.missing_before, column.missing),
        _change(column.new_before, column.new),
    ]


def _print(table: Table) -> None:
    """Print a table with all its digits, even if a narrow terminal breaks its lines."""
    console = people()
    console.width = max(console.width, _WIDEST)
    console.print(table)


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}"


def _change(before: float | None, now: float | None) -> str:
    return " → ".join("–" if share is None else f"{share:.1%}" for share in (before, now))
