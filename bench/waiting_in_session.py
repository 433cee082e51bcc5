"""Sets that Spark makes in one session, as in a notebook. Usage: python waiting_in_session.py LABELS TWO OUT PAIRS.

It runs in a project's directory, with whatever release of Leftfold it finds on its path. LABELS and TWO are files of
labels. On its last line it prints the seconds of each set, as JSON: of TWO in the session that has made one already;
and, alternating, of LABELS without and with a report.
"""

from __future__ import annotations

import inspect
import json
import sys
import time
from itertools import count
from pathlib import Path
from typing import Any

import leftfold

_numbers = count()


def seconds(app: leftfold.App, labels: str, out: Path, *, report: bool = False) -> float:
    by_spark: Any = {"engine": "spark"} if "engine" in inspect.signature(app.training_set).parameters else {}
    began = time.perf_counter()
    with app.training_set(labels, "activity", time="ts", as_of="event", **by_spark) as made:
        if report:
            made.report()
        made.write(str(out / f"set{next(_numbers)}"))
    return time.perf_counter() - began


def main(labels: str, two: str, out: Path, pairs: int) -> None:
    app = leftfold.open(".")
    out.mkdir()
    first = seconds(app, two, out)
    second = [seconds(app, two, out) for _ in range(3)]
    alone, reported = [seconds(app, labels, out)], [seconds(app, labels, out, report=True)]
    for _ in range(pairs):
        alone.append(seconds(app, labels, out))
        reported.append(seconds(app, labels, out, report=True))
    print(json.dumps({"first": first, "second": second, "alone": alone[1:], "reported": reported[1:]}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]))
