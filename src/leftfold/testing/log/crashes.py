"""Crashes: the steps of a delivery at which a process may die, schedules of deaths, and a call that ends half-way.

A schedule is a list of (step, count): the process that comes to this step for the count-th time dies there. The next
pair counts from that death on.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

from leftfold.declare.delivery import Delivery

_ALL: tuple[Delivery, ...] = ("at_most_once", "at_least_once", "exactly_once")
# The steps of a delivery, and the deliveries that have them. At most once commits before it calls the handler.
STEPS: dict[str, tuple[Delivery, ...]] = {
    "polled": _ALL,
    "position locked": ("exactly_once",),  # in a database, as is "position moved"
    "position committed": ("at_most_once",),
    "handler half done": _ALL,
    "handler done": _ALL,
    "settled": _ALL,
    "dead letter acknowledged": _ALL,  # exactly once to a topic: it is in the transaction, so there is no such step
    "records written": ("exactly_once",),  # to a topic
    "position moved": ("exactly_once",),
    "commit due": _ALL,  # exactly once: the positions are in the transaction
    "commit sent": _ALL,  # no answer came: it took effect, or it did not
    "committed": _ALL,
}
Crash = tuple[str, int]


def random_crashes(chance: random.Random, delivery: Delivery, *, most: int = 4) -> list[Crash]:
    """Return a schedule of at most so many deaths, each at any step of this delivery."""
    steps = _STEPS_OF[delivery]
    return [(chance.choice(steps), chance.randrange(1, 5)) for _ in range(chance.randrange(most + 1))]


_STEPS_OF = {delivery: [step for step, those in STEPS.items() if delivery in those] for delivery in _ALL}


class Died(BaseException):
    """The death of a process, in the middle of a handler. No `except Exception` of the handler sees it."""


def call_half(handler: Callable[..., Any], call: Callable[[], Any], chance: random.Random) -> None:
    """Call a handler up to one of its lines, chosen by chance. What it has done before that line stays done."""
    code: CodeType = handler.__code__
    lines = len({line for _, _, line in code.co_lines() if line is not None and line > code.co_firstlineno})
    left = chance.randrange(max(1, lines))

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal left
        if frame.f_code is not code:
            return None
        if event == "line":
            left -= 1
            if left < 0:
                raise Died
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    except (Exception, Died):  # noqa: BLE001 # the process is dead, whatever its handler would have raised
        pass
    finally:
        sys.settrace(before)
