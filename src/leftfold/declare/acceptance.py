"""The rule of acceptance for one record, in Python. `spark.accept` states the same rule for Spark.

Values are plain, times are in microseconds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from leftfold.declare import reasons
from leftfold.declare.event import EventField
from leftfold.declare.keys import longest_key
from leftfold.fold.definition import Key
from leftfold.fold.expressions import Expression, evaluate
from leftfold.fold.values import entity_text

ACCEPTED = "accepted"
OUTCOMES = (ACCEPTED, "late", "future", "rejected")  # of a record
_DIGITS = 20  # of the longest number
_BYTES_PER_CHARACTER = 8  # at most 4 in UTF-8, and twice that where a part of a key is escaped


class Soundness:
    """Checks events by everything but their time. It is prepared once and called for each record.

    `required` are the fields that must have a value, and `keys` are all keys that are made of an event.
    """

    def __init__(self, required: Iterable[str], keys: Iterable[tuple[Key, ...]], rules: Sequence[Expression]) -> None:
        self._required = tuple(required)
        names = [tuple(part.name for part in key) for key in keys]
        self._keys = [(key, longest_key(rules, key)) for key in names]
        self._rules = tuple(rules)

    def flaw(self, event: Mapping[str, Any]) -> str | None:
        """Return why an event is rejected; None if it is sound."""
        for name in self._required:
            if event[name] is None:
                return reasons.MISSING.format(field=name)
        for value in event.values():
            kind = type(value)  # the two kinds that can be unsound, without a call for each value
            if (kind is str and not value.isascii()) or (kind is float and not math.isfinite(value)):
                if (unsound := _first_unsound(event)) is not None:
                    return unsound
                break
        for key, longest in self._keys:
            characters = 0
            for name in key:
                value = event[name]
                characters += len(value) if type(value) is str else _DIGITS
            if (
                characters * _BYTES_PER_CHARACTER > longest  # else it is certainly short enough
                and len(entity_text([event[name] for name in key]).encode()) > longest
            ):
                return reasons.KEY_TOO_LONG
        for rule in self._rules:
            if evaluate(rule, event) is False:
                return reasons.BROKEN.format(rule=reasons.rule_text(rule))
        return None


def plain_check(
    fields: Iterable[EventField], keys: Iterable[tuple[Key, ...]], rules: Sequence[Expression]
) -> Callable[[Mapping[str, Any]], bool] | None:
    """Return a function that is true for an event that is certainly sound; None if there are rules.

    Such an event has all its values, short keys, text in ASCII and finite numbers. Of any other the function says
    nothing. Most events are such, and it takes a tenth of the time of `Soundness.flaw`.
    """
    if rules:
        return None
    conditions = [condition for field in fields for condition in _plain_conditions(field)]
    for key in keys:
        texts = [part.name for part in key if part.kind == "string"]
        room = longest_key(()) // _BYTES_PER_CHARACTER - _DIGITS * (len(key) - len(texts))
        conditions += [f"len(event[{name!r}]) <= {room // len(texts)}" for name in texts]
    # One expression of the event's own fields: a loop over them would take as long as the decoding.
    holds = eval("lambda event: " + " and ".join(conditions or ["True"]))  # of declared names only

    def is_plain(event: Mapping[str, Any]) -> bool:
        try:
            return holds(event)  # type: ignore[no-any-return] # made above
        except (TypeError, AttributeError):  # a value is missing
            return False

    return is_plain


def _plain_conditions(field: EventField) -> Iterator[str]:
    value = f"event[{field.name!r}]"
    if field.kind == "string" and not field.repeated:
        condition = f"{value}.isascii()"
    elif field.kind == "float" and not field.repeated:
        condition = f"{value} - {value} == 0.0"  # false for infinities, and for what is no number
    else:
        condition = "" if field.optional else f"{value} is not None"
    if condition:
        yield f"({value} is None or {condition})" if field.optional else condition


def untimely(event_us: int, log_us: int, *, lateness: int, future: int) -> Literal["late", "future"] | None:
    """Return whether an event came too late, or is stamped too far ahead of its log time; None if neither."""
    if event_us < log_us - lateness:
        return "late"
    return "future" if event_us > log_us + future else None


def _first_unsound(event: Mapping[str, Any]) -> str | None:
    """Return the reason of the first unsound field by name, so that every engine names the same field."""
    for name in sorted(event):
        if (reason := _unsound(event[name])) is not None:
            return reason.format(field=name)
    return None


def _unsound(value: Any) -> str | None:
    kind = type(value)
    if kind is str:
        return None if value.isascii() or _is_utf8(value) else reasons.NOT_UTF8
    return reasons.NOT_FINITE if kind is float and not math.isfinite(value) else None


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
