"""A row as one value, byte by byte."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leftfold.errors import StoreError
from leftfold.store.row_value import decoded, encoded, fields_in

ROWS = st.dictionaries(st.binary(max_size=300), st.binary(max_size=300), max_size=40)


@given(ROWS)
def test_there_and_back(row: dict[bytes, bytes]) -> None:
    assert decoded(encoded(row)) == row


def test_its_bytes() -> None:
    value = encoded({b"life": b"[1,2]", b"x": b""})
    assert value.hex() == "0102000000" + "040005000000" + "010000000000" + b"life[1,2]x".hex()
    assert fields_in(value) == [b"life", b"[1,2]", b"x", b""]


def test_a_ledger_of_the_longest_topic_and_many_partitions() -> None:
    row = {f"{'t' * 249}/{partition}:accepted".encode(): b"1:2:3:4" for partition in range(70_000)}
    assert decoded(encoded(row)) == row


def test_a_value_of_a_later_release() -> None:
    with pytest.raises(StoreError, match="has version 2, this release reads 1"):
        decoded(b"\2" + encoded({})[1:])
