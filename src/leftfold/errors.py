"""The classes of all errors that a user can meet, and their common shape.

An error says what happened, why, in which state things were left, and the exact next command.
It is raised where the problem is found. Codes are stable. A test checks them against docs/reference/errors.md.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar


@dataclass(frozen=True, slots=True)
class SourceLine:
    """The place of a declaration: its file and line."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{Path(self.file).name}:{self.line}"


# pydantic's frames lie between the class statement of an event and our hook.
_PASSED_OVER = frozenset({"leftfold", "pydantic"})


def caller() -> SourceLine:
    """The nearest line on the call stack outside this package and pydantic: the declaration that the user wrote."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _PASSED_OVER:
        frame = frame.f_back
    return SourceLine(frame.f_code.co_filename, frame.f_lineno)


K = TypeVar("K", bound=BaseException)


def behind(error: BaseException | None, kind: type[K]) -> K | None:
    """Return the first exception of a kind in an error's chain of causes, beginning with the error itself.

    Libraries wrap the exceptions that they meet, so the real cause is often deeper in the chain.
    """
    while error is not None and not isinstance(error, kind):
        error = error.__cause__ or error.__context__
    return error


NOTHING_CHANGED = "nothing was changed"
# A fix has parts, separated by "; ". One that is only for engines outside of the local cluster begins with ELSEWHERE,
# one that is only for the local cluster with one of its verbs.
ELSEWHERE = "if it runs elsewhere: "
_LOCAL = ("leftfold up", "leftfold down", "leftfold logs", "leftfold reset")


def start_or_check(settings: str) -> str:
    """Return the fix for an engine that does not answer. The command line keeps what fits the profile at hand."""
    return f"leftfold status shows what runs; leftfold up starts the local cluster; {ELSEWHERE}check {settings}"


def fitting(fix: str, profile: str, *, elsewhere: bool) -> str:
    """Return a fix for one profile: it names that profile's settings, and only engines that the profile has."""
    parts = fix.split("; ")
    kept = [part for part in parts if not part.startswith(_LOCAL if elsewhere else ELSEWHERE)] or parts
    return "; ".join(part.removeprefix(ELSEWHERE) for part in kept).replace(
        " of the profile", f" in [profile.{profile}]"
    )


def nearest(name: str, known: Collection[str]) -> str | None:
    """Return the known name that a misspelt name most likely stands for."""
    return next(iter(difflib.get_close_matches(name, known, n=1)), None)


def name_known(name: str, known: Collection[str], otherwise: str) -> str:
    """Return the fix for an unknown name: the nearest known one, or else all of them, or what to do `otherwise`."""
    if (near := nearest(name, known)) is not None:
        return f"write {near}"
    one_of = "one of " if len(known) > 1 else ""
    return f"name {one_of}{', '.join(known)}; {otherwise}" if known else otherwise.removeprefix("or ")


def is_change(state: str) -> bool:
    """Return whether a state is worth a line for a user: something was changed, or may have been."""
    return state != NOTHING_CHANGED


class LeftfoldError(Exception):
    """The base of all errors. `code` never changes its meaning; `retriable` says that the same call may work later.

    `details` holds figures about the state, for programs. Only some errors have details. The class of such an error, or
    the place that raises it, says which ones.
    """

    def __init__(
        self,
        code: str,
        what: str,
        *,
        why: str,
        fix: str,
        state: str = NOTHING_CHANGED,
        source: SourceLine | None = None,
        retriable: bool = False,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(what)
        self.code = code
        self.what = what
        self.why = why
        self.state = state
        self.fix = fix
        self.source = source
        self.retriable = retriable
        self.details = dict(details or {})

    def __reduce__(self) -> tuple[Any, ...]:
        """Make the error picklable, so that it can be sent from another process."""
        rest = {k: v for k, v in self.__dict__.items() if k not in ("code", "what")}
        return _remake, (type(self), self.code, self.what, rest)

    def __str__(self) -> str:
        at = f"   ({self.source})" if self.source else ""
        state = f"\n  state: {self.state}" if is_change(self.state) else ""
        return f"error[{self.code}]: {self.what}{at}\n  why:   {self.why}{state}\n  fix:   {self.fix}"

    def as_json(self) -> dict[str, Any]:
        return {
            "code": self.code,
            "what": self.what,
            "why": self.why,
            "state": self.state,
            "fix": self.fix,
            "source": str(self.source) if self.source else None,
            "retriable": self.retriable,
            "details": self.details,
        }


def _remake(kind: type[LeftfoldError], code: str, what: str, rest: dict[str, Any]) -> LeftfoldError:
    return kind(code, what, **rest)


class DeclarationError(LeftfoldError):
    """A declaration that has no meaning, or more than one."""


class ProjectError(LeftfoldError):
    """The project directory, its leftfold.toml or a profile is wrong."""


class LocalError(LeftfoldError):
    """The local cluster (jars, processes, ports) is not as it should be."""


class LogError(LeftfoldError):
    """Kafka or the registry refused or could not be reached."""


class DeliveryError(LogError):
    """Not all records that were handed to a producer were acknowledged.

    A record that *failed* is not in the log. A record that is *unknown* may be in the log: if it is sent again, the log
    could hold it twice. `details` counts the records: `acknowledged`, `failed`, `unknown`, `under_way`. It also holds
    the keys of the first failed and unknown records: `failed_keys`, `unknown_keys`.
    """


class StoreError(LeftfoldError):
    """The online store refused, could not be reached, or disagrees with the checkpoint."""


class RunError(LeftfoldError):
    """A view cannot be started or had to stop."""
