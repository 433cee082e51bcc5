"""Adapts the fix of an error to the profile at hand: commands name the profile, and other engines' parts are left out.

An error is raised where the problem is found, and that place knows no profile. The command line does.
"""

from __future__ import annotations

import re
from typing import TypeVar

import click

from leftfold.cli.output import PROFILE
from leftfold.errors import LeftfoldError, ProjectError, fitting

# Verbs that take no profile: they are about this machine, or about no cluster. A test compares both with the verbs.
WITHOUT_PROFILE = frozenset({"init", "up", "down", "logs", "reset", "explain"})
GROUPS = frozenset({"archive", "dead", "position", "rejects", "render"})
LOCAL = "local"
_COMMAND = re.compile(rf"\bleftfold ((?:{'|'.join(sorted(GROUPS))}) [a-z]+|[a-z-]+)(?= |$|[,;:.)])(?! --profile)")

E = TypeVar("E", bound=LeftfoldError)


def for_profile(error: E) -> E:
    """Adapt an error's fix to the profile of the command under way, and return the error."""
    meta = click.get_current_context().meta
    if PROFILE in meta and (at_hand := _at_hand(meta[PROFILE])) is not None:
        name, elsewhere = at_hand
        error.fix = fix_for(error.fix, name, elsewhere=elsewhere)
    return error


def fix_for(fix: str, profile: str, *, elsewhere: bool) -> str:
    """Return a fix that speaks of the engines of the profile only. Unless it is the local one, commands name it."""
    fix = fitting(fix, profile, elsewhere=elsewhere)
    return fix if profile == LOCAL else _COMMAND.sub(lambda found: _named(found, profile), fix)


def _named(found: re.Match[str], profile: str) -> str:
    from leftfold.cli.main import VERBS

    verb = found[1].partition(" ")[0]
    takes = verb in VERBS and verb not in WITHOUT_PROFILE
    return f"{found[0]} --profile {profile}" if takes else found[0]


def _at_hand(asked: str | None) -> tuple[str, bool] | None:
    """Return the profile's name, and whether its engines are elsewhere; None if it is not known."""
    from leftfold.project import environment_of, find_root, read_document

    try:
        root = find_root()
        profiles = read_document(root).get("profile", {})
        name = asked or environment_of(root).get("LEFTFOLD_PROFILE") or LOCAL
    except ProjectError:  # this is what the error says
        return None
    if name != LOCAL and name not in profiles:
        return None
    settings = profiles.get(name)
    return name, isinstance(settings, dict) and "kafka" in settings
