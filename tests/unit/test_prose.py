"""Docstrings begin with a noun or a verb, so that each can be understood by itself. A class name means one thing.

Pages for users avoid phrases that readers stumble over, and list what does not exist in one place.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "src" / "leftfold"
# A docstring that begins so has lost its noun, or continues the text above it.
NOT_FIRST = ("Of", "What", "How", "Whether", "Where", "That", "Those", "...", "…")
# The help texts of commands say what a user does.
SOURCES = [path for path in sorted(PACKAGE.rglob("*.py")) if "template" not in path.relative_to(PACKAGE).parts]


def docstrings(path: Path) -> list[tuple[int, str]]:
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, kinds)]
    return [(getattr(node, "lineno", 1), text) for node in nodes if (text := ast.get_docstring(node))]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_docstring_begins_with_its_noun_or_a_verb(path: Path) -> None:
    wrong = [(line, text) for line, text in docstrings(path) if text.split()[0].rstrip(":,") in NOT_FIRST]
    assert wrong == []


def test_no_two_public_classes_share_a_name() -> None:
    places: dict[str, list[str]] = {}
    for path in SOURCES:
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(str(path.relative_to(PACKAGE)))
    assert {name: files for name, files in places.items() if len(files) > 1} == {}


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_every_module_says_what_it_owns(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text()))


# Prose of pages ------------------------------------------------------------------------------------------------------

ROOT = Path(__file__).parents[2]
ROOMS = ("guide", "operate", "reference", "start")
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted(page for room in ROOMS for page in (ROOT / "docs" / room).glob("*.md")),
    *sorted((ROOT / "examples").glob("*/README.md")),
]
# These are made from the code, whose words they quote.
QUOTED = {"errors.md"}
# What readers stumbled over, and what to write instead.
PHRASES = {
    r"(is|are|was|were) no records?\b": "malformed",
    r"\bfor ever\b": "indefinitely, permanently; of a thing that never changes: never",
    r"\b(makes?|made|making) (it |them )?again\b": "reproduced, recreated, created again",
    r"\b(in|into) (the|their|its) places?\b( of)?": "replaces, instead of",
    r"\bno part of\b": "does not affect, does not belong to",
    r"\b(go|goes|went|gone|going) on\b": "continues",
    r"\btells\b(?![^.;]* apart)": "reports, shows, says",
    r"\b(is|are|was|were|be|been|unless|until) told\b(?![^.;]* apart)": "reports, names; by default; unless you say so",
    r"\brests? on\b": "depends on, is computed from",
    r"\btruth values?\b": "boolean",
    r"\bwhole numbers?\b": "integer",
    r"\bst(and|ands|ood) (in|there|at|on|under|below|beside|behind|next|where)\b": "is in, is written in, is at",
    r"\bl(ie|ies|ay) (in|on|at|behind|before|below|beside|under)\b": "is in, is at, is before",
    r"\bmade[- ]up\b": "generated, synthetic, simulated",
    r"\bdice\b": "random numbers",
    r"\b(come|comes|came) to it\b": "reaches it, reads it",
    r"\botherwise than\b": "differently from",
    r"\bgive or take\b": "to within",
    r"\banew\b": "again, from the start",
    r"\bbrooms?\b": "state cleanup, the watermark",
    r"\bre-driv|\bre-drove": "redrive, redriven: one spelling, that of the command",
}
# What does not exist or was not tested is in docs/status.md, which other pages link to: two lists would disagree.
LIMITS = {
    r"\bso far\b": "docs/status.md",
    r"\bnot( there)? yet\b": "docs/status.md",
    r"\b(has|have|been) (not )?(been )?tested\b": "docs/status.md",
    r"\bnot supported\b": "docs/status.md",
}


def prose(page: Path) -> list[tuple[int, str]]:
    """The numbered lines of a page. Code blocks and `spans` are empty: quoted output may use any word."""
    text = page.read_text(encoding="utf-8")
    text = re.sub(r"^ *```.*?^ *```$", lambda block: "\n" * block[0].count("\n"), text, flags=re.DOTALL | re.MULTILINE)
    return list(enumerate((re.sub(r"`[^`\n]*`|\]\([^)\n]*\)", "``", line) for line in text.splitlines()), start=1))


def hits_in(lines: list[tuple[int, str]], phrases: dict[str, str]) -> list[str]:
    """Each hit, as `line: phrase: better`. A phrase may go over the end of a line."""
    text = "\n".join(line for _, line in lines)
    hits = []
    for phrase, better in phrases.items():
        for hit in re.finditer(phrase.replace(" ", r"\s+"), text, re.IGNORECASE):
            hits.append(f"{text.count(chr(10), 0, hit.start()) + 1}: {' '.join(hit[0].split())!r}: {better}")
    return hits


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_says_it_in_plain_words(page: Path) -> None:
    if page.name not in QUOTED:
        assert hits_in(prose(page), PHRASES) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_limits_are_listed_in_one_place(page: Path) -> None:
    if page.name not in {*QUOTED, "status.md"}:
        assert hits_in(prose(page), LIMITS) == []


def test_phrases_are_found_across_lines_and_not_in_code() -> None:
    lines = [(1, "Records are kept for"), (2, "ever, and the view goes on.")]
    assert [hit.partition(": ")[0] for hit in hits_in(lines, PHRASES)] == ["1", "2"]


def test_code_is_no_prose(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("Kept.\n```console\nkept for ever\n```\nThe code `for ever` and [a link](#kept-for-ever).\n")
    assert hits_in(prose(page), PHRASES) == []
