"""The verb score: a model's answers for labels, each with the features that were known at its moment."""

from __future__ import annotations

from typing import Any

import click

from leftfold.cli.given import as_of_options
from leftfold.cli.output import document, json_option, profile_option, say


@click.command()
@click.argument("scorer")
@click.argument("labels")
@click.option("--time", metavar="COLUMN", required=True, help="Column with the time of each label.")
@click.option("--out", metavar="DIR", required=True, help="New directory for Parquet files and a manifest.")
@as_of_options
@profile_option
@json_option
def score(
    scorer: str,
    labels: str,
    time: str,
    out: str,
    columns: tuple[tuple[str, str], ...],
    as_of: str,
    batch: tuple[tuple[str, str], ...],
    build: tuple[tuple[str, str], ...],
    profile: str | None,
    as_json: bool,
) -> None:
    """Score labels with features of their moments. The model is SCORER's; LABELS is a file (.parquet, .csv, .jsonl)."""
    import leftfold

    app = leftfold.open(profile=profile)
    chosen: Any = as_of
    with app.score_frame(
        labels, scorer, time=time, keys=dict(columns), as_of=chosen, batch=dict(batch), build=dict(build)
    ) as scored:
        manifest = scored.write(out)
    if as_json:
        document("score", directory=out, manifest=manifest)
        return
    model = f"version {manifest['model_version']} of {manifest['model']}"
    say(f"✓ {manifest['rows']:,} rows, scored by {model}, are in {out}, as of {as_of}")
