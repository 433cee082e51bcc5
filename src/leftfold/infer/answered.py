"""Answers whose predictions brokers have not acknowledged yet, in a file that outlives a process that is killed.

Each process has a file for each scorer. An answer stands in it from before it leaves until its prediction is
acknowledged. So what stands in the file of a dead process are the answers that may be missing in the log; the log says
which of them are. The file is memory that the kernel keeps: it survives SIGKILL, and not a loss of power.
"""

from __future__ import annotations

import fcntl
import hashlib
import mmap
import os
import struct
import threading
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from leftfold import private

_MAGIC = b"LFANSW01"
_SLOT = 64  # bytes: the moment of the answer (µs; 0: the slot is free), the length of its name, and the name
_SLOTS = 32_768
_HEAD = 64  # bytes: _MAGIC, and the number of answers for which there was no slot
_LONGEST = _SLOT - 9
_MOMENT, _COUNT, _COUNT_AT = struct.Struct("<q"), struct.Struct("<Q"), len(_MAGIC)
_SUFFIX, _PART = ".answers", ".part"


class AnswerFile:
    """The answers of one scorer of this process that are not acknowledged. Any thread may use it."""

    def __init__(self, directory: Path, scorer: str) -> None:
        private.directory(directory)
        name = f"{scorer}@{uuid.uuid4().hex}"
        part = directory / f"{name}{_PART}"
        self.path = directory / f"{name}{_SUFFIX}"
        self._file = part.open("w+b")
        # The whole file is written: a page that the disk has no room for would end this process later.
        self._file.write(_MAGIC.ljust(_HEAD + _SLOTS * _SLOT, b"\0"))
        self._file.flush()
        fcntl.flock(self._file, fcntl.LOCK_EX)  # it ends with this process, however that ends
        part.rename(self.path)
        self._memory = mmap.mmap(self._file.fileno(), 0)
        self._free = list(range(_SLOTS - 1, -1, -1))
        self._failed = 0
        self._lock = threading.Lock()

    def leaving(self, names: Sequence[str], moment_us: int) -> Leaving:
        """Begin to keep answers. `names` are the ids of their predictions, in the order of the records."""
        return Leaving(self, names, moment_us)

    def close(self) -> None:
        """Remove the file: what is in it now is known to this process."""
        with self._lock:
            self.path.unlink(missing_ok=True)
            self._memory.close()
            self._file.close()

    # For answers that leave; with the lock held -----------------------------------------------------------------------

    @property
    def lock(self) -> threading.Lock:
        return self._lock

    def put(self, name: str, moment_us: int) -> int | None:
        """Write an answer, and return its slot; None if there is none, then it is only counted."""
        if self._memory.closed:
            return None
        if not self._free:
            self._count(1)
            return None
        slot, text = self._free.pop(), key_of(name)
        at = _HEAD + slot * _SLOT
        self._memory[at + 8 : at + 9 + len(text)] = bytes([len(text)]) + text
        _MOMENT.pack_into(self._memory, at, max(1, moment_us))  # last: until now the slot counts as free
        return slot

    def clear(self, slot: int | None, *, written: bool) -> None:
        """Take an answer out. One that brokers refused stays, while there is room."""
        if self._memory.closed:
            return
        if not written:
            self._failed += 1
            if slot is None or self._failed < _SLOTS // 2:
                return
            self._count(1)
        elif slot is None:
            self._count(-1)
        if slot is not None:
            _MOMENT.pack_into(self._memory, _HEAD + slot * _SLOT, 0)
            self._free.append(slot)

    def _count(self, more: int) -> None:
        (held,) = _COUNT.unpack_from(self._memory, _COUNT_AT)
        _COUNT.pack_into(self._memory, _COUNT_AT, held + more)


class Leaving:
    """The answers of one batch, on their way."""

    def __init__(self, file: AnswerFile, names: Sequence[str], moment_us: int) -> None:
        self._file = file
        self._waiting = dict(enumerate(names))
        self._slots: dict[int, int | None] = {}
        self._moment_us = moment_us

    def told(self, number: int, written: bool) -> None:
        """Note what brokers say of a record, by its number in the batch."""
        with self._file.lock:
            if number in self._slots:
                self._file.clear(self._slots.pop(number), written=written)
            elif written:
                self._waiting.pop(number, None)

    def leave(self) -> None:
        """Write the answers that are not acknowledged yet. They may leave after it."""
        with self._file.lock:
            while self._waiting:
                number, name = self._waiting.popitem()
                self._slots[number] = self._file.put(name, self._moment_us)


@dataclass(frozen=True)
class LeftAnswers:
    """The answers that a process, which has died, left in its file. `close` removes the file."""

    scorer: str
    moments: Mapping[bytes, int]  # by the key of each: when it was answered (µs)
    unnamed: int  # answers that are only counted
    path: Path
    descriptor: int

    def close(self, *, remove: bool) -> None:
        if remove:
            self.path.unlink(missing_ok=True)
        os.close(self.descriptor)


def left_answers(directory: Path) -> list[LeftAnswers]:
    """Return what dead processes left. Nobody else gets the same until it is closed."""
    found = []
    for path in sorted(directory.glob(f"*{_SUFFIX}")):
        try:
            descriptor = os.open(path, os.O_RDWR)
        except FileNotFoundError:  # it was closed in the meantime
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:  # its process is alive, or another one looks at it
            os.close(descriptor)
            continue
        held = path.read_bytes() if path.exists() else b""
        if not held.startswith(_MAGIC):
            os.close(descriptor)
            continue
        moments = {}
        for at in range(_HEAD, len(held), _SLOT):
            (moment,) = _MOMENT.unpack_from(held, at)
            if moment:
                moments[held[at + 9 : at + 9 + held[at + 8]]] = moment
        (unnamed,) = _COUNT.unpack_from(held, _COUNT_AT)
        found.append(LeftAnswers(path.name.partition("@")[0], moments, unnamed, path, descriptor))
    return found


def key_of(name: str) -> bytes:
    """Return what stands in a file for the id of a prediction: the id, or a digest of one that is long."""
    text = name.encode()
    return text if len(text) <= _LONGEST else b"sha256:" + hashlib.sha256(text).hexdigest()[:40].encode()


@dataclass(frozen=True)
class Unlogged:
    """Answers of processes that died, whose predictions are not in the log."""

    scorer: str
    ids: Mapping[str, int]  # of the predictions: when each was answered (µs); a long id as its digest
    unnamed: int  # answers that could not be looked for: they may be in the log or not

    @property
    def count(self) -> int:
        return len(self.ids) + self.unnamed


def missing(left: Iterable[LeftAnswers], logged: Iterable[str]) -> dict[bytes, int]:
    """Return the answers that are not among `logged`, the ids in the log. It reads no more of them than it needs."""
    wanted = {key: moment for one in left for key, moment in one.moments.items()}
    if wanted:
        for name in logged:
            wanted.pop(key_of(name), None)
            if not wanted:
                break
    return wanted
