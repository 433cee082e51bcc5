"""The verbs of the local cluster: up, down, logs, reset.

With --json, stdout gets one versioned document and nothing else. Output for people goes to stderr, except log lines.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import click
from rich.console import Console
from rich.markup import escape

from leftfold.cli.output import SYMBOLS, document, json_option, next_step, people


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
@click.option("--brokers", type=click.Choice(["1", "3"]), help="Number of brokers of a new cluster. [default: 3]")
@click.option(
    "--spark-workers",
    type=click.IntRange(0, 8),  # leftfold.local.spark_cluster.MOST_WORKERS; a test compares the two
    metavar="COUNT",
    help="Number of Spark workers to start, too. It is remembered, and 0 ends them. [default: 0]",
)
@click.option(
    "--postgres/--no-postgres",
    default=None,
    help="Start a Postgres, too: for consumers with into=, or as the online store. It is remembered. "
    "[default: no Postgres]",
)
@click.option(
    "--redis-cluster/--no-redis-cluster",
    default=None,
    help="Start a Redis Cluster of 3 masters and 3 replicas, too. It is the online store then. It is remembered. "
    "[default: no cluster]",
)
@json_option
def up(
    brokers: str | None, spark_workers: int | None, postgres: bool | None, redis_cluster: bool | None, as_json: bool
) -> None:
    """Start the local cluster, or repair it. It is Kafka brokers, a schema registry and Redis."""
    from leftfold.local import cluster

    counts: dict[str | None, Literal[1, 3] | None] = {None: None, "1": 1, "3": 3}
    with _progress("starting the local cluster") as say:
        endpoints = cluster.up(
            _root(),
            brokers=counts[brokers],
            spark_workers=spark_workers,
            postgres=postgres,
            redis_cluster=redis_cluster,
            progress=say,
        )
    if as_json:
        document(
            "up",
            bootstrap=endpoints.bootstrap,
            registry=endpoints.registry_url,
            redis=endpoints.redis_url,
            redis_cluster=endpoints.redis_cluster_url,
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
        ("cluster", endpoints.redis_cluster_url),
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
@click.argument("name", required=False)
@click.option("--lines", "-n", metavar="COUNT", default=50, show_default=True, help="Number of lines of each log.")
@click.option("--follow", "-f", is_flag=True, help="Continue with new lines until Ctrl-C.")
@json_option
def logs(name: str | None, lines: int, follow: bool, as_json: bool) -> None:
    """Show logs of the local cluster's processes. All, or of NAME. Lines go to stdout."""
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
@click.option("--confirm", "name", metavar="NAME", help="Name of the project directory, instead of typing it.")
@json_option
def reset(name: str | None, as_json: bool) -> None:
    """Delete the local cluster's data. Topics, schemas, features and checkpoints. There is no undo."""
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
