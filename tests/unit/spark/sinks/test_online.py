"""Rows as they are sent to the store, from arrays that Spark has sorted and framed."""

from __future__ import annotations

from itertools import groupby, pairwise
from operator import itemgetter
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from leftfold.spark.sinks.online import framed_rows
from leftfold.store.engine import FramedRow
from leftfold.store.frames import framed, framed_row

TILES = st.lists(st.tuples(st.text(max_size=3), st.text(max_size=5), st.text(max_size=9)), max_size=40)


def plain(rows: Any) -> list[FramedRow]:
    return [FramedRow(row.entity, row.tiles, bytes(row.frames)) for row in rows]


@pytest.mark.parametrize("text", [pa.string(), pa.large_string()])
@given(TILES, st.data())
def test_rows_are_the_same_however_arrays_are_cut(text: Any, tiles: list[tuple[str, str, str]], data: Any) -> None:
    tiles.sort(key=itemgetter(0))
    entities = pa.array([entity for entity, _, _ in tiles], text)
    frames = pa.array([(framed(n.encode()) + framed(v.encode())).decode() for _, n, v in tiles], text)
    cuts = [0, *sorted(data.draw(st.lists(st.integers(0, len(tiles)), max_size=4))), len(tiles)]
    arrays = [(entities[a:b], frames[a:b]) for a, b in pairwise(cuts)]
    expected = []
    for entity, group in groupby(tiles, key=itemgetter(0)):
        some = list(group)
        expected.append(framed_row(entity, [name for _, name, _ in some], [value for *_, value in some]))
    assert plain(framed_rows(arrays)) == expected
