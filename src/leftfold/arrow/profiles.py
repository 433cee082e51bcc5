"""The profiles of a table's columns: the same that Spark makes in `spark.quality.profiles`.

Edges are exact quantiles here. Those of Spark are exact for up to 5,000 rows, and above that off by at most one rank
in 10,000.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from leftfold.fold.profiles import CELLS, FREQUENT, LONGEST, MISSING, Cells, ColumnKind, ColumnProfile, edges_of


def profiles_of(table: pa.Table, names: Iterable[str]) -> dict[str, ColumnProfile]:
    found = {}
    for name in names:
        if name in table.column_names and (kind := _kind(table.schema.field(name).type)) is not None:
            values = table.column(name).to_pylist()
            found[name] = _of_texts(values) if kind == "text" else _of_numbers(kind, values)
    return found


def _kind(data: pa.DataType) -> ColumnKind | None:
    if pa.types.is_integer(data) or pa.types.is_floating(data):
        return "number"
    if pa.types.is_string(data) or pa.types.is_boolean(data):
        return "text"
    return "length" if pa.types.is_list(data) else None


def _of_numbers(kind: ColumnKind, values: list[Any]) -> ColumnProfile:
    given = (float(len(value) if kind == "length" else value) for value in values if value is not None)
    numbers = sorted(number for number in given if not math.isnan(number))
    quantiles = [numbers[math.ceil(n / CELLS * len(numbers)) - 1] for n in range(1, CELLS)] if numbers else []
    edges = edges_of(quantiles)
    cells = Cells(kind, edges, numbers[0] if numbers else None, numbers[-1] if numbers else None)
    counted = Counter(bisect_left(edges, number) for number in numbers)
    return ColumnProfile.of(cells, {**counted, MISSING: len(values) - len(numbers)}, 0)


def _of_texts(values: list[Any]) -> ColumnProfile:
    texts = [_text(value)[:LONGEST] for value in values if value is not None]
    frequent = sorted(Counter(texts).items(), key=lambda item: (-item[1], item[0]))[:FREQUENT]
    cells = Cells("text", texts=tuple(text for text, _ in frequent))
    places = {text: place for place, text in enumerate(cells.texts)}
    counted = Counter(places.get(text, len(places)) for text in texts)
    return ColumnProfile.of(cells, {**counted, MISSING: len(values) - len(texts)}, counted[len(places)])


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
