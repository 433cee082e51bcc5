"""A project directory: finds its leftfold.toml, and reads the file and the requested profile."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Any

from dotenv import dotenv_values
from pydantic import BaseModel, ValidationError

from leftfold.errors import ProjectError, name_known, nearest
from leftfold.settings import Kafka, OnlineStore, Profile, Registry, Spark, resolve_environment

FILE = "leftfold.toml"


def find_root(start: Path | None = None) -> Path:
    """Find the nearest directory that holds a leftfold.toml: `start` itself or one above it.

    A project's Python code is run. So a project above `start` that another user put there is refused. `start` itself is
    not checked, because the user chose it.
    """
    start = (start or Path.cwd()).resolve()
    for directory in (start, *start.parents):
        if (directory / FILE).is_file():
            if directory != start:
                _check_owner(directory)
            return directory
    raise ProjectError(
        "no-project",
        f"there is no {FILE} in {start} or above it",
        why="a project is a directory with that file",
        fix="cd into a project, or make one: leftfold init shop",
    )


def _check_owner(directory: Path) -> None:
    """Refuse a project unless its file and directory belong to this user, to root, or to the user behind sudo."""
    mine = {os.geteuid(), 0}
    if os.geteuid() == 0 and os.environ.get("SUDO_UID", "").isdigit():
        mine.add(int(os.environ["SUDO_UID"]))
    for path in (directory / FILE, directory):
        if (owner := path.lstat().st_uid) not in mine:  # lstat: the owner of the link, as anybody can link to your file
            raise ProjectError(
                "project-not-yours",
                f"{path} belongs to another user",
                why=f"its owner is the user {owner}, and the Python that it names would run as you",
                fix=f"cd {directory}, if you trust what is there: a project is taken from above only if it is yours",
            )


def read_document(root: Path) -> dict[str, Any]:
    """Read leftfold.toml, and check everything in it except the settings of its profiles."""
    try:
        document = tomllib.loads((root / FILE).read_text())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ProjectError(
            "bad-toml",
            f"{FILE} cannot be read: {error}",
            why="it is not valid TOML",
            fix="correct that line",
        ) from error
    project = document.get("project")
    shaped = (
        isinstance(project, dict)
        and set(project) == {"name", "declarations"}
        and isinstance(project["name"], str)
        and isinstance(project["declarations"], list)
        and all(isinstance(file, str) for file in project["declarations"])
        and isinstance(document.get("profile", {}), dict)
    )
    if not shaped or set(document) - {"project", "profile"}:
        raise ProjectError(
            "bad-project",
            f"{FILE} needs [project] with name and declarations, and holds otherwise only [profile.NAME]",
            why="these say what the project is called and which Python files declare its events and views",
            fix='write [project], name = "shop", declarations = ["streams.py"]',
        )
    return document


def environment_of(root: Path) -> dict[str, str]:
    """The environment variables of a project: those of this process, and for others what its .env says."""
    return {**{k: v or "" for k, v in dotenv_values(root / ".env").items()}, **os.environ}


# The engines of a profile. It has all three of its own, or uses those of the local cluster.
_ENGINES = ("kafka", "registry", "online")


def read_profile(root: Path, document: dict[str, Any], asked: str | None, *, secrets: bool) -> Profile:
    """Read the requested profile, else the one that LEFTFOLD_PROFILE names, else `local`.

    With `secrets=False` an environment variable that is not set stays "env:NAME".
    """
    environment = environment_of(root)
    name = asked or environment.get("LEFTFOLD_PROFILE") or "local"
    profiles = document.get("profile", {})
    if name not in (known := sorted({"local", *profiles})):
        raise ProjectError(
            "unknown-profile",
            f"{FILE} has no [profile.{name}]",
            why=f"it has {', '.join(known)}",
            fix=name_known(name, known, f"or add [profile.{name}] to {FILE}"),
        )
    missing: list[str] = []
    settings = resolve_environment(profiles.get(name, {}), environment, missing)
    if missing and not secrets:
        unset = {variable: f"env:{variable}" for variable in missing}
        settings = resolve_environment(profiles.get(name, {}), {**environment, **unset}, [])
    elif missing:
        raise ProjectError(
            "environment-missing",
            f"profile {name} needs the environment variable {missing[0]}",
            why=f'{FILE} says "env:{missing[0]}", and neither the environment nor .env has it',
            fix=f"export {missing[0]}=..., or put it into .env",
        )
    try:
        profile = Profile.model_validate({**settings, "name": name} if isinstance(settings, dict) else settings)
    except ValidationError as error:
        first = error.errors(include_input=False)[0]
        where, unknown = ".".join(str(part) for part in first["loc"]), first["type"] == "extra_forbidden"
        raise _bad_profile(name, where, None if unknown else first["msg"][0].lower() + first["msg"][1:]) from error
    if "name" in settings:
        raise _bad_profile(name, "name", None)
    named = [part for part in _ENGINES if getattr(profile, part) is not None]
    if profile.online is not None and profile.online.is_local_postgres:  # part of the local cluster
        named.remove("online")
    if named and len(named) < 3:
        lacking = " and ".join(part for part in _ENGINES if part not in named)
        raise ProjectError(
            "half-profile",
            f"{FILE}: [profile.{name}] has {' and '.join(named)}, and lacks {lacking}",
            why="the records, schemas and features of a profile belong together: the local cluster has none of its "
            "schemas and features",
            fix=f"add {lacking} to [profile.{name}], or remove {' and '.join(named)} to use the local cluster",
        )
    return profile


def _bad_profile(name: str, where: str, message: str | None) -> ProjectError:
    """The error for a setting with a wrong value, or, without a message, for one that does not exist."""
    table, dot, setting = where.rpartition(".")
    if message is not None:
        what, fix = message, f"correct the value of {where}" if where else f"write [profile.{name}] as a table"
    else:
        names, of = _settings(table), f" of {table}" if table else ""
        near = nearest(setting, names)
        what = "there is no such setting"
        fix = f"write {table}{dot}{near}" if near else f"remove {where}; the settings{of} are {', '.join(names)}"
    return ProjectError(
        "bad-profile",
        f"{FILE}: [profile.{name}] {where or 'as a whole'}: {what}",
        why="Leftfold would have to ignore or to guess a setting that is unknown or has a wrong value",
        fix=fix,
    )


def _settings(table: str) -> list[str]:
    """The names of the settings in a table of a profile; those of the profile itself if the text is empty."""
    tables: dict[str, type[BaseModel]] = {"kafka": Kafka, "registry": Registry, "online": OnlineStore, "spark": Spark}
    return [name for name in tables.get(table, Profile).model_fields if name != "name"]
