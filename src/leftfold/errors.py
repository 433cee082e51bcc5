"""Every error a person can meet, and the one shape they all have.

An error says what happened, why, which state things were left in, and the exact next command.
It is raised where it is found; codes are stable, documented in docs/reference/errors.md and checked against it.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Source:
    """Where a declaration stands."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{Path(self.file).name}:{self.line}"


# pydantic stands between an event's class statement and our hook.
_PASSED_OVER = frozenset({"leftfold", "pydantic"})


def caller() -> Source:
    """The nearest line outside this package: the declaration a person wrote."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _PASSED_OVER:
        frame = frame.f_back
    return Source(frame.f_code.co_filename, frame.f_lineno)


NOTHING_CHANGED = "nothing was changed"


class LeftfoldError(Exception):
    """The root of the tree. `code` never changes its meaning; `retriable` says that the same call may work later."""

    def __init__(
        self,
        code: str,
        what: str,
        *,
        why: str,
        fix: str,
        state: str = NOTHING_CHANGED,
        source: Source | None = None,
        retriable: bool = False,
    ) -> None:
        super().__init__(what)
        self.code = code
        self.what = what
        self.why = why
        self.state = state
        self.fix = fix
        self.source = source
        self.retriable = retriable

    def __reduce__(self) -> tuple[Any, ...]:
        """So that an error survives the way home from another process."""
        rest = {k: v for k, v in self.__dict__.items() if k not in ("code", "what")}
        return _remake, (type(self), self.code, self.what, rest)

    def __str__(self) -> str:
        at = f"   ({self.source})" if self.source else ""
        return f"error[{self.code}]: {self.what}{at}\n  why:   {self.why}\n  state: {self.state}\n  fix:   {self.fix}"

    def as_json(self) -> dict[str, Any]:
        return {
            "code": self.code,
            "what": self.what,
            "why": self.why,
            "state": self.state,
            "fix": self.fix,
            "source": str(self.source) if self.source else None,
            "retriable": self.retriable,
        }


def _remake(kind: type[LeftfoldError], code: str, what: str, rest: dict[str, Any]) -> LeftfoldError:
    return kind(code, what, **rest)


class DeclarationError(LeftfoldError):
    """What a person declared cannot mean anything, or not one thing."""


class ProjectError(LeftfoldError):
    """The project directory, its leftfold.toml or a profile is wrong."""


class LocalError(LeftfoldError):
    """The local cluster (jars, processes, ports) is not as it should be."""


class LogError(LeftfoldError):
    """Kafka or the registry refused or could not be reached."""


class DeliveryError(LogError):
    """Records that were handed to the producer and are not in the log."""


class StoreError(LeftfoldError):
    """The online store refused, could not be reached, or disagrees with the checkpoint."""


class RunError(LeftfoldError):
    """A view cannot be started or had to stop."""
