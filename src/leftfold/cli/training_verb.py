"""The verb training-set: a point-in-time join of labels with the features that were known at their moments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from leftfold.cli.given import as_of_options
from leftfold.cli.output import document, json_option, next_step, profile_option, say
from leftfold.errors import RunError

if TYPE_CHECKING:
    from leftfold.run.choice import Engine


@click.command("training-set")
@click.argument("labels", required=False)
@click.argument("vector", required=False)
@click.option("--time", metavar="COLUMN", help="Column with the time of each label.")
@as_of_options
@click.option(
    "--logged",
    is_flag=True,
    help="Take features that were logged with predictions, for --as-of served.",
)
@click.option("--out", metavar="DIR", help="New directory for Parquet files and a manifest.")
@click.option("--report", is_flag=True, help="Count missing values, and values that differ with another --as-of.")
@click.option("--engine", type=click.Choice(["arrow", "spark"]), help="Engine that makes it. [default: the faster one]")
@click.option("--explain", is_flag=True, help="Say which engine makes it, and why.")
@click.option(
    "--verify",
    metavar="DIR",
    help="Directory of an earlier training set, to make once more from the same offsets and compare.",
)
@profile_option
@json_option
def training_set(
    labels: str | None,
    vector: str | None,
    time: str | None,
    columns: tuple[tuple[str, str], ...],
    as_of: str,
    batch: tuple[tuple[str, str], ...],
    build: tuple[tuple[str, str], ...],
    logged: bool,
    out: str | None,
    report: bool,
    engine: Engine | None,
    explain: bool,
    verify: str | None,
    profile: str | None,
    as_json: bool,
) -> None:
    """Join labels with features of their moments.

    LABELS is a file (.parquet, .csv, .jsonl) or a directory. VECTOR is a vector, a view of features or a table.
    """
    import leftfold

    if verify is not None:
        if labels or vector or time or out:
            raise click.UsageError("--verify DIR stands alone: DIR says what it was made of.")
        _verify(leftfold.open(profile=profile), verify, engine, explain=explain, as_json=as_json)
        return
    if not (labels and vector and time) or not (out or report):
        raise click.UsageError(
            "LABELS, VECTOR and --time are needed, and --out DIR or --report; or --verify DIR alone."
        )
    app = leftfold.open(profile=profile)
    chosen: Any = as_of
    with app.training_set(
        labels,
        vector,
        time=time,
        keys=dict(columns),
        as_of=chosen,
        batch=dict(batch),
        build=dict(build),
        logged=logged,
        engine=engine,
    ) as dataset:
        choice = dataset.choice
        if explain and not as_json:
            say(str(choice))
        manifest = dataset.write(out) if out else None
        counted = dataset.report() if report else None
    if as_json:
        document(
            "training-set",
            directory=out,
            manifest=manifest,
            report=None if counted is None else counted.as_json(),
            choice=choice.as_json(),
        )
        return
    if counted is not None:
        say(str(counted))
    if manifest is not None:
        say(f"✓ {manifest['rows']:,} rows with {len(manifest['features'])} features are in {out}, as of {as_of}")
        next_step(f"leftfold training-set --verify {out}")


def _verify(app: Any, directory: str, engine: Engine | None, *, explain: bool, as_json: bool) -> None:
    with app.training_set_again(directory, engine=engine) as dataset:
        if explain and not as_json:
            say(str(dataset.choice))
        digest = dataset.digest()
    if digest != dataset.expected:
        raise RunError(
            "training-set-differs",
            f"made again from the same offsets, {directory} is another set",
            why=f"its digest was {dataset.expected}, and is {digest} now",
            state="nothing was written; the files are as they were",
            fix="compare the release in its manifest with this one; a topic made anew under its name has other records",
        )
    if as_json:
        document("training-set", directory=directory, digest=digest, same=True)
    else:
        say(f"✓ {directory} made again from the same offsets is the same: {digest}")
