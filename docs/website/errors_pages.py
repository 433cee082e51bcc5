"""Pages of error codes: an overview, and the messages of each code on the page of its kind.

They are made of what `leftfold explain` prints, which `tests/golden` writes from errors that were really raised.
"""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import leftfold
from leftfold.cli import explained
from leftfold.cli.explained import ErrorText, Example
from leftfold.errors import is_change

OVERVIEW = "reference/errors.md"


@dataclass(frozen=True)
class Kind:
    """The errors of one class, and what was being done when they are met."""

    doing: str
    error_class: str
    errors: tuple[ErrorText, ...]

    @property
    def page(self) -> str:
        return f"reference/errors/{self.doing.lower().replace(' ', '-')}.md"

    @property
    def meaning(self) -> str:
        return inspect.getdoc(getattr(leftfold, self.error_class)) or ""


@cache
def kinds() -> tuple[Kind, ...]:
    """The kinds of errors, in the order of the reference."""
    texts = [explained.explanation(code) for codes in explained.headings().values() for code in codes]
    errors = [text for text in texts if isinstance(text, ErrorText)]
    found = {(error.met, error.kind): [e for e in errors if e.met == error.met] for error in errors}
    return tuple(Kind(doing, name, tuple(of)) for (doing, name), of in found.items())


def places() -> dict[str, str]:
    """The page and anchor of each error code."""
    return {error.code: f"{kind.page}#{error.code}" for kind in kinds() for error in kind.errors}


def pages(root: Path) -> dict[str, str]:
    """The overview, which has an anchor for each code too, and one page for each kind."""
    reference = (root / "docs" / OVERVIEW).read_text()
    return {OVERVIEW: _overview(reference[: reference.index("\n## ")]), **{kind.page: _page(kind) for kind in kinds()}}


def _overview(introduction: str) -> str:
    parts = [introduction]
    for kind in kinds():
        page = kind.page.removeprefix("reference/")
        rows = "".join(
            f"| [`{error.code}`]({page}#{error.code}){{: #{error.code} }} | {_cell(error.examples[0].what)} |\n"
            for error in kind.errors
        )
        meaning = f"{_class_link(kind, 'api/exceptions.md')}: {kind.meaning}"
        parts.append(f"\n## {kind.doing}\n\n{meaning}\n\n| code | for example |\n|---|---|\n{rows}")
    return "".join(parts)


def _page(kind: Kind) -> str:
    return (
        f"# Errors: {kind.doing}\n\n{_class_link(kind, '../api/exceptions.md')}: {kind.meaning} "
        "Names and numbers below are examples.\n" + "".join(_entry(error) for error in kind.errors)
    )


def _entry(error: ErrorText) -> str:
    retry = "\nRetriable: the same call may work later.\n" if error.retriable else ""
    return f"\n## `{error.code}` {{: #{error.code} }}\n{retry}" + "".join(_message(e) for e in error.examples)


def _message(example: Example) -> str:
    state = f"\n\nState\n:   {_text(example.state)}" if is_change(example.state) else ""
    return f"\n**{_text(example.what)}**\n\nWhy\n:   {_text(example.why)}{state}\n\nFix\n:   {_text(example.fix)}\n"


def _class_link(kind: Kind, page: str) -> str:
    return f"[`{kind.error_class}`]({page}#leftfold.{kind.error_class})"


def _text(message: str) -> str:
    """Show a message as it is. Only a word in backticks becomes code; those of a name in SQL stay."""
    parts = re.split(r"((?<![\w.])`[^`]+`)", message)
    return "".join(_escaped(part) if place % 2 == 0 else part for place, part in enumerate(parts))


def _escaped(text: str) -> str:
    return re.sub(r"([\\*_\[\]>#{}`])", r"\\\1", text).replace("<", "&lt;")


def _cell(message: str) -> str:
    return _text(message).replace("|", r"\|")
