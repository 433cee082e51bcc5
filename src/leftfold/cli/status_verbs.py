"""The verbs `status` and `doctor`: what runs, how far behind it is, and what is wrong with the way to it.

With --json, stdout gets one versioned document and nothing else. Output for people goes to stderr.
"""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Literal

import click
from rich.console import Console
from rich.markup import escape

from leftfold.cli.output import SYMBOLS, document, json_option, next_step, people, profile_option
from leftfold.errors import ProjectError
from leftfold.units import counted

if TYPE_CHECKING:
    from leftfold.app import App
    from leftfold.local.doctor import Check
    from leftfold.observe.consumer_status import ConsumerStatus
    from leftfold.run.connections import Connection, Verdict
    from leftfold.run.status import ViewStatus

CONNECTION_VERDICTS: dict[Verdict, Literal["ok", "wrong", "idle"]] = {
    "reachable": "ok",
    "refused": "wrong",
    "unreachable": "wrong",
    "not tested": "idle",
}
STATE_VERDICTS = {"running": "ok", "down": "idle"}  # anything else is wrong


@click.command()
@profile_option
@json_option
def status(profile: str | None, as_json: bool) -> None:
    """Show what runs, and how far behind it is. Views with what they have applied; consumers with their members.

    For the local cluster these are its processes. For a profile that names other engines, these are its connections.
    """
    import leftfold
    from leftfold.local import cluster
    from leftfold.project import find_root

    app = leftfold.open(profile=profile)
    if app.profile.kafka is not None:
        _status_elsewhere(app, as_json=as_json)
        return
    seen = cluster.status(find_root())
    up = seen["state"] != "down"
    views, consumers = (app.status(), app.consumer_status()) if up else ([], [])
    if as_json:
        document(
            "status",
            profile=app.profile.name,
            cluster=seen,
            connections=[],
            views=[view.as_json() for view in views],
            consumers=[consumer.as_json() for consumer in consumers],
        )
        return
    console = people()
    console.print(f"{_symbol(seen['state'])} local cluster: {seen['state']}")
    width = max((len(row["name"]) for row in seen["processes"]), default=0)
    for row in seen["processes"]:
        pid = f"pid {row['pid']}" if row["pid"] else ""
        console.print(f"  {_symbol(row['state'])} {row['name']:<{width}} {row['state']:<14} port {row['port']}  {pid}")
    for view in views:
        _print_view(console, view)
    for consumer in consumers:
        _print_consumer(console, consumer)
    if seen["state"] != "running":
        next_step("leftfold up")


def _status_elsewhere(app: App, *, as_json: bool) -> None:
    """Show the connections of a profile, and its views if the engines that know them answer."""
    found = list(app.connections())
    answers = {each.name for each in found if each.verdict == "reachable"}
    views = app.status() if {"kafka", "online"} <= answers else []
    consumers = app.consumer_status() if "kafka" in answers else []
    if as_json:
        document(
            "status",
            profile=app.profile.name,
            cluster=None,
            connections=[each.as_json() for each in found],
            views=[view.as_json() for view in views],
            consumers=[consumer.as_json() for consumer in consumers],
        )
        return
    console = people()
    console.print(f"profile {app.profile.name}")
    for each in found:
        symbol = SYMBOLS[CONNECTION_VERDICTS[each.verdict]]
        console.print(f"  {symbol} {each.name:<12} {each.verdict:<12} {escape(each.where)}", soft_wrap=True)
    for view in views:
        _print_view(console, view)
    for consumer in consumers:
        _print_consumer(console, consumer)
    if any(CONNECTION_VERDICTS[each.verdict] == "wrong" for each in found):
        next_step(f"leftfold doctor --profile {app.profile.name}")


@click.command()
@profile_option
@json_option
def doctor(profile: str | None, as_json: bool) -> None:
    """Check this machine, or a profile's connections. Each check says what to do.

    A profile that names engines elsewhere is checked by its connections: Kafka, registry, store and directories.
    """
    checks = _checks(profile)
    wrong = [check for check in checks if check.verdict == "wrong"]
    if as_json:
        document("doctor", ok=not wrong, checks=[asdict(check) for check in checks])
    else:
        console = people()
        for check in checks:
            console.print(f"{SYMBOLS[check.verdict]} {check.name:<15} {escape(check.detail)}", soft_wrap=True)
            if check.fix and check.verdict != "ok":
                console.print(f"  {'':<15} → {escape(check.fix)}", soft_wrap=True)
        console.print(f"{len(wrong)} to repair" if wrong else "nothing to repair")
    if wrong:
        sys.exit(1)


def _checks(profile: str | None) -> list[Check]:
    import leftfold
    from leftfold.local.doctor import Check, examine
    from leftfold.project import find_root

    try:
        root = find_root()
    except ProjectError:  # the checks of the machine need no project
        if profile is not None:
            raise
        return examine(None)
    try:
        app = leftfold.open(profile=profile)
    except ProjectError as error:  # the machine can be checked all the same
        return [*examine(root), Check("profile", "wrong", error.what, error.fix)]
    if app.profile.kafka is None:
        return examine(root)
    return [
        Check(each.name, CONNECTION_VERDICTS[each.verdict], _connection(each), each.fix) for each in app.connections()
    ]


def _connection(each: Connection) -> str:
    code = f" ({each.code})" if each.code else ""
    return f"{each.verdict} at {each.where}{code}: {each.detail}"


def _symbol(state: str) -> str:
    return SYMBOLS[STATE_VERDICTS.get(state, "wrong")]


def _print_view(console: Console, view: ViewStatus) -> None:
    if view.build is None:
        console.print(f"{SYMBOLS['idle']} {view.view}: not built yet")
        return
    counts = ", ".join(f"{n:,} {outcome}" for outcome, n in view.records.items() if n or outcome == "accepted")
    behind = "its topic is gone" if view.lag is None else f"{view.lag:,} records behind"
    symbol = SYMBOLS["ok" if view.lag == 0 else "idle"]
    batch = "no batch yet" if view.batch == -1 else f"batch {view.batch}"
    console.print(f"{symbol} {view.view}: {counts}; {behind}; build {view.build}, {batch}", soft_wrap=True)
    if view.staged is not None:
        console.print(f"  staged: {view.staged}, which waits for leftfold promote {view.view}", soft_wrap=True)
    if view.previous is not None and view.kept_until is not None:
        console.print(f"  left: {view.previous}, kept until {view.kept_until:%Y-%m-%d %H:%M} UTC", soft_wrap=True)


def _print_consumer(console: Console, of: ConsumerStatus) -> None:
    behind = "lag unknown" if of.lag is None else f"{counted(of.lag, 'record')} behind"
    told = f"{behind}; {counted(of.members, 'member')}, group {of.group}"
    said = told if of.state is not None else f"no group {of.group} is known"
    symbol = SYMBOLS["ok" if of.lag == 0 and of.members else "idle"]
    console.print(f"{symbol} {of.kind} {of.consumer}: {said}", soft_wrap=True)
