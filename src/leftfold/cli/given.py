"""Values and options of the command line with one meaning in every verb: moments, durations, pairs of names."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


class Moment(click.ParamType[datetime]):
    """A moment in ISO 8601. It is in UTC unless it names another time zone."""

    name = "TIME"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            self.fail(f"{value!r} is not a time like 2026-03-01T12:00:00Z", param, ctx)
        return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


class TimeSpan(click.ParamType[int]):
    """A duration in the syntax of declarations, converted to microseconds."""

    name = "DURATION"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        from leftfold.errors import DeclarationError
        from leftfold.fold.durations import micros

        if isinstance(value, int):
            return value
        try:
            return micros(str(value), option="it", source=None)
        except DeclarationError:
            self.fail(f"{value!r} is not a duration, as in 90s, 3h or 7d", param, ctx)


class Pair(click.ParamType[tuple[str, str]]):
    """Two names, as in NAME=COLUMN."""

    def __init__(self, name: str) -> None:
        self.name = name

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        left, equals, right = str(value).partition("=")
        if not (left and equals and right):
            self.fail(f"{value!r} is not {self.name}", param, ctx)
        return left, right


def names_option(option: str, help: str) -> Callable[[F], F]:
    """The option that chooses among declared names. A name without it is refused, with the option to write."""

    def chosen(_: click.Context, __: click.Parameter, value: str | None) -> tuple[str, ...]:
        return tuple(name.strip() for name in (value or "").split(",") if name.strip())

    def refuse(ctx: click.Context, _: click.Parameter, stray: tuple[str, ...]) -> None:
        if stray:
            raise click.UsageError(f"Names are given by an option: {option} {','.join(stray)}", ctx)

    def given(verb: F) -> F:
        verb = click.argument("stray", nargs=-1, metavar="", expose_value=False, callback=refuse)(verb)
        return click.option(option, metavar="NAME,NAME", callback=chosen, help=help)(verb)

    return given


def column_option(help: str) -> Callable[[F], F]:
    """The option that names the column of a file or table in which a declared name is found."""
    return click.option("--column", "columns", type=Pair("NAME=COLUMN"), multiple=True, help=help)


def as_of_options(verb: Callable[..., Any]) -> Callable[..., Any]:
    """Give a verb the options that say what was known at the moment of a label."""
    options = (
        column_option("Column of a view's key. [default: the key's own name]"),
        click.option(
            "--as-of",
            type=click.Choice(["event", "log", "served"]),
            default="log",
            show_default=True,
            help="Time that decides what was known: when it happened, was logged, or was served to readers.",
        ),
        click.option(
            "--batch",
            type=Pair("VIEW=COLUMN"),
            multiple=True,
            help="Column with the batch that a reader got, for --as-of served.",
        ),
        click.option(
            "--build",
            type=Pair("VIEW=BUILD"),
            multiple=True,
            help="Build to take, for --as-of served. [default: the one that readers follow now]",
        ),
    )
    for option in reversed(options):
        verb = option(verb)
    return verb
