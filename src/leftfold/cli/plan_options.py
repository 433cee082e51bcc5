"""Options of a plan: the expected load, and outages. Each value is `NAME=NUMBER`, a number or a duration."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, Any

import click

from leftfold.cli.given import Pair, TimeSpan

if TYPE_CHECKING:
    from leftfold.app import App
    from leftfold.plan.diff import PlanOptions

_SCALES = {"k": 1e3, "m": 1e6, "g": 1e9}


class Amount(click.ParamType[tuple[str, float]]):
    """A declared name and a number, as in clicks=20k. The suffixes k, m and g mean thousand, million and billion."""

    name = "NAME=NUMBER"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, float]:
        name, _, number = str(value).partition("=")
        digits, scale = (number[:-1], _SCALES[number[-1].lower()]) if number[-1:].lower() in _SCALES else (number, 1.0)
        try:
            amount = float(digits) * scale
        except ValueError:
            amount = 0
        if not name or not 0 < amount < float("inf"):
            self.fail(f"{value!r} is not NAME=NUMBER, as in clicks=20k", param, ctx)
        return name, amount


class HandlerTime(click.ParamType[tuple[str, float]]):
    """A declared consumer and the time that its handler takes for one record, as in notify=5ms. It gives seconds."""

    name = "CONSUMER=DURATION"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, float]:
        name, duration = Pair(self.name).convert(value, param, ctx)
        return name, TimeSpan().convert(duration, param, ctx) / 1_000_000


downtime_option = click.option("--downtime", type=TimeSpan(), help="Longest outage to survive. [default: 3d]")


def load_options(verb: Callable[..., None]) -> Callable[..., None]:
    """Add the load options to a verb.

    They are `rates`, `sizes`, `entities`, `handlers`, `consumer_rate`, `catch_up` and `downtime`.
    """
    for option in reversed(
        (
            click.option(
                "--rate",
                "rates",
                type=Amount(),
                multiple=True,
                metavar="TOPIC=NUMBER",
                help="Records per second of a topic at its peak, as in clicks=20k.",
            ),
            click.option(
                "--bytes",
                "sizes",
                type=Amount(),
                multiple=True,
                metavar="TOPIC=NUMBER",
                help="Size of a topic's records in bytes, as in clicks=200.",
            ),
            click.option(
                "--entities",
                type=Amount(),
                multiple=True,
                help="Number of active entities of a topic or view, as in clicks=1m.",
            ),
            click.option(
                "--handler",
                "handlers",
                type=HandlerTime(),
                multiple=True,
                help="Time that a consumer's handler takes for a record, as in notify=5ms.",
            ),
            click.option(
                "--consumer-rate",
                type=click.FloatRange(min=0, min_open=True),
                metavar="NUMBER",
                help="Records per second of one process of a consumer. [default: 50000]",
            ),
            click.option(
                "--catch-up", type=TimeSpan(), help="Time in which to catch up after an outage of 1h. [default: 1h]"
            ),
            downtime_option,
        )
    ):
        verb = option(verb)
    return verb


def asked(
    app: App,
    *,
    rates: Iterable[tuple[str, float]] = (),
    sizes: Iterable[tuple[str, float]] = (),
    entities: Iterable[tuple[str, float]] = (),
    handlers: Iterable[tuple[str, float]] = (),
    consumer_rate: float | None = None,
    catch_up: int | None = None,
    downtime: int | None = None,
) -> PlanOptions:
    from leftfold.plan.diff import PlanOptions

    _known("--rate", rates, app.catalog.topics)
    _known("--bytes", sizes, app.catalog.topics)
    _known("--entities", entities, [*app.catalog.topics, *app.catalog.views])
    _known("--handler", handlers, app.catalog.consumers)
    usual = PlanOptions()
    return PlanOptions(
        downtime=usual.downtime if downtime is None else downtime,
        rates=dict(rates),
        sizes=dict(sizes),
        keys={name: round(number) for name, number in entities},
        handlers=dict(handlers),
        consumer_rate=consumer_rate or usual.consumer_rate,
        catch_up_s=usual.catch_up_s if catch_up is None else catch_up / 1_000_000,
        constants=app.constants,
    )


def _known(option: str, amounts: Iterable[tuple[str, float]], names: Collection[str]) -> None:
    for name, _ in amounts:
        if name not in names:
            declared = f"there are {', '.join(names)}" if names else "nothing of the kind is"
            raise click.UsageError(f"{option} {name}=…: it is not declared; {declared}")
