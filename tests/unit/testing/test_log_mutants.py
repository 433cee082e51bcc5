"""Every seeded fault of the model is noticed, by its checks or by a recorded history of real brokers."""

from __future__ import annotations

import pytest

from tests.unit.testing.log_checks import CHECKS
from tests.unit.testing.mutants import MUTANTS
from tests.unit.testing.packages import changed


def noticed_by(file: str, old: str, new: str) -> str | None:
    """Return the first check that a mutant fails; None if it survives."""
    with changed(file, old, new) as mutant:
        for check in CHECKS:
            try:
                check(mutant)
            except Exception:  # noqa: BLE001 # a mutant may fail in any way
                return check.__name__
    return None


def test_there_are_at_least_fifty() -> None:
    assert len({name for name, *_ in MUTANTS}) == len(MUTANTS) >= 50


@pytest.mark.parametrize(("file", "old", "new"), [m[1:] for m in MUTANTS], ids=[m[0] for m in MUTANTS])
def test_a_mutant_is_noticed(file: str, old: str, new: str) -> None:
    assert noticed_by(file, old, new) is not None


def test_the_copy_itself_is_no_mutant() -> None:
    """Else mutants would be noticed because they are copies."""
    assert noticed_by("replicas.py", "_REMEMBERED = 5 ", "_REMEMBERED = 5  ") is None
