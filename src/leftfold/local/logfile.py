"""Reads the log of a process: its last lines, the line that names the problem, and new lines as they are written."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO

FOLLOW_S = 0.2  # five polls a second look live; waiting for a file without polls needs another dependency
_BLOCK = 64 * 1024
_TROUBLE = re.compile(r"\b(ERROR|FATAL|\w*Exception|\w*Error|Caused by|[Ff]atal|Can't|Could not|Invalid)\b")
_FRAME = re.compile(r"^\s+(at |\.\.\. \d+ more)")


def last(path: Path, lines: int) -> list[str]:
    """The last lines of a log, read from its end. Empty if there is no log."""
    try:
        with path.open("rb") as file:
            at, text = file.seek(0, os.SEEK_END), b""
            while at > 0 and text.count(b"\n") <= lines:
                step = min(_BLOCK, at)
                at = file.seek(at - step)
                text = file.read(step) + text
    except FileNotFoundError:
        return []
    return text.decode(errors="replace").splitlines()[-lines:] if lines > 0 else []


def cause(path: Path) -> str:
    """The last line that names a problem, else the last line. Stack frames are skipped: they say where, never what."""
    said = [line.strip() for line in last(path, 400) if line.strip() and not _FRAME.match(line)]
    if not said:
        return "it wrote nothing to its log"
    return next((line for line in reversed(said) if _TROUBLE.search(line)), said[-1])


def follow(files: Mapping[str, Path]) -> Iterator[tuple[str, str]]:
    """Yield whole lines as they are written, for ever. A log that a new start replaced is read from its beginning."""
    opened = {name: path.open(encoding="utf-8", errors="replace") for name, path in files.items()}
    for file in opened.values():
        file.seek(0, os.SEEK_END)
    while True:
        for name, path in files.items():
            yield from ((name, line) for line in _whole_lines(opened[name]))
            if path.exists() and path.stat().st_ino != os.fstat(opened[name].fileno()).st_ino:
                opened[name].close()
                opened[name] = path.open(encoding="utf-8", errors="replace")
        time.sleep(FOLLOW_S)


def _whole_lines(file: IO[str]) -> Iterator[str]:
    while True:
        at = file.tell()
        line = file.readline()
        if not line.endswith("\n"):
            file.seek(at)  # half a line: read it again when it is whole
            return
        yield line.removesuffix("\n")
