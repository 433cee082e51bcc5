"""HTTP servers under load: processes that are started, asked from a process of their own, and ended."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

CONNECTIONS = 16
LEFTFOLD = str(Path(sys.executable).with_name("leftfold"))
HERE = Path(__file__).parent


@contextlib.contextmanager
def server(command: Sequence[str], root: Path, log: Path, said: str, *options: str) -> Iterator[str]:
    with log.open("wb") as out:
        process = subprocess.Popen([*command, *options], cwd=root, stdout=out, stderr=out)
    try:
        while (found := re.search(said, log.read_text())) is None:
            assert process.poll() is None, log.read_text()
            time.sleep(0.05)
        yield found[1]
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def load(kind: str, address: str, rate: float | None, seconds: float) -> dict[str, float]:
    """Run the load in a process of its own: `rate` requests a second, or as many as are answered."""
    command = [sys.executable, "-m", "bench.http_load", kind, address, str(rate or 0), str(seconds), str(CONNECTIONS)]
    ran = subprocess.run(command, cwd=HERE.parent, capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stderr
    measured: dict[str, float] = json.loads(ran.stdout)
    return measured
