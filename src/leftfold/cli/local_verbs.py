"""The verbs of the local cluster: up, down, status, logs, reset, doctor. They call leftfold.local and print the result.

With --json, stdout gets one versioned document and nothing else. Output for people goes to stderr, except log lines.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click
from rich.console import Console
from rich.markup import escape

from leftfold.cli.output import document, json_option, next_step, people
from leftfold.errors import ProjectError

if TYPE_CHECKING:
    from leftfold.run.status import ViewStatus

SYMBOLS = {"ok": "[green]✓[/]", "wrong": "[red]✗[/]", "idle": "[dim]–[/]"}
STATE_VERDICTS = {"running": "ok", "down": "idle"}  # anything else is wrong


def _root() -> Path:
    from leftfold.project import find_root

    return find_root()


@contextmanager
def _progress(title: str) -> Iterator[Callable[[str], None]]:
    """Show progress with a spinner on a terminal, and as plain lines elsewhere. Every line stays on the screen."""
    console = people()

    def say(line: str) -> None:
        console.print(f"  {escape(line)}", soft_wrap=True)

    if not console.is_terminal:
        yield say
        return
    with console.status(title):
        yield say


@click.command()
@click.option("--brokers", type=click.Choice(["1", "3"]), help="How many brokers a new cluster gets; 3 unless told.")
@click.option(
    "--spark-workers",
    type=click.IntRange(0, 8),  # leftfold.local.spark_cluster.MOST_WORKERS; a test compares the two
    help="Also a Spark cluster of so many workers; remembered, and 0 ends it. None unless told.",
)
@click.option(
    "--postgres/--no-postgres",
    default=None,
    help="Also a Postgres, for consumers with into=; remembered. None unless told.",
)
@json_option
def up(brokers: str | None, spark_workers: int | None, postgres: bool | None, as_json: bool) -> None:
    """Start the local cluster: brokers, registry, store. Repairs one that is half dead."""
    from leftfold.local import cluster

    counts: dict[str | None, Literal[1, 3] | None] = {None: None, "1": 1, "3": 3}
    with _progress("starting the local cluster") as say:
        endpoints = cluster.up(
            _root(), brokers=counts[brokers], spark_workers=spark_workers, postgres=postgres, progress=say
        )
    if as_json:
        document(
            "up",
            bootstrap=endpoints.bootstrap,
            registry=endpoints.registry_url,
            redis=endpoints.redis_url,
            postgres=endpoints.postgres_url,
            spark=endpoints.spark_url,
        )
        return
    console = people()
    console.print(f"{SYMBOLS['ok']} the local cluster is ready")
    for name, value in (
        ("kafka", endpoints.bootstrap),
        ("registry", endpoints.registry_url),
        ("redis", endpoints.redis_url),
        ("postgres", endpoints.postgres_url),
        ("spark", endpoints.spark_url),
    ):
        if value is None:
            continue
        console.print(f"  {name:<9}{value}", soft_wrap=True)
    next_step("leftfold plan")


@click.command()
@json_option
def down(as_json: bool) -> None:
    """End every process of the local cluster. Its data stays."""
    from leftfold.local import cluster

    with _progress("ending the local cluster") as say:
        ended = cluster.down(_root(), progress=say)
    if as_json:
        document("down", ended=ended)
        return
    _print_ended(people(), ended)
    people().print("the data stays (leftfold reset deletes it)")
    next_step("leftfold up")


@click.command()
@json_option
def status(as_json: bool) -> None:
    """The local cluster's processes, and what each view has applied."""
    import leftfold
    from leftfold.local import cluster

    seen = cluster.status(_root())
    views = leftfold.open(profile="local").status() if seen["state"] != "down" else []
    if as_json:
        document("status", cluster=seen, views=[view.as_json() for view in views])
        return
    console = people()
    console.print(f"{_symbol(seen['state'])} local cluster: {seen['state']}")
    width = max((len(row["name"]) for row in seen["processes"]), default=0)
    for row in seen["processes"]:
        pid = f"pid {row['pid']}" if row["pid"] else ""
        console.print(f"  {_symbol(row['state'])} {row['name']:<{width}} {row['state']:<14} port {row['port']}  {pid}")
    for view in views:
        _print_view(console, view)
    if seen["state"] != "running":
        next_step("leftfold up")


@click.command()
@click.argument("name", required=False)
@click.option("--lines", "-n", default=50, show_default=True, help="How many lines of each log.")
@click.option("--follow", "-f", is_flag=True, help="Go on printing what is written.")
@json_option
def logs(name: str | None, lines: int, follow: bool, as_json: bool) -> None:
    """The logs of the cluster's processes, or of NAME. Lines go to stdout; with --json --follow as JSON lines."""
    from leftfold.local import cluster, logfile

    files = cluster.logs(_root(), name)
    tails = {process: logfile.last(path, lines) for process, path in files.items()}
    if as_json and not follow:
        document(
            "logs", logs=[{"name": process, "file": str(files[process]), "lines": tails[process]} for process in files]
        )
        return
    if not files:
        people().print("there are no logs yet")
        next_step("leftfold up")
    for process, tail in tails.items():
        for line in tail:
            _print_log_line(process, line, as_json=as_json)
    if follow:
        for process, line in logfile.follow(files):
            _print_log_line(process, line, as_json=as_json)


@click.command()
@click.option("--yes", "name", metavar="NAME", help="The project directory's name, instead of typing it.")
@json_option
def reset(name: str | None, as_json: bool) -> None:
    """Delete the local cluster's data: topics, schemas, the store. There is no undo."""
    from leftfold.local import cluster

    root = _root()
    if name is None and sys.stdin.isatty() and not as_json:
        question = f"This deletes every topic, schema and stored feature of {root.name}. Type {root.name} to go on"
        name = click.prompt(question, default="", show_default=False, err=True)
    with _progress("deleting the local cluster's data") as say:
        ended = cluster.reset(root, confirm=name or "", progress=say)
    if as_json:
        document("reset", ended=ended, deleted=True)
        return
    _print_ended(people(), ended)
    people().print(f"{SYMBOLS['ok']} the local cluster's data is deleted")
    next_step("leftfold up")


@click.command()
@json_option
def doctor(as_json: bool) -> None:
    """Check Java, jars, Redis, Maven, Postgres, PySpark, disk, ports and the cluster; say what to do about each."""
    from leftfold.local.doctor import examine

    try:
        root: Path | None = _root()
    except ProjectError:  # the checks of the machine need no project
        root = None
    checks = examine(root)
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


def _symbol(state: str) -> str:
    return SYMBOLS[STATE_VERDICTS.get(state, "wrong")]


def _print_ended(console: Console, ended: dict[str, str]) -> None:
    if not ended:
        console.print(f"{SYMBOLS['idle']} nothing was running")
    for name, how in ended.items():
        console.print(f"{SYMBOLS['ok']} {name} {how}")


def _print_log_line(process: str, line: str, *, as_json: bool) -> None:
    if as_json:
        document("logs", name=process, line=line)
    else:
        click.echo(f"{process:<9} {line}")


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
