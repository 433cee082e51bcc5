"""The verb serve."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from leftfold.cli.given import names_option
from leftfold.cli.output import profile_option, say
from leftfold.errors import LeftfoldError

if TYPE_CHECKING:
    from leftfold.infer.answered import Unlogged

_HOST, _PORT = "127.0.0.1", 8_080


@click.command()
@names_option("--scorers", "Scorers to serve. [default: all]")
@click.option(
    "--host",
    metavar="HOST",
    default=_HOST,
    show_default=True,
    help="Address to listen on. The server asks for no password.",
)
@click.option(
    "--port",
    metavar="PORT",
    default=_PORT,
    show_default=True,
    type=click.IntRange(0, 65_535),
    help="Port to listen on. 0 takes a free one.",
)
@click.option(
    "--most-waiting",
    metavar="COUNT",
    default=1_000,
    show_default=True,
    help="Maximum number of waiting rows. Beyond it the answer is 503.",
)
@profile_option
def serve(scorers: tuple[str, ...], host: str, port: int, most_waiting: int, profile: str | None) -> None:
    """Serve scores and features over HTTP. Answers requests until stopped."""
    import leftfold
    from leftfold.infer.http_server import address, check_installed, listen, run

    check_installed()
    app = leftfold.open(profile=profile)
    serving = app.serving(*scorers, most_waiting=most_waiting)
    with listen(host, port) as listening:
        serving.open()
        say(f"✓ serving at {address(listening)}; /openapi.json describes it")
        if silent := serving.lose_silently:
            say(f"✗ the state directory cannot be written: a kill would lose answers of {', '.join(silent)} uncounted")
        serving.look_back(_tell)
        run(serving, listening)
    if serving.unlogged:
        say(f"✗ {serving.unlogged:,} predictions were answered, and brokers did not acknowledge them")
        raise SystemExit(1)


def _tell(found: Sequence[Unlogged] | LeftfoldError) -> None:
    """Tell which answers of servers that were killed are not in the log."""
    if isinstance(found, LeftfoldError):
        say(f"✗ whether answers before this start are missing in the log is not known: {found.what}")
        return
    for one in found:
        say(f"✗ {one.count:,} predictions of {one.scorer} were answered before this start, and are not in the log")
        if one.unnamed:
            say(f"  of these, {one.unnamed:,} are only counted: some may be in the log")
