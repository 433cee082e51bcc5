"""Finds which answers of processes that died are not in the log, and notes them."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from leftfold import clock, private
from leftfold.fold.durations import SECOND
from leftfold.fold.expressions import from_micros
from leftfold.infer.answered import LeftAnswers, Unlogged, missing

# A client tries for two minutes to have a record acknowledged. The rest is for clocks that differ.
_BEFORE_US, _AFTER_US = 300 * SECOND, 600 * SECOND
# What a process sent just before it died is readable once followers have it.
_SETTLED_S = 2.0

LoggedIds = Callable[[str, int, int], Iterator[str] | None]


def look_back(left: Sequence[LeftAnswers], logged: LoggedIds, notes: Path) -> list[Unlogged]:
    """Look for answers in the log, note those that are not there, and forget them all.

    `logged` yields the ids of a scorer's predictions that were logged between two moments (µs); None if its topic is
    not known. A process that dies here leaves the files, and the next one looks again. If it dies between the note and
    the removal of a file, the same answers are noted twice.
    """
    found, removed = [], False
    try:
        if any(one.moments for one in left):
            threading.Event().wait(_SETTLED_S)
        for scorer in sorted({one.scorer for one in left}):
            own = [one for one in left if one.scorer == scorer]
            unlogged = _of_scorer(scorer, own, logged)
            if unlogged.count:
                found.append(unlogged)
        _note(found, notes)
        removed = True
    finally:
        for one in left:
            one.close(remove=removed)
    return found


def _of_scorer(scorer: str, left: Sequence[LeftAnswers], logged: LoggedIds) -> Unlogged:
    moments = [moment for one in left for moment in one.moments.values()]
    unnamed = sum(one.unnamed for one in left)
    if not moments:
        return Unlogged(scorer, {}, unnamed)
    ids = logged(scorer, min(moments) - _BEFORE_US, max(moments) + _AFTER_US)
    if ids is None:
        return Unlogged(scorer, {}, unnamed + len(moments))
    return Unlogged(scorer, {key.decode(): moment for key, moment in missing(left, ids).items()}, unnamed)


def _note(found: Sequence[Unlogged], notes: Path) -> None:
    now = clock.now().isoformat()
    lines = [
        json.dumps(
            {
                "scorer": one.scorer,
                "prediction_id": name,
                "answered_at": from_micros(moment).isoformat(),
                "found_at": now,
            }
        )
        for one in found
        for name, moment in one.ids.items()
    ]
    if lines:
        private.directory(notes.parent)
        with notes.open("a", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in lines)
