"""Leftfold: declare events and views once; every view stays true to the log.

Importing this opens no socket, starts no JVM and loads neither pyspark nor confluent_kafka. The public names are in
`leftfold.api`, which is imported when one of them is first asked for: the help of the command line needs none.
"""

import builtins as _builtins
from pathlib import Path as _Path
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

if _TYPE_CHECKING:
    from leftfold.api import *  # noqa: F403 # its __all__ is the list of names

__version__ = "0.1.0"


def __getattr__(name: str) -> _Any:
    if name == "__all__":
        return [public for public in _public() if public not in vars(_builtins)]  # a star import hides none of Python's
    if name.startswith("_") or _is_module(name) or name not in _public():
        raise AttributeError(f"module 'leftfold' has no attribute {name!r}")
    from leftfold import api

    value = globals()[name] = getattr(api, name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_public()})


def _public() -> list[str]:
    from leftfold import api

    return api.__all__


def _is_module(name: str) -> bool:
    """Return whether this is a module of the package. The import system asks for it here before it loads it."""
    here = _Path(__file__).parent
    return (here / f"{name}.py").exists() or (here / name).is_dir()


def load_ipython_extension(ipython: _Any) -> None:
    """`%load_ext leftfold`: a notebook shows declared classes as tables."""
    from leftfold.notebook import load_ipython_extension

    load_ipython_extension(ipython)
