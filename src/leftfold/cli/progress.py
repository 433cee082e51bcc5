"""Shows how far a verb is: a bar on a terminal, else a line now and then. Ends a verb after a signal."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, MofNCompleteColumn, ProgressColumn, TextColumn
from rich.progress import Progress as Bar

from leftfold import clock
from leftfold.cli.output import document, people, say

# Without a terminal there is nothing to redraw, so a line is printed at this interval.
LINE_EVERY_S = 10.0


class Interval:
    """Lets a line pass at an interval. The first may pass after `first_s`."""

    def __init__(self, every_s: float = LINE_EVERY_S, *, first_s: float | None = None) -> None:
        self._every_s = every_s
        self._last = clock.monotonic() - every_s + (every_s if first_s is None else first_s)

    def due(self) -> bool:
        if clock.monotonic() - self._last < self._every_s:
            return False
        self._last = clock.monotonic()
        return True


def bar(title: str, *more: ProgressColumn, hidden: bool) -> Bar:
    """A bar with a title. Without a terminal, or if `hidden`, nothing is drawn."""
    console = people()
    columns = (TextColumn(title), BarColumn(), MofNCompleteColumn(), *more)
    return Bar(*columns, console=console, disable=hidden or not console.is_terminal, transient=True)


@contextmanager
def counted(
    title: str, *more: ProgressColumn, verb: str, noun: str | None = None, as_json: bool
) -> Iterator[Callable[[int, int | None], None]]:
    """Show how many are done, of how many: as a bar, else as a line every 10 s if the things counted have a `noun`.

    With --json, each line is a document.
    """
    interval = Interval()
    lines = noun is not None and (as_json or not people().is_terminal)
    with bar(title, *more, hidden=as_json) as drawn:
        task = drawn.add_task(verb, total=None)

        def show(done: int, total: int | None) -> None:
            drawn.update(task, completed=done, total=total)
            if not lines or not interval.due():
                return
            if as_json:
                document(verb, event="progress", unit=noun, done=done, total=total)
            else:
                say(f"  {title}: {done:,}" + ("" if total is None else f" of {total:,}") + f" {noun}")

        yield show


def end_on_signal(stop: Callable[[], None]) -> None:
    """Handle SIGTERM and Ctrl-C. The first signal requests a stop; the second ends the process at once."""

    def request(number: int, _: object) -> None:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
        stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, request)
