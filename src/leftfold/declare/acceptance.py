"""The rule of acceptance for one record, in Python. `spark.accept` states the same rule for Spark.

Values are plain, times are in microseconds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from leftfold.declare import reasons
from leftfold.declare.keys import longest_key
from leftfold.fold.definition import Key
from leftfold.fold.expressions import Expression, evaluate
from leftfold.fold.values import entity_text


def flaw(
    event: Mapping[str, Any],
    *,
    required: Iterable[str],
    keys: Iterable[tuple[Key, ...]],
    rules: Sequence[Expression],
) -> str | None:
    """Return why an event is rejected, whatever its time; None if it is sound. `keys` are all keys made of it."""
    for name in required:
        if event[name] is None:
            return reasons.MISSING.format(field=name)
    for name in sorted(event):
        if (unsound := _unsound(name, event[name])) is not None:
            return unsound
    for key in keys:
        names = [part.name for part in key]
        if len(entity_text([event[name] for name in names]).encode()) > longest_key(rules, names):
            return reasons.KEY_TOO_LONG
    for rule in rules:
        if evaluate(rule, event) is False:
            return reasons.BROKEN.format(rule=reasons.rule_text(rule))
    return None


def untimely(event_us: int, log_us: int, *, lateness: int, future: int) -> Literal["late", "future"] | None:
    """Return whether an event came too late, or is stamped too far ahead of its log time; None if neither."""
    if event_us < log_us - lateness:
        return "late"
    return "future" if event_us > log_us + future else None


def _unsound(name: str, value: Any) -> str | None:
    if isinstance(value, str) and not _is_utf8(value):
        return reasons.NOT_UTF8.format(field=name)
    if isinstance(value, float) and not math.isfinite(value):
        return reasons.NOT_FINITE.format(field=name)
    return None


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
