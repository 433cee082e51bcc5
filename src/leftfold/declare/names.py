"""Checks of the names of views and of their features."""

from __future__ import annotations

import re

from leftfold.declare.rows import RESERVED
from leftfold.errors import DeclarationError, SourceLine

_VIEW_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.-]{0,199}")
# Names of what runs in addition to views: the intake of a topic, the lake of a view, Leftfold's own tables. They share
# the checkpoints' directory and the lake with views.
_OURS = re.compile(r"leftfold\..*|.*\.(intake|lake)")


def snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def check_view_name(name: str, source: SourceLine) -> str:
    if not _VIEW_NAME.fullmatch(name):
        raise DeclarationError(
            "view-name",
            f"{name!r} cannot name a view",
            why="the name is part of store keys and of the checkpoint's path",
            fix="choose a name of letters, digits, '.', '_' and '-', for example user_activity",
            source=source,
        )
    if _OURS.fullmatch(name):
        raise DeclarationError(
            "view-name",
            f"{name!r} cannot name a view",
            why="leftfold.…, ….intake and ….lake are names of Leftfold's own queries and tables",
            fix="choose another name, for example user_activity",
            source=source,
        )
    return name


def check_name(view: str, name: str, source: SourceLine) -> None:
    if name in RESERVED or name.startswith("_"):
        raise DeclarationError(
            "reserved-name",
            f"{view}.{name} cannot be the name of a feature",
            why="a row that was read uses it for itself",
            fix=f"choose another name; taken are {', '.join(sorted(RESERVED))} and names that start with _",
            source=source,
        )
