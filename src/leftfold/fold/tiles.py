"""Windows, steps and tiles.

A window w has a step h. The start of the window is rounded down to a multiple of h, so that a value is a merge of whole
tiles. Steps are nested (each divides the next), so a cover can mix tiles of different steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from leftfold.errors import DeclarationError, SourceLine
from leftfold.fold.durations import SECOND, text

STEPS: tuple[int, ...] = tuple(SECOND * s for s in (1, 10, 60, 300, 3_600, 86_400))
# A window of at least 12 steps is never more than 1/12 longer than declared.
STEPS_PER_WINDOW = 12


def step_of(window: int, *, source: SourceLine | None = None) -> int:
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


def check_step(window: int, step: int, *, source: SourceLine | None = None) -> int:
    if step not in STEPS or step > window:
        raise DeclarationError(
            "bad-step",
            f"step {text(step)} does not fit a window of {text(window)}",
            why="steps divide one another, so that their tiles fit into each other, and none is longer than its window",
            fix=f"leave step= out, or choose from {', '.join(text(one) for one in STEPS if one <= window)}",
            source=source,
        )
    return step


# The steps for reads of history, with two more: 15 minutes and 4 hours. Without these, a cover would hold many tiles of
# 5 minutes before the next hour, and many tiles of an hour before the next day.
_RUNGS: tuple[int, ...] = tuple(sorted((*STEPS, 900 * SECOND, 14_400 * SECOND)))


def floor(time: int, step: int) -> int:
    return time - time % step


def ladder(finest: int, longest: int, lateness: int) -> tuple[int, ...]:
    """The nested steps of tiles for a read of history, where tiles of any step can be made. The first divides `finest`.

    Single events are read for a time of `lateness` plus one first step. So a first step far below the lateness gains
    nothing. No later step is longer than the `longest` window.
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
    """The fewest tiles that hold all events from `start` to `until`, and no other event that can exist.

    `start` must be aligned to the smallest of `steps`. The last tile may extend past `until`. This is safe, because a
    read is for a moment no earlier than the newest event, so no event after `until` exists yet. A read for an earlier
    moment is `exact`: no tile extends past `until`, which must then be aligned to the smallest of `steps` too.
    """
    coarse_first = sorted(steps, reverse=True)
    while start < until:
        step = next(s for s in coarse_first if start % s == 0 and not (exact and start + s > until))
        yield Tile(step, start)
        start += step


def ring_slots(step: int, *, longest_window: int, finest_step: int, future: int) -> int:
    """The number of tiles of `step` that a cover of the longest window can reach, plus one at each edge.

    The store keeps this many slots per entity and reuses them. So the size of an entity is bounded without a clean-up.
    """
    return -(-(longest_window + finest_step + future) // step) + 2
