"""The outcome of numbered lines that were sent. Only blank and unacknowledged lines take memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import pairwise
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from leftfold.kafka.delivery import Outcome

Span = tuple[int, int]  # first and last
_SHOWN = 10
# The client holds at most this many records. Older lines are acknowledged, so it does not matter which were blank.
_REMEMBERED = 100_000


class Lines:
    """The outcome of lines 1 to `last`. Blank lines between acknowledged lines count as acknowledged."""

    def __init__(self) -> None:
        self.last = 0  # the last line that was handed to the client
        self.at = 0  # the current line: handed to the client, or about to be
        self.ended = False  # True once there are no more lines
        self.blank: deque[int] = deque(maxlen=_REMEMBERED)
        self._undelivered: dict[Outcome, list[int]] = {"failed": [], "unknown": []}

    def note(self, number: int, outcome: Outcome) -> None:
        self._undelivered[outcome].append(number)
        self.last = max(self.last, number)

    def cut_off(self) -> None:
        """Note an interrupt. The current line becomes unknown, because the client may or may not have got it."""
        if self.at > self.last:
            self.note(self.at, "unknown")

    @property
    def acknowledged(self) -> list[Span]:
        not_these = sorted((*self._undelivered["failed"], *self._undelivered["unknown"]))
        around, blank = [0, *not_these, self.last + 1], set(self.blank)
        return [(a + 1, b - 1) for a, b in pairwise(around) if any(n not in blank for n in range(a + 1, b))]

    @property
    def failed(self) -> list[Span]:
        return spans(self._undelivered["failed"])

    @property
    def unknown(self) -> list[Span]:
        return spans(self._undelivered["unknown"])

    @property
    def not_sent_from(self) -> int | None:
        """The first line that was not sent; None if all lines were sent."""
        if self.ended:
            return None
        return self.at if self.at > self.last else self.last + 1

    def as_json(self) -> dict[str, Any]:
        """The outcomes as spans of lines, both ends included."""
        return {
            "acknowledged": self.acknowledged,
            "failed": self.failed,
            "unknown": self.unknown,
            "not_sent_from": self.not_sent_from,
        }


def spans(numbers: Iterable[int]) -> list[Span]:
    ranges: list[Span] = []
    for number in sorted(numbers):
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1] = (ranges[-1][0], number)
        else:
            ranges.append((number, number))
    return ranges


def shown(of: list[Span], noun: str) -> str:
    """Spans as people write them: "line 7", "lines 1-5, 9"."""
    texts = [str(a) if a == b else f"{a}-{b}" for a, b in of[:_SHOWN]]
    more = f" and {len(of) - _SHOWN:,} more ranges" if len(of) > _SHOWN else ""
    single = len(of) == 1 and of[0][0] == of[0][1]
    return f"{noun}{'' if single else 's'} {', '.join(texts)}{more}"


def sed(of: list[Span], *, then_from: int | None) -> str | None:
    """A script for `sed -n` that prints these lines; None if it would be too long to read."""
    if len(of) > _SHOWN:
        return None
    parts = [f"{a}p" if a == b else f"{a},{b}p" for a, b in of if b + 1 != then_from]
    if then_from is not None:
        start = next((a for a, b in of if b + 1 == then_from), then_from)
        parts.append(f"{start},$p")
    return ";".join(parts)
