"""Scores the records of a topic: the function that a scorer's consumer calls for each batch."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from leftfold import clock
from leftfold.declare.event import Event
from leftfold.declare.prediction import Prediction
from leftfold.declare.record import Record
from leftfold.declare.rows import Read
from leftfold.declare.scorer import asked_by
from leftfold.errors import StoreError
from leftfold.fold.expressions import evaluate, to_micros
from leftfold.infer.scoring import Scoring, ToScore
from leftfold.store.reader import Reader

_MOST_AT_ONCE = 256  # rows of one read and one call of the model
_FIRST_WAIT_S = 0.02
_LONGEST_WAIT_S = 0.25


class FeaturesAwayError(Exception):
    """The store did not answer. The records are scored later."""


class StreamScoring:
    """Scores batches of records. Workers of one consumer call it, several at once."""

    def __init__(self, scoring: Scoring, reader: Reader) -> None:
        scorer = scoring.scorer
        assert scorer.on is not None
        self.expired = self.applied = self.not_applied = 0
        self._scoring = scoring
        self._scorer = scorer
        self._reader = reader
        self._on = scorer.on
        self._topic = scorer.on.topic.name
        self._asked = {name: ref.name for name, ref in asked_by(scorer.on, scorer.vector).items()}
        self._time = None if scorer.on.topic.time is None else scorer.on.topic.time.name
        self._vector = scorer.vector.__leftfold_definition__
        self._count = threading.Lock()
        self._pause = threading.Event()  # never set

    def __call__(self, events: Sequence[Event], records: Sequence[Record]) -> list[list[Prediction]]:
        """Return the predictions for each record; none for one that is passed over."""
        output: list[list[Prediction]] = [[] for _ in events]
        numbers = self._wanted(events)
        asked = [self._to_ask(events[n], records[n]) for n in numbers]
        deadline = clock.monotonic() + self._scorer.within_s
        for begin in range(0, len(numbers), _MOST_AT_ONCE):
            part = slice(begin, begin + _MOST_AT_ONCE)
            read = self._read(asked[part], [records[n] for n in numbers[part]], deadline)
            answers, shadows = self._scoring.score(asked[part], read), self._scoring.shadow(asked[part], read)
            for number, answer, others in zip(numbers[part], answers, shadows, strict=True):
                output[number] = [answer, *others]
        return output

    def _wanted(self, events: Sequence[Event]) -> list[int]:
        """Return the indices of the events that are scored."""
        where, expire = self._on.where, self._scorer.expire_us
        numbers = list(range(len(events)))
        if where is not None:
            numbers = [n for n in numbers if evaluate(where, events[n].micros())]
        if expire is None or self._time is None:
            return numbers
        oldest = clock.now_us() - expire
        fresh = [n for n in numbers if to_micros(getattr(events[n], self._time)) >= oldest]
        with self._count:
            self.expired += len(numbers) - len(fresh)
        return fresh

    def _to_ask(self, event: Event, record: Record) -> ToScore:
        held = event.__dict__
        given = {name: held[field] for name, field in self._asked.items()}
        return ToScore(given, f"{record.id}/{self._scorer.name}", trigger=record.id)

    def _read(self, asked: list[ToScore], records: list[Record], deadline: float) -> list[Read]:
        """Read the features, and note whether they hold the records. With trigger="applied", wait for that."""
        rows, wait_s = self._once(asked, records), _FIRST_WAIT_S
        while self._scorer.trigger == "applied":
            behind = [n for n, one in enumerate(asked) if one.trigger_applied is not True]
            left = deadline - clock.monotonic()
            if not behind or left <= 0:
                break
            self._pause.wait(min(wait_s, left))
            wait_s = min(2 * wait_s, _LONGEST_WAIT_S)
            again = self._once([asked[n] for n in behind], [records[n] for n in behind])
            for number, row in zip(behind, again, strict=True):
                rows[number] = row
        with self._count:
            held = sum(one.trigger_applied is True for one in asked)
            self.applied += held
            self.not_applied += len(asked) - held
        return rows

    def _once(self, asked: list[ToScore], records: list[Record]) -> list[Read]:
        partitions = sorted({record.partition for record in records})
        try:
            rows, applied = self._reader.read_applied(
                self._vector, [one.given for one in asked], self._topic, partitions
            )
        except StoreError as error:
            if error.retriable:
                raise FeaturesAwayError(error.what) from error
            raise
        for one, row, record in zip(asked, rows, records, strict=True):
            one.trigger_applied = applied.holds(row, record.partition, record.offset)
        return rows
