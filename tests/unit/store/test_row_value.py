"""A row as one value, byte by byte."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leftfold.errors import StoreError
from leftfold.store.row_value import decoded, encoded, fields_in

ROWS = st.dictionaries(st.binary(max_size=255), st.binary(max_size=300), max_size=40)


@given(ROWS)
def test_there_and_back(row: dict[bytes, bytes]) -> None:
    assert decoded(encoded(row)) == row


def test_its_bytes() -> None:
    value = encoded({b"life": b"[1,2]", b"x": b""})
    assert value.hex() == "010200" + "0405000000" + "0100000000" + b"life[1,2]x".hex()
    assert fields_in(value) == [b"life", b"[1,2]", b"x", b""]


def test_a_value_of_a_later_release() -> None:
    with pytest.raises(StoreError, match="has version 2, this release reads 1"):
        decoded(b"\2" + encoded({})[1:])
