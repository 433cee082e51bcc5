"""Turns what came of the predictions into the next model: `python learn.py sets/1`. Without sets/1 it only judges."""

import sys
import time
from datetime import UTC, datetime

from ranker import MODEL, RankerInput, RankerOutcome, ranker
from train import fitted, save

import leftfold as lf

SEEN = ["clicks_1h", "mean_price_1h", "item_clicks_1h", "price"]
PATIENCE_S = 300


def await_closed(app: lf.App) -> None:
    """Wait until nothing that happens from now on can change the outcome of a prediction that was made before."""
    since, deadline = datetime.now(UTC), time.monotonic() + PATIENCE_S
    while app.outcomes(RankerOutcome).closed_until < since:
        if time.monotonic() > deadline:
            sys.exit("outcomes do not close")
        time.sleep(1)


def learn(app: lf.App, directory: str) -> None:
    """Make a training set of all closed predictions, write it, and train the next model with it."""
    with app.outcomes(RankerOutcome) as outcomes:
        counts = outcomes.report()
        print(f"{counts.predictions:,} predictions, {counts.closed:,} closed, {counts.matched:,} bought")
        with app.training_set(outcomes, RankerInput, time="scored_at", as_of="log") as train:
            manifest = train.write(directory)
            rows = train.to_pandas()
    save(fitted(rows[SEEN].to_numpy("float64"), rows["bought"].to_numpy("float64")))
    print(f"{manifest['rows']:,} rows are in {directory}, and the next model is in {MODEL}")


def judge(app: lf.App) -> dict[str, float | None]:
    """Print how well each version of the model did. Return their AUC."""
    found = {str(group.by["version"]): group.figures for group in app.evaluate(ranker, RankerOutcome).groups}
    for version, figures in found.items():
        print(
            f"{version}  {figures.rows:,} predictions, {figures.positives:,} bought, "
            f"AUC {figures.auc or 0:.2f}, log loss {figures.log_loss or 0:.2f}"
        )
    return {version: figures.auc for version, figures in found.items()}


if __name__ == "__main__":
    project = lf.open()
    await_closed(project)
    judge(project)
    if len(sys.argv) > 1:
        learn(project, sys.argv[1])
