"""How to provoke wrong usage, and errors of the verbs explain, describe and wait."""

from __future__ import annotations

from pathlib import Path

import click

from leftfold.cli.explained import explanation
from leftfold.cli.main import cli
from leftfold.cli.usage import usage_error
from leftfold.run.status import ViewStatus
from leftfold.run.waiting import Goal, await_view
from tests.golden.causes import Cause, project

AT_ONCE = 1_000  # µs: shorter than the time between two looks


def explained(code: str) -> Cause:
    def cause(_tmp: Path) -> None:
        explanation(code)

    return cause


def described(tmp: Path) -> None:
    project(tmp).describe("clics")


def waited(build: str | None, *, lag: int | None = 0, staged: str | None = None, records: int | None = None) -> Cause:
    def cause(tmp: Path) -> None:
        view = project(tmp).catalog.view("user_activity")
        of = view.fingerprint if build == "declared" else build
        status = ViewStatus(view.name, of and f"{of}-11111111", 3, {"accepted": 40}, lag, staged)
        await_view(view, Goal(AT_ONCE, records), lambda: status, lambda: False)

    return cause


def used(*arguments: str) -> Cause:
    def cause(_tmp: Path) -> None:
        try:
            cli.main(list(arguments), prog_name="leftfold", standalone_mode=False)
        except click.ClickException as error:
            raise usage_error(error) from error

    return cause


CAUSES: dict[str, Cause] = {
    "unknown-code": explained("kafka-deny"),
    "unknown-code/far": explained("zzz"),
    "unknown-name": described,
    "usage": used("promote", "user_activity", "--behind", "few"),
    "usage/option": used("rejects", "redrive", "clicks", "--al"),
    "usage/verb": used("promot"),
    "wait-timed-out": waited("declared", lag=1_204),
    "wait-timed-out/none": waited(None),
    "wait-timed-out/records": waited("declared", records=100),
    "wait-timed-out/staged": waited("0123456789ab", staged="123456789abc-22222222"),
    "wait-timed-out/topic": waited("declared", lag=None),
}
