"""The option --metrics of verbs that run for long, and the server behind it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import click

from leftfold.cli.output import say
from leftfold.settings import LISTENING


def _listening(_: click.Context, __: click.Parameter, address: str | None) -> str | None:
    if address is not None and not re.fullmatch(LISTENING, address):
        raise click.BadParameter(f"{address!r} is neither PORT nor HOST:PORT")
    return address


metrics_option = click.option(
    "--metrics",
    metavar="[HOST:]PORT",
    callback=_listening,
    help="Address of /metrics for Prometheus. [default: not served]",
)


@contextmanager
def serving(
    address: str | None,
    collect: Callable[[], Iterable[Any]],
    ready: Callable[[], Mapping[str, tuple[str, bool]]] = dict,
) -> Iterator[None]:
    """Serve metrics and health at an address, if there is one."""
    if address is None:
        yield
        return
    from leftfold.metrics_server import MetricsServer

    server = MetricsServer(address, collect, ready)
    say(f"metrics at {server.url}")
    try:
        yield
    finally:
        server.close()
