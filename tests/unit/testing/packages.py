"""The package `leftfold.testing.log`, loaded once more under another name, with a part of its source replaced."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import leftfold.testing.log as original

HOME = Path(original.__file__).parent
_NAME = "leftfold.testing.log"
_COPY = "mutated_log"


class _Source:
    """A finder and loader of the copy."""

    def __init__(self, file: str, old: str, new: str) -> None:
        self._file, self._old, self._new = file, old, new

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name.partition(".")[0] != _COPY:
            return None
        return ModuleSpec(name, self, is_package=name == _COPY)  # type: ignore[arg-type] # a loader by its methods

    def create_module(self, spec: ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        file = HOME / f"{module.__name__.removeprefix(_COPY).removeprefix('.') or '__init__'}.py"
        text = file.read_text()
        if file.name == self._file:
            assert text.count(self._old) == 1, f"{file.name} has this {text.count(self._old)} times: {self._old}"
            text = text.replace(self._old, self._new)
        exec(compile(text.replace(_NAME, _COPY), f"{_COPY}/{file.name}", "exec"), vars(module))


@contextmanager
def changed(file: str, old: str, new: str) -> Iterator[ModuleType]:
    """Load the package with one piece of text replaced, which must be there exactly once."""
    finder = _Source(file, old, new)
    sys.meta_path.insert(0, finder)
    try:
        for path in sorted(HOME.glob("[a-z]*.py")):
            importlib.import_module(f"{_COPY}.{path.stem}")
        yield sys.modules[_COPY]
    finally:
        sys.meta_path.remove(finder)
        for name in [name for name in sys.modules if name.partition(".")[0] == _COPY]:
            del sys.modules[name]
