"""The points at which a batch can die, and the means by which a test lets it die there.

As a program it is a Spark driver in its own process. `python -m tests.engine.crashes ROOT POINT BATCH HOW` dies at a
point. `python -m tests.engine.crashes ROOT` takes its orders line by line from standard input.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import leftfold
from leftfold.declare import batches
from leftfold.kafka import changelog as log_writer
from leftfold.run import batch as running_batch
from leftfold.run.batch import STEPS
from leftfold.run.view import RunningView
from leftfold.spark.session import build_session
from leftfold.spark.sinks.changelog import write_changelog as write_frame
from leftfold.spark.sinks.changelog import write_changelog_rows as write_rows
from leftfold.spark.sinks.online import Output, write_online

# A step counts as reached when it is done. In addition, a batch can die when half of a store's rows are written.
POINTS = ("begun", "half online", "online rows", "online mark", "half changelog", "changelog", "receipt")
assert [p for p in POINTS if not p.startswith("half")] == list(STEPS)
_HALF = "pmod(crc32(cast(entity as binary)), 2) = 0"


class DiedError(Exception):
    """An exception that a test raises in place of a real death."""


@contextmanager
def dying(view: RunningView, point: str, batch: int, how: Callable[[], None]) -> Iterator[None]:
    """Call `how` when the view reaches a point in a batch of this number or a later one."""
    if not point.startswith("half"):

        def reached(step: str, number: int) -> None:
            if step == point and number >= batch:
                how()

        view.at_step = reached
        yield
        return
    store = point.removeprefix("half ")
    at: dict[str, int] = {}
    view.at_step = lambda step, number: at.update(number=number)

    def due(name: str) -> bool:
        return store == name and at["number"] >= batch

    def online(output: Output, *rest: Any) -> Any:
        if due("online"):
            write_online(_half(output), *rest)
            how()
        return write_online(output, *rest)

    def frame(packed: Any, *rest: Any, **options: Any) -> int:
        if due("changelog"):
            write_frame(packed.where(_HALF), *rest, **options)
            how()
        return write_frame(packed, *rest, **options)

    def rows(given: Any, changelog: Any, *rest: Any, **options: Any) -> int:
        if due("changelog"):
            some = [row for row in given if row[0] is None or log_writer.writer_of(row[0], changelog.writers) == 0]
            write_rows(some, changelog, *rest, **options)
            how()
        return write_rows(given, changelog, *rest, **options)

    with patch.multiple(running_batch, write_online=online, write_changelog=frame, write_changelog_rows=rows):
        yield


def _half(output: Output) -> Output:
    if output.rows is None:
        return Output(output.packed.where(_HALF + " or entity is null"))
    return Output(output.packed, output.rows[: len(output.rows) // 2], output.digest)


def raise_died() -> None:
    raise DiedError


def unload_state(spark: Any) -> None:
    """Unload the state stores that are open in memory: a new process would not have them."""
    getattr(spark._jvm.org.apache.spark.sql.execution.streaming.state, "StateStore$").__getattr__("MODULE$").unloadAll()


def _exit() -> None:
    os._exit(1)


def _kill_jvm() -> None:
    from pyspark import SparkContext

    gateway: Any = SparkContext._gateway
    os.kill(gateway.proc.pid, signal.SIGKILL)


def _stop_all() -> None:
    """Stop this whole driver at once: Python, the JVM and its workers. It continues when it is sent SIGCONT."""
    os.killpg(0, signal.SIGSTOP)


WAYS: dict[str, Callable[[], None]] = {"exit": _exit, "jvm": _kill_jvm, "stop": _stop_all}


def die(root: Path, point: str, batch: int, how: str) -> None:
    supervisor = leftfold.open(root).supervisor(until_caught_up=True)
    supervisor.helpers = []
    with dying(supervisor.views[0], point, batch, WAYS[how]):
        supervisor.run(lambda _: None)


def obey(root: Path) -> None:
    """Run as often as standard input asks, all in one JVM.

    Each line {"point": ..., "how": ..., "records": n} is one run, which is answered by one line. Without "point" the
    run does not die. "root" names another project for the run.
    """
    app = leftfold.open(root)
    session = build_session(app.profile.spark, application="obedient", log_file=app.log_directory / "spark.log")
    _say({"ready": True})
    for line in sys.stdin:
        told = json.loads(line)
        batches.OFFSETS_PER_PARTITION = told["records"]
        supervisor = leftfold.open(Path(told.get("root", root))).supervisor(until_caught_up=True)
        supervisor.helpers = []
        view = supervisor.views[0]
        with dying(view, told["point"], 0, WAYS[told["how"]]) if told.get("point") else _alive():
            view.start(session, until_caught_up=True)
            view.wait()
        log_writer.close()
        unload_state(session)
        error = view.progress.error
        _say({"state": view.progress.state, "build": view.progress.build, "code": error.code if error else None})
    session.stop()


@contextmanager
def _alive() -> Iterator[None]:
    yield


def _say(document: dict[str, Any]) -> None:
    print(json.dumps(document), flush=True)


if __name__ == "__main__":
    if len(sys.argv) > 2:
        die(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4])
    else:
        obey(Path(sys.argv[1]))
