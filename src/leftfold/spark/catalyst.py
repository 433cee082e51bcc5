"""The algebra's conditions, formulas and values as Catalyst expressions: the same meaning, the same results."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from operator import and_, or_

from pyspark.sql import Column
from pyspark.sql import functions as F

from leftfold.fold import derived, expressions
from leftfold.fold.definition import Key
from leftfold.fold.derived import Arithmetic, Constant, Node, Value
from leftfold.fold.expressions import Both, Compare, Expression, FieldRef, Length
from leftfold.fold.values import Kind


def condition(expression: Expression, prefix: str) -> Column:
    """A condition as a column. Fields are columns whose names start with `prefix`."""
    match expression:
        case Compare(op, left, None):
            column = F.col(prefix + left.name)
            return column.isNull() if op == "=" else column.isNotNull()
        case Compare(op, left, right):
            other = F.col(prefix + right.name) if isinstance(right, FieldRef) else F.lit(right)
            compared: Column = expressions.COMPARE[op](F.col(prefix + left.name), other)
            return compared
        case Length(op, field, bound):
            measured: Column = expressions.COMPARE[op](F.char_length(F.col(prefix + field.name)), F.lit(bound))
            return measured
        case Both(op, left_side, right_side):
            sides = (condition(left_side, prefix), condition(right_side, prefix))
            return reduce(and_ if op == "and" else or_, sides)
    raise TypeError(f"not an expression: {expressions.to_json(expression)!r}")


def formula(node: Node, values: Mapping[str, Column], kinds: Mapping[str, Kind]) -> Column:
    """A derived feature as a column. `values` are the columns of the features that it may use."""
    match node:
        case Value(name):
            return values[name]
        case Constant(value):
            return F.lit(value).cast("double" if isinstance(value, float) else "long")
        case Arithmetic(op, left, right):
            sides = [formula(side, values, kinds) for side in (left, right)]
            if derived.kind_of(node, kinds) == "int":
                return {"+": F.try_add, "-": F.try_subtract, "*": F.try_multiply}[op](*sides)
            a, b = (side.cast("double") for side in sides)
            result = {"+": a + b, "-": a - b, "*": a * b, "/": F.try_divide(a, b)}[op]
            return F.when(~F.isnan(result) & (F.abs(result) != F.lit(float("inf"))), result)
    raise TypeError(f"not a derived feature: {derived.to_json(node)!r}")


def entity(keys: tuple[Key, ...], prefix: str, parts: Mapping[str, Column] | None = None) -> Column:
    """The text of an entity, the same as fold.values.entity_text.

    The key's parts are columns whose names start with `prefix`, or come from `parts`, by the keys' names.
    """
    texts = [(F.col(prefix + k.name) if parts is None else parts[k.name]).cast("string") for k in keys]
    if len(texts) == 1:
        return texts[0]
    return F.concat(*(part for t in texts for part in (F.octet_length(t).cast("string"), F.lit(":"), t)))


def plain(field: Column, kind: Kind, *, repeated: bool = False) -> Column:
    """A field as the algebra sees it: times in microseconds, everything else as it is."""
    if kind != "datetime":
        return field
    return F.transform(field, F.unix_micros) if repeated else F.unix_micros(field)


def json_text(name: str, kind: Kind, *, repeated: bool = False) -> str:
    """SQL for the JSON text of a column that `plain` returned. Spark has no function that quotes a bare string."""
    if repeated:
        return f"coalesce(to_json({name}), 'null')"
    if kind == "string":
        quoted = f"to_json(named_struct('v', {name}))"  # {"v":"…"}
        return f"if({name} is null, 'null', substring({quoted}, 6, length({quoted}) - 6))"
    return f"coalesce(cast({name} as string), 'null')"
