"""The verb wait: returns when readers of a view follow a build that has read the log. It is for scripts."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Literal

import click

from leftfold import clock
from leftfold.cli.given import TimeSpan
from leftfold.cli.output import document, json_option, next_step, profile_option, say
from leftfold.units import counted


class Until(click.ParamType[Literal["caught-up"] | int]):
    """The end of a wait: `caught-up`, or a number of records."""

    name = "caught-up|RECORDS"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Literal["caught-up"] | int:
        text = str(value)
        if text == "caught-up":
            return "caught-up"
        if not text.isdecimal() or int(text) == 0:
            self.fail(f"{value!r} is neither caught-up nor a number of records", param, ctx)
        return int(text)


@click.command()
@click.argument("view")
@click.option(
    "--for",
    "until",
    type=Until(),
    metavar="caught-up|RECORDS",
    default="caught-up",
    show_default=True,
    help="Goal of the wait: all of the log is applied, or a number of records of any outcome.",
)
@click.option("--timeout", type=TimeSpan(), default="60s", show_default=True, help="Longest time to wait.")
@profile_option
@json_option
def wait(view: str, until: Literal["caught-up"] | int, timeout: int, profile: str | None, as_json: bool) -> None:
    """Wait until readers of a view are up to date. Readers of VIEW then follow a build that has caught up.

    The build is of the declared definition. Exit code 1 if that takes longer than the timeout.
    """
    import leftfold

    started = clock.monotonic()
    app = leftfold.open(profile=profile)
    status = app.wait(view, records=None if until == "caught-up" else until, timeout=timedelta(microseconds=timeout))
    seconds = clock.monotonic() - started
    if as_json:
        document("wait", **status.as_json(), seconds=round(seconds, 3))
        return
    records = counted(sum(status.records.values()), "record")
    say(f"✓ {view}: {records} applied, build {status.build}, batch {status.batch}, after {seconds:.1f} s")
    next_step(f"leftfold get {view} KEY")
