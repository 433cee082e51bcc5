"""The command `leftfold` with repairs that take minutes: every recomputed row sleeps in its task.

`python -m tests.engine.slow_repairs run ...` is that command. The function `slow_repairs` does the same in a test's own
process.
"""

from __future__ import annotations

import sys
from typing import Any

import pytest

from leftfold.run import restart
from leftfold.spark.history import recompute
from leftfold.spark.history import records as history

# A repair takes minutes in all, and seconds for one task, as with real history.
_SLEEP_MS = 300
_RECORDS_PER_TASK = 12


def slowly(*given: Any, **named: Any) -> Any:
    packed = recompute.recomputed(*given, **named)
    return packed.where(f"java_method('java.lang.Thread', 'sleep', {_SLEEP_MS}L) is not null")


def slow_repairs(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(restart, "recomputed", slowly)
    patch.setattr(history, "_RECORDS_PER_TASK", _RECORDS_PER_TASK)


if __name__ == "__main__":
    from leftfold.cli.main import main

    slow_repairs(pytest.MonkeyPatch())
    sys.argv[0] = "leftfold"
    main()
