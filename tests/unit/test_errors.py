"""The text of an error: which lines a person reads."""

from __future__ import annotations

import pytest

from leftfold.errors import LeftfoldError, name_known


def test_a_state_is_shown_if_something_was_changed() -> None:
    changed = LeftfoldError("c", "it failed", why="w", fix="f", state="batch 7 is committed")
    assert str(changed) == "error[c]: it failed\n  why:   w\n  state: batch 7 is committed\n  fix:   f"


def test_a_state_without_a_change_is_for_programs_only() -> None:
    refused = LeftfoldError("c", "it is refused", why="w", fix="f")
    assert str(refused) == "error[c]: it is refused\n  why:   w\n  fix:   f"
    assert refused.as_json()["state"] == "nothing was changed"


@pytest.mark.parametrize(
    ("name", "known", "fix"),
    [
        ("clics", ["items", "clicks"], "write clicks"),
        ("orders", ["items", "clicks"], "name one of items, clicks; or declare orders"),
        ("orders", ["clicks"], "name clicks; or declare orders"),
        ("orders", [], "declare orders"),
    ],
)
def test_a_misspelt_name_gets_the_nearest_one(name: str, known: list[str], fix: str) -> None:
    assert name_known(name, known, "or declare orders") == fix
