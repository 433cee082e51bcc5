"""Scores requests of a program: one row, or many at once; each answer is logged as a prediction."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as OutOfTime
from typing import Any

from leftfold import clock
from leftfold.declare.prediction import Prediction, Predictions
from leftfold.errors import DeclarationError, LeftfoldError, LogError, RunError
from leftfold.infer.answered import AnswerFile
from leftfold.infer.scoring import Scoring, ToScore, new_id
from leftfold.infer.shadows import ShadowQueue
from leftfold.kafka.log_writer import LogWriter, NotWrittenError
from leftfold.kafka.producer import encoder_of, key_encoder
from leftfold.kafka.registry import SchemaRegistry
from leftfold.kafka.transactions import Outgoing
from leftfold.settings import Kafka
from leftfold.store.reader import Reader

_ACKNOWLEDGED_S = 30.0
_LATE_CALLS = 8  # calls that may still run after their deadline; beyond that, requests are answered by the fallback


class PredictionLog:
    """Writes predictions to their topic. `name` is the topic's name in the cluster."""

    def __init__(self, to: Predictions[Any], name: str, kafka: Kafka, registry: SchemaRegistry) -> None:
        self._to = to
        self._name = name
        self._key = key_encoder(tuple(key.name for key in to.key))
        self._encode = encoder_of(to, name, registry)
        self._writer = LogWriter(kafka)

    @property
    def unlogged(self) -> int:
        """The number of predictions that brokers did not acknowledge."""
        return self._writer.unwritten

    def write(
        self, predictions: Sequence[Prediction], *, wait: bool, each: Callable[[int, bool], None] | None = None
    ) -> None:
        """Write predictions; with `wait`, return once all in-sync replicas have them.

        `each` is called with the number of a prediction and whether it was acknowledged.
        """
        records = [Outgoing(self._name, self._key(p.__dict__), self._encode(p.__dict__), []) for p in predictions]
        written = self._writer.write(records, each)
        if not wait:
            return
        try:
            written.wait(_ACKNOWLEDGED_S)
        except NotWrittenError as error:
            raise LogError(
                "prediction-not-logged",
                f"a prediction was not acknowledged by {self._name}",
                why=str(error),
                state="it may be in the log or not; it was not answered",
                fix="leftfold topics shows whether the brokers take records; then ask again",
                retriable=True,
            ) from error

    def close(self) -> int:
        """Wait for the brokers' answers. Returns how many predictions are without one."""
        return self._writer.close()


class RequestScoring:
    """A scorer that answers requests. Any thread may call it."""

    def __init__(
        self, scoring: Scoring, reader: Reader, log: PredictionLog, answered: AnswerFile | None = None
    ) -> None:
        self.scoring = scoring
        self.log = log
        self._answered = answered  # for those who come after a death of this process
        self.late_calls = self.fallbacks = 0
        self._scorer = scoring.scorer
        self._reader = reader
        self._vector = scoring.scorer.vector.__leftfold_definition__
        self.shadows = ShadowQueue(scoring, log.write) if self._scorer.shadows else None
        self._pool = None if self._scorer.deadline_s is None else ThreadPoolExecutor(_LATE_CALLS, "leftfold-score")

    @property
    def loses_silently(self) -> bool:
        """True if answers of this process could be missing in the log after a kill, and nobody could count them."""
        return self._answered is None and self._scorer.log == "behind"

    def score(self, given: Sequence[Mapping[str, Any]], ids: Sequence[str] | None = None) -> list[Prediction]:
        """Score rows and log their predictions. Returns one prediction for each row, in their order."""
        asked = [ToScore(one, ids[n] if ids else new_id()) for n, one in enumerate(given)]
        answers = self._in_time(asked)
        self.fallbacks += sum(one.outcome == "fallback" for one in answers)
        self._write(answers)
        return answers

    def _write(self, answers: list[Prediction]) -> None:
        wait = self._scorer.log == "before"
        if self._answered is None:
            self.log.write(answers, wait=wait)
            return
        leaving = self._answered.leaving([one.prediction_id for one in answers], clock.now_us())
        self.log.write(answers, wait=wait, each=leaving.told)
        leaving.leave()

    def _in_time(self, asked: list[ToScore]) -> list[Prediction]:
        if self._pool is None:
            return self._or_fallback(asked)
        under_way: Future[list[Prediction]] = self._pool.submit(self._or_fallback, asked)
        try:
            return under_way.result(self._scorer.deadline_s)
        except OutOfTime:
            if not under_way.cancel():
                self.late_calls += 1
            reason = f"not scored within {self._scorer.deadline_s:g} s"
            return [self.scoring.fallback(one, None, reason) for one in asked]

    def _or_fallback(self, asked: list[ToScore]) -> list[Prediction]:
        try:
            read = self._reader.read(self._vector, [one.given for one in asked], None)
        except LeftfoldError as error:
            if self._scorer.fallback is None or isinstance(error, DeclarationError):
                raise  # a wrong key is the caller's mistake, and no answer is right
            return [self.scoring.fallback(one, None, f"features: {error.what}") for one in asked]
        if self.shadows is not None:
            self.shadows.put(asked, read)
        try:
            return self.scoring.score(asked, read)
        except LeftfoldError:
            raise
        except Exception as error:  # a person's model may raise anything
            says = f"{type(error).__name__}: {error}"
            if self._scorer.fallback is not None:
                return [self.scoring.fallback(one, row, f"model: {says}") for one, row in zip(asked, read, strict=True)]
            raise RunError(
                "model-failed",
                f"the model of {self._scorer.name} failed",
                why=says,
                state="nothing was answered or logged",
                fix="correct the model or the function; fallback= gives an answer for such a request",
                source=self._scorer.source,
            ) from error

    def close(self) -> int:
        """Wait until predictions are acknowledged. Returns how many are not."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
        if self.shadows is not None:
            self.shadows.close()
        self.scoring.close()
        left = self.log.close()
        if self._answered is not None:
            self._answered.close()
        return left
