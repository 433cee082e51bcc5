"""Shadow models of requests: a thread of their own scores after the answer, so that none waits for them."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from queue import Full, Queue
from typing import Protocol

from leftfold.declare.prediction import Prediction
from leftfold.declare.rows import Read
from leftfold.infer.scoring import Scoring, ToScore

_MOST_WAITING = 32  # batches; a shadow that is slower than the requests misses some, and they are counted
_LAST_S = 10.0

Batch = tuple[Sequence[ToScore], Sequence[Read]]


class Write(Protocol):
    def __call__(self, predictions: list[Prediction], *, wait: bool) -> None: ...


class ShadowQueue:
    """The batches that shadows have not scored yet. Any thread may put one."""

    def __init__(self, scoring: Scoring, write: Write) -> None:
        self.skipped = 0  # rows that shadows did not score, because too many batches waited
        self._scoring = scoring
        self._write = write
        self._waiting: Queue[Batch | None] = Queue(_MOST_WAITING)
        self._thread = threading.Thread(target=self._score_all, name="leftfold-shadows", daemon=True)
        self._thread.start()

    def put(self, asked: Sequence[ToScore], read: Sequence[Read]) -> None:
        """Let shadows score rows later. Does not wait."""
        try:
            self._waiting.put_nowait((asked, read))
        except Full:
            self.skipped += len(asked)

    def close(self) -> None:
        """Wait until the batches that wait are scored, at most ten seconds."""
        try:
            self._waiting.put(None, timeout=_LAST_S)
        except Full:  # a shadow stands still; its thread ends with the process
            return
        self._thread.join(_LAST_S)

    def _score_all(self) -> None:
        while (batch := self._waiting.get()) is not None:
            predictions = self._scoring.shadow(*batch)
            self._write([p for of_row in predictions for p in of_row], wait=False)
