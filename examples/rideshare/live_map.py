"""The map: it shows where drivers are now. The next position comes in a second, so it may miss some."""

from pathlib import Path

from positions import Position, positions

import leftfold as lf


@lf.consumer(positions, start="beginning", delivery="at_most_once", batch=lf.Batch(500, within="100ms"))
def live_map(batch: list[Position]) -> None:
    """Draw a batch of positions. This map is a file with the size of each batch."""
    with Path("drawn.txt").open("a") as drawn:
        drawn.write(f"{len(batch)}\n")
