"""What an adopted declaration puts in the place of a choice that only a person can make."""

from __future__ import annotations

from typing import Any

from leftfold.errors import DeclarationError, caller


def undecided(what: str, why: str, fix: str) -> Any:
    """Refuses to load: a declaration with a guess in it would load, and be wrong without a word."""
    raise DeclarationError("undecided", what, why=why, fix=fix, source=caller())
