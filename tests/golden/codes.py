"""Finds every error code that the source can raise, without running it.

A code is the first argument of a constructor of the LeftfoldError tree: a literal, a conditional expression of two
codes, or an f-string. A parameter inside an f-string is followed to the calls of its function in the same file; what
remains open there stands as a pattern.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "src" / "leftfold"
_OPEN = "[a-z-]+"


@dataclass(frozen=True)
class Site:
    """One constructor call and one code it may carry. `code` is a regular expression where it is a pattern."""

    file: str
    line: int
    code: str
    pattern: bool


class UnreadableError(Exception):
    """A code that the scan cannot follow: write it as a literal."""


def error_classes(package: Path = PACKAGE) -> set[str]:
    """Names of LeftfoldError and of every class that descends from it, wherever it is defined."""
    bases: dict[str, set[str]] = {}
    for _, tree in _trees(package):
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                bases[node.name] = {b.id if isinstance(b, ast.Name) else getattr(b, "attr", "") for b in node.bases}
    found = {"LeftfoldError"}
    while more := {name for name, of in bases.items() if of & found} - found:
        found |= more
    return found


def scan(package: Path = PACKAGE) -> list[Site]:
    classes = error_classes(package)
    return [site for path, tree in _trees(package) for site in _File(path, tree, package, classes).sites()]


def _trees(package: Path) -> Iterator[tuple[Path, ast.Module]]:
    for path in sorted(package.rglob("*.py")):
        if "template" not in path.relative_to(package).parts:
            yield path, ast.parse(path.read_text())


class _File:
    def __init__(self, path: Path, tree: ast.Module, package: Path, classes: set[str]) -> None:
        self._name = path.relative_to(package).as_posix()
        self._tree = tree
        self._classes = classes
        self._functions: dict[ast.Call, ast.FunctionDef | None] = {}
        self._enclose(tree, None)

    def _enclose(self, node: ast.AST, function: ast.FunctionDef | None) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Call):
                self._functions[child] = function
            self._enclose(child, child if isinstance(child, ast.FunctionDef) else function)

    def sites(self) -> Iterator[Site]:
        for call, function in self._functions.items():
            if _called(call) in self._classes:
                first = next((k.value for k in call.keywords if k.arg == "code"), call.args[0] if call.args else None)
                if first is None:
                    raise UnreadableError(f"{self._name}:{call.lineno} has no code")
                for code, pattern in self._codes(first, function):
                    yield Site(self._name, call.lineno, code, pattern)

    def _codes(self, node: ast.expr, function: ast.FunctionDef | None) -> Iterator[tuple[str, bool]]:
        match node:
            case ast.Constant(value=str(code)):
                yield code, False
            case ast.IfExp(body=body, orelse=other):
                yield from self._codes(body, function)
                yield from self._codes(other, function)
            case ast.JoinedStr(values=values):
                yield from self._joined(values, function)
            case ast.Name(id=name) if (texts := self._arguments(name, function)) is not None:
                yield from ((text, False) for text in texts)
            case _:
                raise UnreadableError(
                    f"{self._name}:{node.lineno} carries a code that cannot be read: {ast.unparse(node)}"
                )

    def _joined(self, values: list[ast.expr], function: ast.FunctionDef | None) -> Iterator[tuple[str, bool]]:
        made = [("", False)]
        for value in values:
            if isinstance(value, ast.Constant):
                parts = [(str(value.value), False)]
            else:
                inner = value.value if isinstance(value, ast.FormattedValue) else value
                texts = self._arguments(inner.id, function) if isinstance(inner, ast.Name) else None
                parts = [(_OPEN, True)] if texts is None else [(text, False) for text in texts]
            made = [
                (before + part, before_open or part_open) for before, before_open in made for part, part_open in parts
            ]
        yield from made

    def _arguments(self, name: str, function: ast.FunctionDef | None) -> list[str] | None:
        """The texts that every call in this file gives for the parameter `name`; None if one of them is no literal."""
        if function is None:
            return None
        names = [a.arg for a in (*function.args.posonlyargs, *function.args.args)]
        if name not in names and name not in [a.arg for a in function.args.kwonlyargs]:
            return None
        texts: list[str] = []
        for call in self._functions:
            if _called(call) != function.name:
                continue
            position = names.index(name) - (1 if names[:1] in (["self"], ["cls"]) else 0) if name in names else -1
            positional = call.args[position] if 0 <= position < len(call.args) else None
            given = next((k.value for k in call.keywords if k.arg == name), positional)
            if not (isinstance(given, ast.Constant) and isinstance(given.value, str)):
                return None
            texts.append(given.value)
        return texts or None


def _called(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")


def unmatched(sites: list[Site], codes: set[str]) -> tuple[set[str], set[str]]:
    """Codes (or patterns) in the source without a cause, and causes of codes that the source does not have."""
    without_cause = {s.code for s in sites if not any(matches(s, code) for code in codes)}
    without_site = {code for code in codes if not any(matches(s, code) for s in sites)}
    return without_cause, without_site


def matches(site: Site, code: str) -> bool:
    return re.fullmatch(site.code, code) is not None if site.pattern else site.code == code
