"""The texts that say why a record is not accepted. Spark and Python use the same texts."""

from __future__ import annotations

from leftfold.fold.expressions import Both, Compare, Expression, FieldRef, Length, from_micros

NO_VALUE = "no value"
NOT_FRAMED = "too short or not framed"
UNREADABLE_JSON = "undecodable JSON"
NOT_BY_BROKER = "stamped by its producer, not by a broker"
MISSING = "{field} is missing"
NOT_UTF8 = "{field} is not UTF-8"
KEY_TOO_LONG = "key too long"
NOT_FINITE = "{field} is not a finite number"
BROKEN = "breaks the rule {rule}"
# Texts with a number in the middle. They are pairs (before, after), so that an engine can insert the number.
UNREGISTERED = ("schema id ", " is not in the registry")
UNREADABLE_AVRO = ("undecodable under schema id ", "")
LATE = ("late by ", " s")
FUTURE = ("from the future by ", " s")


def with_number(parts: tuple[str, str], number: int) -> str:
    return f"{parts[0]}{number}{parts[1]}"


def rule_text(rule: Expression) -> str:
    """The text of an event's rule, as a user would write it."""
    match rule:
        case Compare(op, left, FieldRef(name)):
            return f"{left.name} {op} {name}"
        case Compare(op, left, right):
            moment = left.kind == "datetime" and isinstance(right, int)
            return f"{left.name} {op} {from_micros(right).isoformat() if moment else right}"  # type: ignore[arg-type] # as `moment` says
        case Length(op, field, bound):
            return f"length of {field.name} {op} {bound}"
        case Both(op, left_side, right_side):
            return f"({rule_text(left_side)} {op} {rule_text(right_side)})"
    raise TypeError(f"not a rule: {rule!r}")
