"""Options of a plan: the expected load, outages, and what users need of a topic or a view."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
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


class NamedTime(click.ParamType[tuple[str, float]]):
    """A declared name and a duration, as in notify=5ms. It gives seconds."""

    def __init__(self, name: str) -> None:
        self.name = name

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, float]:
        name, duration = Pair(self.name).convert(value, param, ctx)
        return name, TimeSpan().convert(duration, param, ctx) / 1_000_000


downtime_option = click.option("--downtime", type=TimeSpan(), help="Longest outage to survive. [default: 3d]")


def load_options(verb: Callable[..., None]) -> Callable[..., None]:
    """Add the load options to a verb.

    They are `rates`, `sizes`, `entities`, `handlers`, `consumer_rate`, `catch_up` and `downtime`. Options that state a
    need are `no_replay`, `queues`, `answers`, `largest` and `freshness`.
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
                type=NamedTime("CONSUMER=DURATION"),
                multiple=True,
                help="Time that a consumer's handler takes for a record, as in notify=5ms.",
            ),
            click.option(
                "--consumer-rate",
                type=click.FloatRange(min=0, min_open=True),
                metavar="NUMBER",
                help="Records per second of one process of a consumer. [default: 50000]",
            ),
            click.option("--catch-up", type=TimeSpan(), help="Time to catch up after an outage of 1h. [default: 1h]"),
            downtime_option,
            click.option(
                "--no-replay",
                multiple=True,
                metavar="TOPIC",
                help="Topic whose records nobody reads a second time.",
            ),
            click.option(
                "--queue",
                "queues",
                multiple=True,
                metavar="TOPIC",
                help="Topic of tasks, each acknowledged, ranked or delayed alone.",
            ),
            click.option(
                "--answers",
                multiple=True,
                metavar="TOPIC",
                help="Topic whose sender waits for an answer to each record.",
            ),
            click.option("--largest", type=Amount(), multiple=True, help="Size in bytes of a topic's largest record."),
            click.option(
                "--freshness",
                type=NamedTime("VIEW=DURATION"),
                multiple=True,
                help="Longest time until a record is in a view's features.",
            ),
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
    no_replay: Iterable[str] = (),
    queues: Iterable[str] = (),
    answers: Iterable[str] = (),
    largest: Iterable[tuple[str, float]] = (),
    freshness: Iterable[tuple[str, float]] = (),
) -> PlanOptions:
    from leftfold.plan.diff import PlanOptions

    topics, views, consumers = app.catalog.topics, app.catalog.views, app.catalog.consumers
    for option, pairs in (("--rate", rates), ("--bytes", sizes), ("--largest", largest)):
        _known(option, dict(pairs), topics)
    for option, names in (("--no-replay", no_replay), ("--queue", queues), ("--answers", answers)):
        _known(option, names, topics)
    _known("--entities", dict(entities), [*topics, *views])
    _known("--handler", dict(handlers), consumers)
    _known("--freshness", dict(freshness), views)
    usual = PlanOptions()
    return PlanOptions(
        downtime=usual.downtime if downtime is None else downtime,
        rates=dict(rates),
        sizes=dict(sizes),
        keys={name: round(number) for name, number in entities},
        handlers=dict(handlers),
        consumer_rate=consumer_rate or usual.consumer_rate,
        catch_up_s=usual.catch_up_s if catch_up is None else catch_up / 1_000_000,
        needs=replace(
            usual.needs,
            no_replay=frozenset(no_replay),
            queues=frozenset(queues),
            answers=frozenset(answers),
            largest=dict(largest),
            freshness=dict(freshness),
        ),
        constants=app.constants,
    )


def _known(option: str, names: Iterable[str], declared: Collection[str]) -> None:
    for name in names:
        if name not in declared:
            those = f"there are {', '.join(declared)}" if declared else "nothing of the kind is"
            raise click.UsageError(f"{option} {name}: it is not declared; {those}")
