"""The verb score: a model's answers for labels, each with the features that were known at its moment."""

from __future__ import annotations

from typing import Any

import click

from leftfold.cli.given import as_of_options
from leftfold.cli.output import document, json_option, profile_option, say


@click.command()
@click.argument("scorer")
@click.argument("labels")
@click.option("--time", metavar="COLUMN", required=True, help="The column of the labels with the moment of each.")
@click.option("--out", metavar="DIR", required=True, help="Write there: parquet files and a manifest. It must be new.")
@as_of_options
@profile_option
@json_option
def score(
    scorer: str,
    labels: str,
    time: str,
    out: str,
    keys: tuple[tuple[str, str], ...],
    as_of: str,
    batch: tuple[tuple[str, str], ...],
    build: tuple[tuple[str, str], ...],
    profile: str | None,
    as_json: bool,
) -> None:
    """Score each label in LABELS (.parquet, .csv, .jsonl) by SCORER's model, with its features at that moment."""
    import leftfold

    app = leftfold.open(profile=profile)
    chosen: Any = as_of
    with app.score_frame(
        labels, scorer, time=time, keys=dict(keys), as_of=chosen, batch=dict(batch), build=dict(build)
    ) as scored:
        manifest = scored.write(out)
    if as_json:
        document("score", directory=out, manifest=manifest)
        return
    model = f"version {manifest['model_version']} of {manifest['model']}"
    say(f"✓ {manifest['rows']:,} rows, scored by {model}, are in {out}, as of {as_of}")
