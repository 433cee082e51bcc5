"""Requests that arrive while a batch is scored are the next batch: under load, one read and one call for many."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from leftfold.declare.prediction import Prediction
from leftfold.infer.requests import RequestScoring

_MOST = 256  # rows of a batch


class Busy(Exception):  # noqa: N818 # it says how the server is, not that something went wrong
    """So many requests wait that another one is refused."""


class Coalescing:
    """The queue of one scorer in one event loop. `most_waiting` bounds the rows that wait or are scored."""

    def __init__(self, scoring: RequestScoring, *, most_waiting: int) -> None:
        self.scoring = scoring
        self.batches = self.rows = self.refused = 0
        self._most_waiting = most_waiting
        self._waiting: list[tuple[Mapping[str, Any], str, asyncio.Future[Prediction]]] = []
        self._in_hand = 0
        self._task: asyncio.Task[None] | None = None

    async def score(self, given: Mapping[str, Any], request_id: str) -> Prediction:
        """Score one row with those that wait. Raises Busy if too many do."""
        if len(self._waiting) + self._in_hand >= self._most_waiting:
            self.refused += 1
            raise Busy
        answer: asyncio.Future[Prediction] = asyncio.get_running_loop().create_future()
        self._waiting.append((given, request_id, answer))
        if self._task is None:
            self._task = asyncio.create_task(self._score_all())
        return await answer

    async def _score_all(self) -> None:
        """Score batch after batch, in a thread: a model, and a log that is acknowledged before, block."""
        try:
            while self._waiting:
                batch, self._waiting = self._waiting[:_MOST], self._waiting[_MOST:]
                self._in_hand = len(batch)
                await self._score_batch(batch)
        finally:
            self._in_hand = 0
            self._task = None

    async def _score_batch(self, batch: list[tuple[Mapping[str, Any], str, asyncio.Future[Prediction]]]) -> None:
        self.batches += 1
        self.rows += len(batch)
        try:
            given, ids = [one for one, _, _ in batch], [request_id for _, request_id, _ in batch]
            answers = await asyncio.to_thread(self.scoring.score, given, ids)
        except Exception as error:  # noqa: BLE001 # whatever it is, it belongs to the requests, not to this task
            if len(batch) > 1:  # one of them may be wrong: each is scored alone
                for one in batch:
                    await self._score_batch([one])
                return
            (only,) = batch
            if not only[2].done():
                only[2].set_exception(error)
            return
        for (_, _, waiting), answer in zip(batch, answers, strict=True):
            if not waiting.done():  # else the caller has gone
                waiting.set_result(answer)
