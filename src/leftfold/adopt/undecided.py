"""The placeholder in an adopted declaration for a choice that only the user can make."""

from __future__ import annotations

from typing import Any

from leftfold.errors import DeclarationError, caller


def undecided(what: str, why: str, fix: str) -> Any:
    """Raise, so that the declaration does not load. With a guess instead, it would load and be silently wrong."""
    raise DeclarationError("undecided", what, why=why, fix=fix, source=caller())
