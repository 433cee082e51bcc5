"""Docstrings begin with a noun or a verb, so that each can be understood by itself. A class name means one thing."""

from __future__ import annotations

import ast
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
