"""The text behind each error and hazard code, as the reference has it. It is read from a file of the package, offline.

`explained.json` is written by the run of `tests/golden` that writes docs/reference/errors.md, and compared by the same
test. It is never edited by hand.
"""

from __future__ import annotations

import difflib
import json
import re
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from leftfold.errors import ProjectError

DATA = Path(__file__).with_name("explained.json")
_SHOWN = 5  # nearest codes: more of them are no help


@dataclass(frozen=True)
class Example:
    """One real message of an error. A code that is raised in several places has several."""

    what: str
    why: str
    state: str
    fix: str


@dataclass(frozen=True)
class ErrorText:
    """An error code: when it is met, and its messages."""

    code: str
    kind: str  # the class, as Python code catches it
    met: str  # what was being done: a heading of docs/reference/errors.md
    retriable: bool
    examples: tuple[Example, ...]

    def as_json(self) -> dict[str, Any]:
        return {"type": "error", **asdict(self)}


@dataclass(frozen=True)
class HazardText:
    """A hazard code, and its section of docs/reference/hazards.md."""

    code: str
    text: str

    def as_json(self) -> dict[str, Any]:
        return {"type": "hazard", **asdict(self)}


def explanation(asked: str) -> ErrorText | HazardText:
    """Return the text of a code. It may also be asked for as it is printed: error[CODE]."""
    printed = re.fullmatch(r"(?:error|danger|warning|note)\[(.+)\]:?", asked)
    code = printed[1] if printed else asked
    errors, hazards = _codes()
    if code in errors:
        return errors[code]
    if code in hazards:
        return hazards[code]
    raise _unknown(code, (*errors, *hazards))


def headings() -> dict[str, list[str]]:
    """Return all codes under the headings of the reference."""
    errors, hazards = _codes()
    by_heading: dict[str, list[str]] = {}
    for error in errors.values():
        by_heading.setdefault(f"{error.met} ({error.kind})", []).append(error.code)
    return by_heading | {"Hazards": list(hazards)}


@cache
def _codes() -> tuple[dict[str, ErrorText], dict[str, HazardText]]:
    read = json.loads(DATA.read_text(encoding="utf-8"))
    errors = {
        code: ErrorText(code, of["kind"], of["met"], of["retriable"], tuple(Example(**e) for e in of["examples"]))
        for code, of in read["errors"].items()
    }
    return errors, {code: HazardText(code, text) for code, text in read["hazards"].items()}


def _unknown(code: str, codes: tuple[str, ...]) -> ProjectError:
    words = {word for word in code.split("-") if len(word) > 3}
    sharing = [known for known in codes if words & set(known.split("-"))]
    near = dict.fromkeys([*difflib.get_close_matches(code, codes, n=_SHOWN, cutoff=0.6), *sharing])
    return ProjectError(
        "unknown-code",
        f"there is no error or hazard with the code {code!r}",
        why=f"codes like it are {', '.join(list(near)[:_SHOWN])}" if near else "no code is like it",
        fix=f"leftfold explain {next(iter(near))}" if near else "leftfold explain lists all codes",
    )
