"""Team dashboard: how many clicks there are. It may miss some after a crash, and never counts one twice."""

from pathlib import Path

from clicks import Click, clicks

import leftfold as lf


@lf.consumer(clicks, start="beginning", delivery="at_most_once", batch=lf.Batch(500, within="100ms"))
def dashboard(batch: list[Click]) -> None:
    """Draw a batch of clicks. This dashboard is a file with the size of each batch."""
    with Path("drawn.txt").open("a") as drawn:
        drawn.write(f"{len(batch)}\n")
