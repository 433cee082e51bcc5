"""send: records into the log."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import IO, Any

import click
from pydantic import ValidationError
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from leftfold import clock
from leftfold.cli.output import document, json_option, next_step, people, profile_option, say
from leftfold.errors import DeclarationError
from leftfold.spec.synthetic import synthetic


@click.command()
@click.argument("topic")
@click.argument("file", type=click.File("rb"), required=False)
@click.option(
    "--synthetic", "count", type=click.IntRange(min=1), metavar="N", help="Make up N events instead of reading."
)
@click.option(
    "--seed", type=int, default=0, show_default=True, help="With --synthetic: the same seed, the same events."
)
@profile_option
@json_option
def send(topic: str, file: IO[bytes] | None, count: int | None, seed: int, profile: str | None, as_json: bool) -> None:
    """Send events to TOPIC: JSON lines from FILE (- for standard input), or made-up ones."""
    import leftfold

    if (file is None) == (count is None):
        raise click.UsageError("give either a FILE of JSON lines (- for standard input) or --synthetic N")
    app = leftfold.open(profile=profile)
    declared = app.catalog.topic(topic)
    started = clock.monotonic()
    with app.producer(topic) as producer, _bar(f"sending to {topic}", hidden=as_json) as bar:
        records = synthetic(declared, count, seed=seed) if count else _lines(declared, file)
        task = bar.add_task("send", total=count)
        for number, record in enumerate(records, 1):
            producer.send_dict(record)
            if number % 1_000 == 0:
                bar.update(task, completed=number)
        producer.flush()
        bar.update(task, completed=producer.sent)
    seconds = clock.monotonic() - started
    if as_json:
        document("send", topic=producer.name, records=producer.sent, seconds=round(seconds, 3))
        return
    say(f"✓ {producer.sent:,} records are in {producer.name}, acknowledged, in {seconds:.1f} s")
    next_step("leftfold run --until-caught-up")


def _lines(topic: Any, file: IO[bytes] | None) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(file or sys.stdin.buffer, 1):
        if not line.strip():
            continue
        try:
            event = topic.event.model_validate_json(line)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join(str(part) for part in first["loc"]) or "the line"
            raise DeclarationError(
                "bad-line",
                f"line {number} is no {topic.event.__name__}: {where}: {first['msg']}",
                why="each line is one event as a JSON object",
                state=f"the lines before it were sent, line {number} and those after it were not",
                fix=f"correct it and send the rest: tail -n +{number} FILE | leftfold send {topic.name} -",
                source=topic.source,
            ) from error
        yield event.__dict__


def _bar(title: str, *, hidden: bool) -> Progress:
    columns = [TextColumn(title), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()]
    console = people()
    return Progress(*columns, console=console, disable=hidden or not console.is_terminal, transient=True)
