"""Team fraud: every click is looked at, after a crash perhaps twice."""

from pathlib import Path

from clicks import Click, clicks

import leftfold as lf


@lf.consumer(clicks, start="beginning")
def fraud(click: Click, record: lf.Record) -> None:
    """Note the click under its id, which is the same at every delivery."""
    with Path("checked.txt").open("a") as checked:
        checked.write(f"{record.id} {'high' if click.price > 500 else 'usual'}\n")
