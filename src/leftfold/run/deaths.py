"""Remembers that a JVM died, in files next to the locks. The next start reads less at a time ("with care").

A batch that had begun runs again with the same records. If it did not fit into memory, it would not fit again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from leftfold.errors import RunError
from leftfold.run.running import Running, RunningReader


@contextmanager
def remembered_death(locks: Path, running: Sequence[Running]) -> Iterator[None]:
    """Wrap a whole run: leave a mark for each reader if the JVM dies, and obey the marks of an earlier run.

    A mark stays until a run of its reader ends without an exception.
    """
    marks = {locks / f"{one.name}.died": one for one in running if isinstance(one, RunningReader)}
    for mark, one in marks.items():
        if mark.exists():
            one.take_care()
    try:
        yield
    except RunError as error:
        if error.code == "spark-died":
            locks.mkdir(parents=True, exist_ok=True)
            for mark in marks:
                mark.touch()
        raise
    for mark in marks:
        mark.unlink(missing_ok=True)
