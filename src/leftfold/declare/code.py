"""The fingerprint of a user's function: it depends on what the function does, not on how it is formatted.

Comments, formatting, docstrings, annotations and decorators do not count. The functions and constants that the function
uses do count.
"""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
import types
from collections.abc import Callable
from typing import Any

from leftfold.errors import DeclarationError, SourceLine
from leftfold.fold.definition import fingerprint

_CONSTANTS = (str, int, float, bool, bytes, type(None))


def code_fingerprint(function: Callable[..., Any], source: SourceLine) -> str:
    try:
        return fingerprint(_described(function, set()))
    except (OSError, TypeError, SyntaxError) as error:
        raise DeclarationError(
            "no-source",
            f"the source of {getattr(function, '__name__', function)!r} cannot be read",
            why=f"what a view does is known by its code: {error}",
            fix="define it with `def` in a file, not in exec() or an interactive prompt",
            source=source,
        ) from error


def _described(function: Callable[..., Any], seen: set[int]) -> list[Any]:
    seen.add(id(function))
    tree = _Plain().visit(ast.parse(textwrap.dedent(inspect.getsource(function))))
    used = _used(function, tree)
    return [ast.dump(tree), {name: _value(used[name], seen) for name in sorted(used)}]


class _Plain(ast.NodeTransformer):
    """Removes everything that a user can change without a change of what the function does."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.decorator_list, node.returns = [], None
        if ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
        return self.generic_visit(node)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.annotation = None
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST | None:
        return None if node.value is None else self.generic_visit(ast.Assign([node.target], node.value))


def _used(function: Callable[..., Any], tree: ast.AST) -> dict[str, Any]:
    """The outer values that a function uses, by name. Inner functions and defaults of arguments are included."""
    outer = inspect.getclosurevars(function).nonlocals
    code = inspect.unwrap(function).__code__
    own = {*code.co_varnames, *code.co_cellvars}
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} - own
    around = inspect.unwrap(function).__globals__
    return {**{name: around[name] for name in names if name in around}, **outer}


def _value(value: Any, seen: set[int]) -> Any:
    if isinstance(value, _CONSTANTS):
        return repr(value)
    if isinstance(value, list | tuple):
        return [_value(v, seen) for v in value]
    if isinstance(value, set | frozenset):
        return sorted((_value(v, seen) for v in value), key=repr)
    if isinstance(value, dict):
        return [[_value(k, seen), _value(v, seen)] for k, v in value.items()]
    function = getattr(value, "function", value)  # a stream or a view that another function calls
    if isinstance(function, types.FunctionType) and id(function) not in seen and _own(function):
        return _described(function, seen)
    return getattr(value, "__qualname__", None) or getattr(value, "__name__", None) or type(value).__qualname__


def _own(function: types.FunctionType) -> bool:
    """Return whether a function is the user's own, not a library's.

    A library changes with its version, not with the project.
    """
    module = (function.__module__ or "").partition(".")[0]
    return module not in sys.stdlib_module_names and "site-packages" not in function.__code__.co_filename
