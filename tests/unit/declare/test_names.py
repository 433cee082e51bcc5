from __future__ import annotations

import pytest

from leftfold.declare.names import check_name, check_view_name, snake
from leftfold.declare.rows import RESERVED
from leftfold.errors import DeclarationError, SourceLine

HERE = SourceLine(__file__, 1)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("UserActivity", "user_activity"), ("HTTPCalls", "http_calls"), ("A", "a"), ("Views7d", "views7d")],
)
def test_snake(name: str, expected: str) -> None:
    assert snake(name) == expected


@pytest.mark.parametrize("name", ["a:b", "../up", "a b", "", "é", "a/b", "_a", "a" * 201, "a\n"])
def test_what_cannot_name_a_view(name: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        check_view_name(name, HERE)
    assert caught.value.code == "view-name"


@pytest.mark.parametrize("name", ["clicks.intake", "v.lake", "leftfold.receipts"])
def test_a_name_of_our_own_queries_cannot(name: str) -> None:
    """The view would share a checkpoint or a table with one of them."""
    with pytest.raises(DeclarationError) as caught:
        check_view_name(name, HERE)
    assert caught.value.code == "view-name"


@pytest.mark.parametrize("name", ["a", "user_activity", "shop.users-v2", "7d", "a" * 200])
def test_what_can(name: str) -> None:
    assert check_view_name(name, HERE) == name


@pytest.mark.parametrize("name", [*sorted(RESERVED), "_n", "__n"])
def test_what_a_row_uses_for_itself(name: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        check_name("V", name, HERE)
    assert caught.value.code == "reserved-name"
