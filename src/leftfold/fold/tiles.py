"""Windows, steps and tiles.

A window w has a step h: its start is floored to a multiple of h, so that a value is a merge of whole tiles.
Steps are nested (each divides the next), which is what lets a cover mix them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from leftfold.errors import DeclarationError, Source
from leftfold.fold.durations import SECOND, text

STEPS: tuple[int, ...] = tuple(SECOND * s for s in (1, 10, 60, 300, 3_600, 86_400))
# A window of at least 12 steps is never more than 1/12 longer than asked for.
STEPS_PER_WINDOW = 12


def step_of(window: int, *, source: Source | None = None) -> int:
    for step in reversed(STEPS):
        if step * STEPS_PER_WINDOW <= window:
            return step
    raise DeclarationError(
        "window-too-short",
        f"a window of {text(window)} is shorter than {STEPS_PER_WINDOW} s",
        why=f"a window has at least {STEPS_PER_WINDOW} steps, and the smallest step is 1 s",
        fix='use a window of 12 s or more, or accept a coarser edge with step="1s"',
        source=source,
    )


def check_step(window: int, step: int, *, source: Source | None = None) -> int:
    if step not in STEPS or step > window:
        raise DeclarationError(
            "bad-step",
            f"step {text(step)} does not fit a window of {text(window)}",
            why=f"a step is one of {', '.join(map(text, STEPS))} (each divides the next), no longer than its window",
            fix="leave step= out, or name one of these",
            source=source,
        )
    return step


# Between an hour and a day, and between 5 minutes and an hour, a cover of history would hold many tiles of one step.
_RUNGS: tuple[int, ...] = tuple(sorted((*STEPS, 900 * SECOND, 14_400 * SECOND)))


def floor(time: int, step: int) -> int:
    return time - time % step


def ladder(finest: int, longest: int, lateness: int) -> tuple[int, ...]:
    """Nested steps of tiles for a read of history, where any tile can be made: the first divides `finest`.

    Single events are read for `lateness` and one first step more, so a first step far below the lateness gains
    nothing; and none is longer than the `longest` window.
    """
    first = max(s for s in _RUNGS if s <= finest and (s <= max(lateness // 2, SECOND) or s == _RUNGS[0]))
    return (first, *(s for s in _RUNGS if first < s <= longest))


@dataclass(frozen=True, slots=True)
class Tile:
    step: int
    start: int

    @property
    def index(self) -> int:
        return self.start // self.step


def cover(start: int, until: int, steps: Iterable[int], *, exact: bool = False) -> Iterator[Tile]:
    """The fewest tiles that hold everything from `start` to `until` and nothing else that can exist.

    `start` is aligned to the smallest of `steps`. The last tile may reach past `until`: a read answers for a
    moment no earlier than the newest event, so what would lie beyond it is not there yet. A read for an earlier
    moment is `exact`: no tile reaches past it, and it is aligned to the smallest of `steps` too.
    """
    coarse_first = sorted(steps, reverse=True)
    while start < until:
        step = next(s for s in coarse_first if start % s == 0 and not (exact and start + s > until))
        yield Tile(step, start)
        start += step


def ring_slots(step: int, *, longest_window: int, finest_step: int, future: int) -> int:
    """How many tiles of `step` a cover of the longest window can reach, plus one at either edge.

    The store keeps that many slots per entity and reuses them, so an entity's size is bounded without a sweep.
    """
    return -(-(longest_window + finest_step + future) // step) + 2
