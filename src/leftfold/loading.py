"""Runs a project's files and collects what they declare.

A file is run once, and again only if it has changed. So a class that the user's own code imports is the same class as
the one in the catalog.
"""

from __future__ import annotations

import ast
import importlib.util
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from leftfold.declare.collector import collecting, declare, forget, made_in
from leftfold.errors import DeclarationError, LeftfoldError, ProjectError, SourceLine

# The last load of each project: its declarations, and the time stamp of each file.
_loads: dict[tuple[Path, tuple[str, ...]], tuple[list[Any], dict[str, int]]] = {}
_ours: set[str] = set()  # modules that a load imported; only these are ever removed from sys.modules


def load(root: Path, files: list[str]) -> list[Any]:
    """Run the project's files with the project directory importable, and collect what they declare.

    If no file has changed since the last load, return the declarations of that load.
    """
    loaded = _loads.get((root, tuple(files)))
    if loaded is not None and all(_stamp(file) == stamp for file, stamp in loaded[1].items()):
        return loaded[0]
    _unload()
    before = set(sys.modules)
    sys.path.insert(0, str(root))
    try:
        with collecting() as declared:
            for file in files:
                _execute(root / file)
            for declaration in _imported_before([str(root / file) for file in files]):
                if not any(declaration is one for one in declared):
                    declare(declaration)
    finally:
        sys.path.remove(str(root))
        new = {n: _file(m) for n, m in list(sys.modules.items()) if n not in before}
        mine = {n: f for n, f in new.items() if f and Path(f).is_relative_to(root) and "site-packages" not in f}
        _ours.update(mine)
    _loads[root, tuple(files)] = declared, {f: _stamp(f) for f in (*mine.values(), *(str(root / f) for f in files))}
    return declared


def _unload() -> None:
    """Remove the modules of earlier loads, and what their files declared, unless somebody else imported such a file."""
    unloaded = {_file(sys.modules.pop(name, None)) for name in _ours}
    _ours.clear()
    for file in unloaded - {_file(module) for module in list(sys.modules.values())}:
        forget(file or "")


def _imported_before(files: list[str]) -> Iterator[Any]:
    """Yield the declarations of each module that these files import, directly or through one another.

    Python does not run a module again that the process has imported before, so nothing else would collect them.
    """
    modules = {file: module for module in list(sys.modules.values()) if (file := _file(module))}
    declaring = {module.__name__.partition(".")[0] for file, module in modules.items() if made_in(file)}
    waiting, seen = [modules[file] for file in files if file in modules], set(files)
    while waiting:
        for module in _imports_of(waiting.pop(0)):
            file = _file(module)
            if file is None or file in seen or module.__name__.partition(".")[0] not in declaring:
                continue
            seen.add(file)
            waiting.append(module)
            yield from made_in(file)


def _imports_of(module: ModuleType) -> Iterator[ModuleType]:
    """Yield the modules that are named in a module's import statements."""
    try:
        tree = ast.parse(Path(_file(module) or "").read_bytes())
    except (OSError, SyntaxError):  # it is not of Python, or no longer there
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            package = "." * node.level + (node.module or "")
            if node.level:
                package = importlib.util.resolve_name(package, module.__package__ or "")
            names = [package, *(f"{package}.{alias.name}" for alias in node.names)]
        else:
            continue
        yield from (found for name in names if (found := sys.modules.get(name)) is not None)


def sources(root: Path, files: list[str]) -> list[Path]:
    """Return the files of a project that was loaded: those with its declarations, and the modules that are under it."""
    home = root.resolve()
    imported = [Path(file) for module in list(sys.modules.values()) if (file := _file(module))]
    own = {p.resolve() for p in imported if p.suffix == ".py" and "site-packages" not in p.parts}
    return sorted({*(home / file for file in files), *(path for path in own if path.is_relative_to(home))})


def _file(module: Any) -> str | None:
    file = getattr(module, "__file__", None)
    return file if isinstance(file, str) else None


def _stamp(file: str) -> int:
    try:
        return Path(file).stat().st_mtime_ns
    except FileNotFoundError:
        return 0


def _execute(path: Path) -> None:
    if any(_file(module) == str(path) for module in list(sys.modules.values())):
        for declaration in made_in(str(path)):  # imported by an earlier file of the list, or by the user's own code
            declare(declaration)
        return
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if not path.is_file() or spec is None or spec.loader is None:
        raise ProjectError(
            "no-declarations",
            f"leftfold.toml lists {path.name}, which is not there",
            why=f"there is no file {path}",
            fix="create it, or correct the list",
        )
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    forget(str(path))
    try:
        spec.loader.exec_module(module)
    except LeftfoldError:
        del sys.modules[path.stem]
        raise
    except (Exception, SystemExit) as error:  # the user's code can raise anything
        del sys.modules[path.stem]
        raise DeclarationError(
            "declarations-failed",
            f"{path.name} could not be loaded: {type(error).__name__}: {error}",
            why="its code raised an error of its own",
            fix=f"python {path.name} shows the whole trace",
            source=_blame(error, path),
        ) from error
    except KeyboardInterrupt:
        del sys.modules[path.stem]
        raise


def _blame(error: BaseException, path: Path) -> SourceLine:
    if isinstance(error, SyntaxError) and error.lineno:
        return SourceLine(error.filename or str(path), error.lineno)
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == str(path)]
    return SourceLine(str(path), (frames[-1].lineno or 1) if frames else 1)
