"""Team mail: the fourth one. It is added while the others run, and begins with the oldest click."""

from pathlib import Path

from clicks import Click, clicks

import leftfold as lf


@lf.consumer(clicks, start="beginning")
def mail(click: Click, record: lf.Record) -> None:
    """Write an invitation to this person."""
    with Path("invited.txt").open("a") as invited:
        invited.write(f"{record.id} {click.user_id}\n")
