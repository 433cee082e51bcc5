"""Types of command-line values, with one meaning in every verb: a moment, a duration, a pair of names."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import click


class Moment(click.ParamType[datetime]):
    """A moment in ISO 8601. It is in UTC unless it names another time zone."""

    name = "MOMENT"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            self.fail(f"{value!r} is not a moment like 2026-03-01T12:00:00Z", param, ctx)
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
    """Two names, as in KEY=COLUMN."""

    def __init__(self, name: str) -> None:
        self.name = name

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        left, equals, right = str(value).partition("=")
        if not (left and equals and right):
            self.fail(f"{value!r} is not {self.name}", param, ctx)
        return left, right
