"""Finds calls in a user's function that give another result each time. It reads the source and does not run it.

Spark refuses its own such functions when a view starts, but it cannot see Python's clocks and random generators. A name
is followed to its import, and into other functions of the project. What an object's method does is not known here.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
import textwrap
import types
from collections.abc import Callable, Iterator
from typing import Any

from leftfold.declare.free import View
from leftfold.declare.stream import Stream
from leftfold.errors import SourceLine

_SPARK = frozenset(
    {
        *("now", "current_timestamp", "current_date", "curdate", "current_time", "localtimestamp"),
        *("rand", "randn", "random", "randstr", "uniform", "uuid", "shuffle"),
        *("monotonically_increasing_id", "spark_partition_id"),
    }
)
_PYTHON = frozenset(
    {
        *("datetime.datetime.now", "datetime.datetime.utcnow", "datetime.datetime.today", "datetime.date.today"),
        *("time.time", "time.time_ns", "time.monotonic", "time.monotonic_ns", "time.perf_counter"),
        *("uuid.uuid1", "uuid.uuid4", "os.urandom"),
    }
)
_DICE = ("random.", "secrets.", "numpy.random.")
_SAME = frozenset({"default_rng", "seed", "compare_digest"})  # a seeded generator gives the same each time
_TAKES_SQL = frozenset({"expr", "selectExpr", "where", "filter"})
_IN_SQL = re.compile(rf"\b({'|'.join(sorted(_SPARK))})\s*\(|\b(current_timestamp)\b", re.IGNORECASE)
_QUOTED = re.compile(r"'[^']*'|`[^`]*`|\"[^\"]*\"")
_NAMED = (type, types.FunctionType, types.BuiltinFunctionType, types.MethodType)

Found = tuple[str, SourceLine]


def unrepeatable(function: Callable[..., Any]) -> Iterator[Found]:
    """Yield each unrepeatable call as a user would write it, with its line, in the order of the source."""
    yield from _calls(function, set())


def _calls(function: Callable[..., Any], seen: set[int]) -> Iterator[Found]:
    plain = inspect.unwrap(function)
    if not isinstance(plain, types.FunctionType) or id(plain) in seen:
        return
    seen.add(id(plain))
    try:
        lines, first = inspect.getsourcelines(plain)
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, SyntaxError):  # a lambda inside an expression, or no source file
        return
    around, imported = _around(plain), _imported(tree)
    body = tree.body[0].body if isinstance(tree.body[0], ast.FunctionDef) else tree.body
    for node in sorted((n for part in body for n in ast.walk(part) if isinstance(n, ast.expr)), key=_place):
        at = SourceLine(plain.__code__.co_filename, first + node.lineno - 1)
        if isinstance(node, ast.Call):
            yield from ((call, at) for call in _named_calls(node, around, imported))
        elif isinstance(node, ast.Name) and node.id not in imported:
            used = around.get(node.id)
            used = used.function if isinstance(used, Stream | View) else used
            if isinstance(used, types.FunctionType) and _own(used):
                yield from _calls(used, seen)


def _place(node: ast.expr) -> tuple[int, int]:
    return node.lineno, node.col_offset


def _around(function: types.FunctionType) -> dict[str, Any]:
    """The values of the global names and closures that a function uses; its own variables are left out."""
    own = {*function.__code__.co_varnames, *function.__code__.co_cellvars}
    outer = {**function.__globals__, **inspect.getclosurevars(function).nonlocals}
    return {name: value for name, value in outer.items() if name not in own}


def _imported(tree: ast.AST) -> dict[str, str]:
    """The dotted paths of what is imported inside the function, by local name."""
    paths = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                paths[alias.asname or alias.name.partition(".")[0]] = (
                    alias.name if alias.asname else alias.name.partition(".")[0]
                )
        elif isinstance(node, ast.ImportFrom) and not node.level:
            paths |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    return paths


def _named_calls(call: ast.Call, around: dict[str, Any], imported: dict[str, str]) -> Iterator[str]:
    path = _path(call.func, around, imported)
    last = call.func.attr if isinstance(call.func, ast.Attribute) else path.rpartition(".")[2]
    if _unrepeatable(path) or (path.startswith("pyspark.") and last == "unix_timestamp" and not call.args):
        short = path.removeprefix("pyspark.sql.functions.").removeprefix("builtin.")
        yield f"{short.replace('random.Random.', 'random.')}()"
    if last in _TAKES_SQL:
        texts = [a.value for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
        for match in _IN_SQL.finditer(" ".join(_QUOTED.sub("''", text) for text in texts)):
            yield f"{(match[1] or match[2]).lower()}()"


def _unrepeatable(path: str) -> bool:
    last = path.rpartition(".")[2]
    if path.startswith("pyspark."):
        return last in _SPARK
    if path.startswith("pandas."):
        return last in ("now", "today", "utcnow")
    return path in _PYTHON or (path.startswith(_DICE) and last not in _SAME and not last[:1].isupper())


def _path(node: ast.expr, around: dict[str, Any], imported: dict[str, str]) -> str:
    """The dotted path of what is called, or an empty text if it depends on a value."""
    if isinstance(node, ast.Attribute):
        base = _path(node.value, around, imported)
        return f"{base}.{node.attr}" if base else ""
    if not isinstance(node, ast.Name):
        return ""
    if node.id in imported:
        return imported[node.id]
    value = around.get(node.id)
    if isinstance(value, types.ModuleType):
        return value.__name__
    if not isinstance(value, _NAMED):  # an object: what its methods do is not known
        return ""
    bound = getattr(value, "__self__", None)  # functions of the module random are methods of one generator
    module = getattr(value, "__module__", None) or type(bound).__module__
    return f"{module}.{value.__qualname__}"


def _own(function: types.FunctionType) -> bool:
    """Return whether the function belongs to the project. Unrepeatable functions of libraries are listed by name."""
    module = (function.__module__ or "").partition(".")[0]
    return module not in sys.stdlib_module_names and "site-packages" not in function.__code__.co_filename
