"""The verb send: sends records into the log, and reports the outcome of each."""

from __future__ import annotations

import io
import os
import shlex
import stat
from collections.abc import Iterable, Iterator
from functools import partial
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import click
from pydantic import ValidationError
from rich.progress import Progress, TimeRemainingColumn

from leftfold import clock
from leftfold.cli.lines import Lines, Span, sed, shown
from leftfold.cli.output import document, json_option, next_step, profile_option, say
from leftfold.cli.progress import bar
from leftfold.declare.synthetic import synthetic
from leftfold.declare.topic import Topic
from leftfold.errors import DeclarationError, DeliveryError

if TYPE_CHECKING:
    from leftfold.kafka.producer import Producer

_SHOWN_EVERY = 1_000
_NAMED_BAD = 10
_STDIN = "<stdin>"
_ONE_EVENT = "each line is one event as a JSON object"


class SentLine(NamedTuple):
    """An encoded record, with the number of its line or of the synthetic record."""

    number: int
    key: bytes
    value: bytes


class BadLineError(Exception):
    """A line that is not an event. The caller turns it into a LeftfoldError, because the caller knows what was sent."""

    def __init__(self, number: int, what: str) -> None:
        super().__init__(what)
        self.number = number
        self.what = what


@click.command()
@click.argument("topic")
@click.argument("file", type=click.File("rb"), required=False)
@click.option(
    "--synthetic",
    "count",
    type=click.IntRange(min=1),
    metavar="COUNT",
    help="Number of events to make up, instead of reading.",
)
@click.option(
    "--seed",
    type=int,
    metavar="NUMBER",
    default=0,
    show_default=True,
    help="Seed of --synthetic: the same seed gives the same events.",
)
@profile_option
@json_option
def send(topic: str, file: IO[bytes] | None, count: int | None, seed: int, profile: str | None, as_json: bool) -> None:
    """Send events: JSON lines, or made-up ones. They go to TOPIC, from FILE (- for standard input).

    A file is checked before its first line is sent. What comes from a pipe is sent as it comes.
    """
    import leftfold

    if (file is None) == (count is None):
        raise click.UsageError("give either a FILE of JSON lines (- for standard input) or --synthetic COUNT")
    app = leftfold.open(profile=profile)
    declared = app.catalog.topic(topic)
    started = clock.monotonic()
    producer = app.producer(topic)
    lines = Lines()
    source: _Input | _MadeUp
    with bar("{task.description}", TimeRemainingColumn(), hidden=as_json) as drawn:
        if file is None:
            assert count is not None, "one of the two was given"
            records = _made_up(producer, synthetic(declared, count, seed=seed))
            source = _MadeUp(declared, count)
        elif _can_be_read_twice(file):
            _check(declared, producer, file, drawn)
            records = _records(declared, producer, file, lines)
            source = _Input(declared, "FILE" if file.name == _STDIN else file.name)
        else:
            records = _records(declared, producer, file, lines)
            source = _Input(declared, "FILE")  # only the user can fill the pipe with the same lines again
        _send(producer, records, lines, source, drawn, count)
    seconds = clock.monotonic() - started
    if as_json:
        document("send", topic=producer.name, records=producer.sent, seconds=round(seconds, 3))
        return
    say(f"✓ {producer.sent:,} records are in {producer.name}, acknowledged, in {seconds:.1f} s")
    next_step("leftfold run --until-caught-up")


# Reading ------------------------------------------------------------------------------------------------------------


def _can_be_read_twice(file: IO[bytes]) -> bool:
    """True for a regular file. False for a pipe."""
    try:
        return stat.S_ISREG(os.fstat(file.fileno()).st_mode)
    except io.UnsupportedOperation:  # it has no file descriptor
        return False


def _records(topic: Topic[Any], producer: Producer, file: IO[bytes], lines: Lines) -> Iterator[SentLine]:
    for number, line in enumerate(file, 1):
        if line.strip():
            yield _record(topic, producer, number, line)
        else:
            lines.blank.append(number)


def _record(topic: Topic[Any], producer: Producer, number: int, line: bytes) -> SentLine:
    try:
        fields = topic.event.model_validate_json(line).__dict__
        record = SentLine(number, producer.key_of(fields), producer.encode(fields))
        producer.check_key(record.key)
        return record
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the line"
        what = f"line {number} is no {topic.event.__name__}: {where}: {first['msg']}"
        raise BadLineError(number, what) from error
    except DeclarationError as error:  # the event is valid, but its value or key cannot be written
        raise BadLineError(number, f"line {number}: {error.what}") from error


def _made_up(producer: Producer, records: Iterable[dict[str, Any]]) -> Iterator[SentLine]:
    for number, record in enumerate(records, 1):
        yield SentLine(number, producer.key_of(record), producer.encode(record))


def _check(topic: Topic[Any], producer: Producer, file: IO[bytes], bar: Progress) -> None:
    """Check every line of the file before anything is sent. Raises if a line is bad."""
    start, task = file.tell(), bar.add_task(f"checking {file.name}", total=None)
    bad: list[BadLineError] = []
    others = 0
    for number, line in enumerate(file, 1):
        if number % _SHOWN_EVERY == 0:
            bar.update(task, completed=number)
        if not line.strip():
            continue
        try:
            _record(topic, producer, number, line)
        except BadLineError as error:
            if len(bad) < _NAMED_BAD:
                bad.append(error)
            else:
                others += 1
    bar.remove_task(task)
    file.seek(start)
    if bad:
        more = f", and {len(bad) - 1 + others:,} more lines" if len(bad) > 1 else ""
        numbers: list[Span] = [(error.number, error.number) for error in bad]
        which = shown(numbers, "line") + (f" and {others:,} more" if others else "")
        raise DeclarationError(
            "bad-line",
            bad[0].what + more,
            why=_ONE_EVENT,
            state="the file was checked first, and nothing was sent",
            fix=f"correct {which} and run the same command again",
            source=topic.source,
            details={"lines": Lines().as_json(), "bad": [error.number for error in bad]},
        ) from bad[0]


# Sending ------------------------------------------------------------------------------------------------------------


class _Input:
    """Lines of a file or a pipe. Their numbers identify the lines that must be sent again."""

    noun = "line"

    def __init__(self, topic: Topic[Any], name: str) -> None:
        self.topic = topic
        self._name = shlex.quote(name)

    def again(self, lines: Lines) -> str | None:
        """The command that sends the lines that failed or were not sent. None of these are in the log.

        If there are too many ranges for a command, the text says where the line numbers are. None if no line is left.
        """
        failed, rest = lines.failed, lines.not_sent_from
        if failed:
            script = sed(failed, then_from=rest)
            if script is None:
                return "the line numbers are in .leftfold/logs/errors.log, and in the document of --json"
            return f"sed -n '{script}' {self._name} | leftfold send {self.topic.name} -"
        return None if rest is None else f"tail -n +{rest} {self._name} | leftfold send {self.topic.name} -"


class _MadeUp:
    """Synthetic records. A missing one is replaced by any other, so only their number matters."""

    noun = "record"

    def __init__(self, topic: Topic[Any], count: int) -> None:
        self.topic = topic
        self._count = count

    def again(self, lines: Lines) -> str | None:
        failed, rest = lines.failed, lines.not_sent_from
        missing = sum(b - a + 1 for a, b in failed) + (0 if rest is None else self._count - rest + 1)
        return f"leftfold send {self.topic.name} --synthetic {missing}" if missing else None


def _send(
    producer: Producer,
    records: Iterable[SentLine],
    lines: Lines,
    source: _Input | _MadeUp,
    bar: Progress,
    total: int | None,
) -> None:
    task = bar.add_task(f"sending to {source.topic.name}", total=total)
    try:
        with producer:  # however the block ends, its exit waits until the outcome of each record is known
            for number, key, value in records:
                lines.at = number
                producer.send_encoded(key, value, on_failure=partial(lines.note, number))
                lines.last = number
                if number % _SHOWN_EVERY == 0:
                    bar.update(task, completed=number)
            lines.ended = True
    except BadLineError as bad:  # every line before it is acknowledged: else the error would be a DeliveryError
        lines.at = bad.number
        raise DeclarationError(
            "bad-line",
            bad.what,
            why=_ONE_EVENT,
            state=_state(lines, source),
            fix=f"correct it and send the rest: {source.again(lines)}",
            source=source.topic.source,
            details={"lines": lines.as_json(), "bad": [bad.number]},
        ) from bad
    except DeliveryError as error:
        raise _undelivered(error, lines, source, producer) from error
    except KeyboardInterrupt as cut:
        producer.give_up()  # the interrupt may have come in the exit of the block, before that gave up
        lines.cut_off()
        raise DeliveryError(
            "send-interrupted",
            f"interrupted at {source.noun} {lines.at:,}",
            why="it was told to stop (SIGINT, as by Ctrl-C)",
            state=_state(lines, source),
            fix=_fix(lines, source, producer.look, "send the rest") or "leave it: everything was sent and acknowledged",
            details={"lines": lines.as_json(), "bad": []},
        ) from cut


def _undelivered(error: DeliveryError, lines: Lines, source: _Input | _MadeUp, producer: Producer) -> DeliveryError:
    """The producer's error, in terms of lines. If a bad line ended the sending, the user must correct two things."""
    denied = error.code == "kafka-denied"
    what, steps = error.what, [] if producer.remedy is None else [producer.remedy]
    bad = error.__cause__ if isinstance(error.__cause__, BadLineError) else None
    if bad is not None:
        lines.at = bad.number
        what = f"{what}; {bad.what}"
        steps.append(f"correct line {bad.number}")
    return DeliveryError(
        "delivery-unknown" if lines.unknown else "kafka-denied" if denied else "not-delivered",
        what,
        why=error.why,
        state=_state(lines, source),
        fix=_fix(lines, source, producer.look, "; ".join([*steps, "send what is not in the log"])),
        details={**error.details, "lines": lines.as_json(), "bad": [] if bad is None else [bad.number]},
    )


def _state(lines: Lines, source: _Input | _MadeUp) -> str:
    outcomes = (
        (lines.acknowledged, "acknowledged"),
        (lines.failed, "failed, not in the log"),
        (lines.unknown, "unknown, may be in the log"),
    )
    parts = [f"{shown(numbers, source.noun)}: {outcome}" for numbers, outcome in outcomes if numbers]
    if (rest := lines.not_sent_from) is not None:
        parts.append(f"from {source.noun} {rest} on: not sent")
    return "; ".join(parts)


def _fix(lines: Lines, source: _Input | _MadeUp, look: str, first: str) -> str:
    """The fix for the user. Failed and unsent lines can be sent again; unknown ones must be looked up in the log first.

    `first` is the text before the command that sends again, and `look` says where to look for unknown lines.
    """
    again = source.again(lines)
    parts = [f"{first}: {again}"] if again else []
    if lines.unknown:
        parts.append(look)
    return "; ".join(parts)
