"""The verb send: sends records into the log, and reports the outcome of each."""

from __future__ import annotations

import io
import os
import shlex
import stat
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import click
from pydantic import ValidationError
from rich.progress import Progress, TimeRemainingColumn

from leftfold import clock
from leftfold.cli.lines import Lines, Span, sed, shown
from leftfold.cli.output import document, json_option, next_step, profile_option, say
from leftfold.cli.progress import bar
from leftfold.declare.topic import Topic
from leftfold.errors import DeclarationError, DeliveryError

if TYPE_CHECKING:
    from leftfold.kafka.producer import Producer

_SHOWN_EVERY = 1_000
_NAMED_BAD = 10
_STDIN = "<stdin>"
_ONE_EVENT = "each line is one event as a JSON object"
_OUTCOMES = ("acknowledged", "failed, not in the log", "unknown, may be in the log")


class SentLine(NamedTuple):
    """An encoded record, with the number of its line."""

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
    source: _Input | MadeUp
    with bar("{task.description}", TimeRemainingColumn(), hidden=as_json) as drawn:
        if file is None:
            assert count is not None, "one of the two was given"
            source = MadeUp(declared, producer, count, seed=seed)
        elif _can_be_read_twice(file):
            _check(declared, producer, file, drawn)
            source = _Input(declared, producer, file, name="FILE" if file.name == _STDIN else file.name)
        else:
            source = _Input(
                declared, producer, file, name="FILE"
            )  # only the user can fill the pipe with the same again
        _send(producer, source, drawn, count)
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

    def __init__(self, topic: Topic[Any], producer: Producer, file: IO[bytes], *, name: str) -> None:
        self.topic = topic
        self._producer = producer
        self._lines = Lines()
        self._records = _records(topic, producer, file, self._lines)
        self._name = shlex.quote(name)
        self._bad: list[int] = []

    def hand_over(self, show: Callable[[int], None]) -> None:
        """Give every line to the producer. `show` is called now and then with the number of those given."""
        lines, producer = self._lines, self._producer
        try:
            for number, key, value in self._records:
                lines.at = number
                producer.send_encoded(key, value, on_failure=partial(lines.note, number))
                lines.last = number
                if number % _SHOWN_EVERY == 0:
                    show(number)
        except BadLineError as bad:
            lines.at = bad.number
            self._bad = [bad.number]
            raise
        lines.ended = True

    def cut_off(self) -> int:
        """Note an interrupt, and return the number of the line at which it came."""
        self._lines.cut_off()
        return self._lines.at

    def again(self) -> str | None:
        """The command that sends the lines that failed or were not sent. None of these are in the log.

        If there are too many ranges for a command, the text says where the line numbers are. None if no line is left.
        """
        failed, rest = self._lines.failed, self._lines.not_sent_from
        if failed:
            script = sed(failed, then_from=rest)
            if script is None:
                return "the line numbers are in .leftfold/logs/errors.log, and in the document of --json"
            return f"sed -n '{script}' {self._name} | leftfold send {self.topic.name} -"
        return None if rest is None else f"tail -n +{rest} {self._name} | leftfold send {self.topic.name} -"

    @property
    def unknown(self) -> bool:
        """True if there are lines that may be in the log or not."""
        return bool(self._lines.unknown)

    def state(self) -> str:
        lines = self._lines
        outcomes = zip((lines.acknowledged, lines.failed, lines.unknown), _OUTCOMES, strict=True)
        parts = [f"{shown(numbers, self.noun)}: {outcome}" for numbers, outcome in outcomes if numbers]
        if (rest := lines.not_sent_from) is not None:
            parts.append(f"from {self.noun} {rest} on: not sent")
        return "; ".join(parts)

    def details(self) -> dict[str, Any]:
        return {"lines": self._lines.as_json(), "bad": self._bad}


class MadeUp:
    """Synthetic records. A missing one is replaced by any other, so they are only counted.

    To know the outcome of each would cost more time than to make it and to send it.
    """

    noun = "record"

    def __init__(self, topic: Topic[Any], producer: Producer, count: int, *, seed: int) -> None:
        self.topic = topic
        self._producer = producer
        self._count = count
        self._records = producer.synthetic(count, seed=seed)
        self._at = 0  # the last record: handed to the client, or about to be
        self._open = 0  # 1 if an interrupt came in between

    def hand_over(self, show: Callable[[int], None]) -> None:
        """Give every record to the producer. `show` is called now and then with the number of those given."""
        send, number = self._producer.send_encoded, 0
        try:
            # Many are made before they are sent. If they come one at a time, the client's threads wake for each few.
            while made := list(islice(self._records, _SHOWN_EVERY)):
                for key, value in made:
                    number += 1
                    send(key, value)
                show(number)
        finally:
            self._at = number

    def cut_off(self) -> int:
        """Note an interrupt, and return the number of the record at which it came.

        That one becomes unknown, because the client may or may not have got it.
        """
        self._open = self._at - self._producer.sent
        return self._at

    def again(self) -> str | None:
        missing = self._outcomes["failed"] + self._outcomes["not_sent"]
        return f"leftfold send {self.topic.name} --synthetic {missing}" if missing else None

    @property
    def unknown(self) -> bool:
        """True if there are records that may be in the log or not."""
        return self._outcomes["unknown"] > 0

    def state(self) -> str:
        outcomes = self._outcomes
        parts = zip(("acknowledged", "failed", "unknown", "not_sent"), (*_OUTCOMES, "not sent"), strict=True)
        return "; ".join(
            f"{n:,} {self.noun}{'' if n == 1 else 's'}: {text}" for name, text in parts if (n := outcomes[name])
        )

    def details(self) -> dict[str, Any]:
        return self._outcomes

    @property
    def _outcomes(self) -> dict[str, int]:
        counted = self._producer.outcomes()
        counted["unknown"] += self._open
        counted["not_sent"] = self._count - self._producer.sent - self._open
        return counted


def _send(producer: Producer, source: _Input | MadeUp, bar: Progress, total: int | None) -> None:
    task = bar.add_task(f"sending to {source.topic.name}", total=total)
    try:
        with producer:  # however the block ends, its exit waits until the outcome of each record is known
            source.hand_over(lambda number: bar.update(task, completed=number))
    except BadLineError as bad:  # every line before it is acknowledged: else the error would be a DeliveryError
        raise DeclarationError(
            "bad-line",
            bad.what,
            why=_ONE_EVENT,
            state=source.state(),
            fix=f"correct it and send the rest: {source.again()}",
            source=source.topic.source,
            details=source.details(),
        ) from bad
    except DeliveryError as error:
        raise _undelivered(error, source, producer) from error
    except KeyboardInterrupt as cut:
        producer.give_up()  # the interrupt may have come in the exit of the block, before that gave up
        at = source.cut_off()
        raise DeliveryError(
            "send-interrupted",
            f"interrupted at {source.noun} {at:,}",
            why="it was told to stop (SIGINT, as by Ctrl-C)",
            state=source.state(),
            fix=_fix(source, producer.look, "send the rest") or "leave it: everything was sent and acknowledged",
            details=source.details(),
        ) from cut


def _undelivered(error: DeliveryError, source: _Input | MadeUp, producer: Producer) -> DeliveryError:
    """The producer's error, in terms of lines. If a bad line ended the sending, the user must correct two things."""
    denied = error.code == "kafka-denied"
    what, steps = error.what, [] if producer.remedy is None else [producer.remedy]
    if isinstance(bad := error.__cause__, BadLineError):
        what = f"{what}; {bad.what}"
        steps.append(f"correct line {bad.number}")
    return DeliveryError(
        "delivery-unknown" if source.unknown else "kafka-denied" if denied else "not-delivered",
        what,
        why=error.why,
        state=source.state(),
        fix=_fix(source, producer.look, "; ".join([*steps, "send what is not in the log"])),
        details={**error.details, **source.details()},
    )


def _fix(source: _Input | MadeUp, look: str, first: str) -> str:
    """The fix for the user. What failed or was not sent can be sent again; unknown records must be looked up first.

    `first` is the text before the command that sends again, and `look` says where to look for unknown ones.
    """
    again = source.again()
    parts = [f"{first}: {again}"] if again else []
    if source.unknown:
        parts.append(look)
    return "; ".join(parts)
