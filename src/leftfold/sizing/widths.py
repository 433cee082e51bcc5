"""The bytes of a row of state, of a tile in the store and of a row's name, computed from a view's definition.

These are sizes before compression, and without what the engines add. Both are measured, as constants of the model.
"""

from __future__ import annotations

from leftfold.fold.columns import Column
from leftfold.fold.definition import Definition
from leftfold.fold.durations import SECOND
from leftfold.fold.latest import Latest
from leftfold.fold.values import Kind

# The assumed length of a text (a key, a value) if nothing is known of it.
TEXT = 12
# The digits of the position that the state of last_n stores before each value (spark/views/tiles.py).
_PLACE = 34
# The length of a build in the name of a row: a fingerprint and the start of a checkpoint's id (store/layout.py).
_BUILD = 21
# A past read reaches so far back, and to the edge of the longest step.
_PAST = 25 * 3_600 * SECOND
# The digits of numbers in a tile's text: its index (5-minute tiles since 1970 have 7 digits), a batch, a count, and a
# sum in units.
_INDEX, _BATCH, _COUNT, _SUM = 7, 6, 2, 6
_SCALARS: dict[Kind, int] = {"int": 5, "float": 6, "bool": 5, "datetime": 16, "string": TEXT + 2, "bytes": TEXT + 2}


def state_row(definition: Definition) -> int:
    """The bytes of a state row in Spark's own row format: 8 for each field, a bit set, and texts padded to 8."""
    key = 8 + 3 * 8 + _padded(TEXT * len(definition.keys))
    own = sum(_state_column(c) for c in definition.columns)
    return key + 8 + own + 4 * 8  # the last four: records, newest log time, newest event time, newest offset


def _state_column(column: Column) -> int:
    text = _padded(TEXT) if column.kind in ("string", "bytes") else 0
    match column.aggregate:
        case "sum":
            return 8 + 16 + 8  # a decimal, and a flag for empty
        case "last":
            return 8 + text + 8 + 4 * 8  # the value, and its position
        case "last_n":
            return 16 + column.size * (16 + _padded(_PLACE + TEXT))
        case "distinct":
            return 48 + (1 << column.size)
        case _:
            return 8 + text


def tile_text(definition: Definition, step: int, events: float | None = None) -> float:
    """The bytes of the field and value of one tile in the store. Step 0 is the tile of all time.

    Without the number of its `events`, what it can have at most.
    """
    field = len("life") if step == 0 else len(f"{step // SECOND}:{definition.rings[step] - 1}")
    index = _SCALARS["datetime"] if step == 0 else _INDEX
    return field + value_text(definition, events, index)


def value_text(definition: Definition, events: float | None = None, index: int = _INDEX) -> float:
    return 2 + index + 1 + _BATCH + sum(1 + _partial_text(c, events) for c in definition.columns)


def _partial_text(column: Column, events: float | None) -> float:
    one = _SCALARS[column.kind]
    match column.aggregate:
        case "count":
            return _COUNT
        case "sum":
            return _SUM
        case "last_n":
            return 2 + (column.size if events is None else min(events, column.size)) * (one + 1)
        case "distinct":
            return 2 + 4 * _sketch(column, events) / 3  # base64
        case _:
            return one


def _sketch(column: Column, events: float | None) -> float:
    """The bytes of a sketch: a list of what it was given, as long as these are few."""
    most = (1 << column.size) + 40
    return most if events is None else min(8 + 4 * events, most)


def packed_tile(definition: Definition, events: float | None) -> float:
    """The bytes of a tile in the packed field of a row. Without the number of its `events`, what it can have at most.

    Each column takes the smallest width for its numbers, and a text is there once for all tiles. Of tiles that no past
    read reaches, minima, last values and the like are mostly left out (store/packing.py).
    """
    if events is None:
        return 1 + sum(map(_most_packed, definition.columns))
    young = min(1, _PAST / (definition.longest_window or _PAST))
    return 1 + sum(_packed_column(c, events, young) for c in definition.columns)


def _packed_column(column: Column, events: float, young: float) -> float:
    width = {"int": 1, "bool": 1, "float": 2, "datetime": 4}.get(column.kind, 2)
    match column.aggregate:
        case "count":
            return 0.5
        case "sum":
            return width
        case "last_n":
            return 0.5 + young * min(events, column.size)
        case "distinct":
            return 0.5 + min(4 * events, (1 << column.size) + 40)
        case _:
            text = TEXT + 1 if column.kind == "string" else 0
            return 0.125 + young * (width + text)


def answers(definition: Definition, events: float | None) -> float:
    """The bytes of the merged answers in the packed field. `events` are those of the longest window."""
    wanted = {(f.window, f.step, number) for f in definition.windowed if f.window is not None for number in f.columns}
    found = 0.0
    for window, _, number in wanted:
        column, inside = definition.columns[number], events and events * window / definition.longest_window
        found += 2 if column.aggregate == "distinct" else 1 + _partial_text(column, inside)  # these have no answer
    return found


def _most_packed(column: Column) -> float:
    """A number takes 8 bytes at most, and a text its place and itself."""
    text = 2 + TEXT
    match column.aggregate:
        case "last_n":
            return 2 + column.size * (text if column.kind == "string" else 8)
        case "distinct":
            return 2 + (1 << column.size) + 40
        case _:
            return text if column.kind == "string" else 8


def row_text(latest: Latest) -> int:
    """The bytes of the field and value of the one row that a table keeps for a key."""
    columns = sum(1 + _SCALARS[c.kind] * (3 if c.repeated else 1) for c in latest.columns)
    return len("row") + 2 + _INDEX + 1 + _BATCH + columns


def row_name(view: str, namespace: str, keys: int) -> int:
    return len(f"lf:{namespace}:row:{view}:") + _BUILD + 1 + TEXT * keys


def _padded(length: int) -> int:
    return -(-length // 8) * 8
