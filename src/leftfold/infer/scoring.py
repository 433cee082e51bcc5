"""One path for every score: read the features of what waits, call the model once, make predictions of its answers."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

from pydantic import ConfigDict, ValidationError, create_model
from pydantic.fields import FieldInfo

from leftfold import clock
from leftfold.declare.event import assembled
from leftfold.declare.prediction import Prediction, Role, vector_keys, view_fields
from leftfold.declare.rows import Read
from leftfold.declare.scorer import Scorer
from leftfold.declare.vector_rows import Rows
from leftfold.errors import LeftfoldError, RunError
from leftfold.fold.values import entity_text
from leftfold.infer.loaders import Loaded, Loader
from leftfold.infer.models import Models

_SHARES = 1_000_000  # a canary's share is counted in millionths of all keys


@dataclass
class ToScore:
    """One row to be scored. `given` holds its keys and requests."""

    given: Mapping[str, Any]
    request_id: str
    trigger: str | None = None
    trigger_applied: bool | None = None


class Scoring:
    """A scorer with its models loaded. Any thread may call it."""

    def __init__(self, scorer: Scorer[Any, Any], root: Path) -> None:
        self.scorer = scorer
        self._root = root
        self.models = Models(scorer, root, self._warm)
        self.failed_shadows = 0  # calls of shadow models that raised
        self.shadow_problem: str | None = None  # of the newest of them
        self._keys = vector_keys(scorer.vector)
        self._views = view_fields(scorer.vector)
        prediction = scorer.prediction
        self._lists = {name for name, kind in scorer.vector.__leftfold_kinds__.items() if kind.repeated}
        self._make = assembled(prediction)
        self._fields = prediction.__leftfold_answers__
        self._rest = {name: info.default for name, info in prediction.model_fields.items() if not info.is_required()}
        fields = _answer_fields(prediction)
        one: dict[str, Any] = {name: (i.annotation, i) for name, i in fields.items()}
        many: dict[str, Any] = {name: (list[_annotated(i)], ...) for name, i in fields.items()}  # type: ignore[misc] # a type that is made here
        config = ConfigDict(extra="forbid", allow_inf_nan=False)
        self._answer = create_model("Answer", __config__=config, **one).__pydantic_validator__.validate_python
        self._answers = create_model("Answers", __config__=config, **many).__pydantic_validator__.validate_python
        self._name = scorer.name

    # Scoring ---------------------------------------------------------------------------------------------------------

    def score(self, asked: Sequence[ToScore], read: Sequence[Read]) -> list[Prediction]:
        """Score rows that were read. A row that the scorer refuses raises; a model that fails raises its own error."""
        began, models = clock.monotonic(), self.models.now
        answers: list[tuple[Role, Loaded, str | None, Mapping[str, Any]] | None] = [None] * len(asked)
        for number, row in enumerate(read):
            if not row.found and self.scorer.missing != "score":
                answers[number] = ("live", models.live, "a view has no data of it", self._missing(asked[number], row))
        groups: dict[bool, list[int]] = {}
        for number, one in enumerate(asked):
            if answers[number] is None:
                groups.setdefault(models.canary is not None and self.is_canary(one.given), []).append(number)
        for by_canary, numbers in groups.items():
            role: Role = "canary" if by_canary else "live"
            model = models.canary if by_canary and models.canary is not None else models.live
            for number, values in zip(numbers, self._call(model, [read[n] for n in numbers]), strict=True):
                answers[number] = (role, model, None, values)
        took_us = int((clock.monotonic() - began) * 1e6)
        scored: list[Prediction] = []
        for one, row, answer in zip(asked, read, answers, strict=True):
            assert answer is not None
            role, model, reason, values = answer
            scored.append(self._prediction(one, row, model, role, values, took_us, reason))
        return scored

    def shadow(self, asked: Sequence[ToScore], read: Sequence[Read]) -> list[list[Prediction]]:
        """Score rows by the shadow models, for the log alone. A shadow that fails is left out, and counted."""
        predictions: list[list[Prediction]] = [[] for _ in asked]
        for model in self.models.now.shadows:
            began = clock.monotonic()
            try:
                answers = self._call(model, read)
            except Exception as error:  # noqa: BLE001 # a person's model may raise anything, and nobody waits for it
                self.failed_shadows += 1
                self.shadow_problem = f"version {model.version}, a shadow: {type(error).__name__}: {error}"
                continue
            took_us = int((clock.monotonic() - began) * 1e6)
            for of_row, one, row, values in zip(predictions, asked, read, answers, strict=True):
                of_row.append(self._prediction(one, row, model, "shadow", values, took_us, None))
        return predictions

    def fallback(self, asked: ToScore, row: Read | None, reason: str) -> Prediction:
        """Return the declared answer for a row that was not scored in time."""
        read = row or Read(dict.fromkeys(self.scorer.vector.__leftfold_names__), clock.now(), ())
        return self._prediction(asked, read, self.models.now.live, "live", self._given_up(read), 0, reason)

    def is_canary(self, given: Mapping[str, Any]) -> bool:
        """Return whether the canary answers for an entity. Its key decides, so it stays with one model."""
        assert self.scorer.canary is not None
        text = entity_text([given[name] for name in self._keys])
        return zlib.crc32(text.encode()) % _SHARES < self.scorer.canary.share * _SHARES

    def _missing(self, asked: ToScore, row: Read) -> Mapping[str, Any]:
        if self.scorer.missing == "fallback":
            return self._given_up(row)
        raise RunError(
            "score-refused",
            f"{self._name} refuses {', '.join(f'{name}={asked.given[name]!r}' for name in self._keys)}",
            why=f"{', '.join(p.view for p in row.provenance if not p.found)} has no data of it, and the scorer is "
            'declared with missing="refuse"',
            fix='ask for another entity, or declare missing="score" or missing="fallback"',
            source=self.scorer.source,
        )

    def _given_up(self, row: Read) -> Mapping[str, Any]:
        fallback = self.scorer.fallback
        if callable(fallback):
            fallback = fallback(Rows(self.scorer.vector, [row])[0])
        return self._validated(fallback if isinstance(fallback, Mapping) else {self._fields[0]: fallback})

    def _call(self, model: Loaded, read: Sequence[Read]) -> list[Mapping[str, Any]]:
        """Call the person's function, and return one checked answer for each row."""
        if not read:
            return []
        columns = self.answers(model, Rows(self.scorer.vector, read))
        if len(columns) == 1:
            ((name, values),) = columns.items()
            return [{name: value} for value in values]
        return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]

    def answers(self, model: Loaded, rows: Rows[Any]) -> dict[str, list[Any]]:
        """Call the person's function, and return its checked answers: a list for each field of the prediction."""
        returned = self.scorer.function(model.model, rows)
        given = returned if isinstance(returned, Mapping) else {self._fields[0]: returned}
        columns = {name: _plain(values) for name, values in given.items()}
        if set(columns) != set(self._fields) or any(len(values) != len(rows) for values in columns.values()):
            raise self._wrong(columns, len(rows))
        return self._checked(self._answers, columns)

    def _validated(self, values: Mapping[str, Any]) -> Mapping[str, Any]:
        return self._checked(self._answer, values)

    def _checked(self, check: Callable[[Any], Any], values: Mapping[str, Any]) -> dict[str, Any]:
        try:
            checked: dict[str, Any] = check(values).__dict__
        except ValidationError as error:
            first = error.errors()[0]
            raise ValueError(
                f"{self._name} answered {first['loc'][0]}={first['input']!r}: {first['msg'].lower()}"
            ) from None
        return checked

    def _wrong(self, columns: Mapping[str, Any], rows: int) -> RunError:
        said = ", ".join(f"{len(values)} of {name}" for name, values in columns.items())
        return RunError(
            "scorer-answers",
            f"{self._name} was given {rows:,} rows and returned {said or 'nothing'}",
            why=f"it returns {', '.join(self._fields)} for each row, in their order",
            state="nothing is logged of these rows",
            fix="correct the function: one value for each row"
            + ("" if len(self._fields) == 1 else ", in a mapping from the names of the fields to sequences"),
            source=self.scorer.source,
        )

    def _prediction(
        self,
        asked: ToScore,
        row: Read,
        model: Loaded,
        role: Role,
        values: Mapping[str, Any],
        took_us: int,
        reason: str | None,
    ) -> Prediction:
        shadow = role == "shadow"
        fields: dict[str, Any] = {
            **self._rest,
            "prediction_id": f"{asked.request_id}/{model.version}" if shadow else asked.request_id,
            "request_id": asked.request_id,
            "scorer": self._name,
            "role": role,
            "model": model.name,
            "version": model.version,
            "scored_at": row.read_at,
            "outcome": "scored" if reason is None else "fallback",
            "reason": reason,
            "took_us": took_us,
            "trigger": asked.trigger,
            "trigger_applied": asked.trigger_applied,
        }
        for name in self._keys:
            fields[name] = asked.given[name]
        for name, value in row.values.items():
            fields[name] = [] if value is None and name in self._lists else value
        for origin in row.provenance:
            names = self._views[origin.view]
            fields[names.build], fields[names.batch], fields[names.found] = origin.build, origin.batch, origin.found
        fields.update(values)
        made: Prediction = self._make(fields)
        return made

    # Loading ---------------------------------------------------------------------------------------------------------

    def load_once(self) -> Loaded:
        """Load and check the live model alone, without looking for other versions later."""
        loaded = Loader(self.scorer.model, self.scorer, self._root).load()
        self._warm(loaded)
        return loaded

    def _warm(self, loaded: Loaded) -> None:
        """Score a made-up row with a model, before it is used: a model that does not fit shows here, not at 3 a.m."""
        kinds = self.scorer.vector.__leftfold_kinds__
        values = {name: [] if kind.repeated else _MADE_UP[kind.kind] for name, kind in kinds.items()}
        try:
            self._call(loaded, [Read(values, clock.now(), ())])
        except LeftfoldError:
            raise
        except Exception as error:  # a model may raise anything
            raise RunError(
                "model-not-loaded",
                f"version {loaded.version} of {loaded.name} does not score a row of {self.scorer.vector.__name__}",
                why=f"{type(error).__name__}: {error}",
                state="nothing is scored by it; a model that was loaded before stays in use",
                fix=f"correct the model, or the function of {self._name}",
                source=self.scorer.source,
            ) from error

    def close(self) -> None:
        self.models.close()


def new_id() -> str:
    """Return a new id of a request: a UUID of version 7, which begins with the time."""
    stamp = clock.now_us() // 1_000
    random = int.from_bytes(os.urandom(10))
    number = stamp << 80 | 7 << 76 | (random >> 68 & 0xFFF) << 64 | 0b10 << 62 | random & (1 << 62) - 1
    text = f"{number:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


_MADE_UP: dict[str, Any] = {
    **{"string": "", "int": 0, "float": 0.0, "bool": False, "bytes": b""},
    "datetime": datetime.fromisoformat("2000-01-01T00:00:00+00:00"),
}


def _plain(values: Any) -> Any:
    """Return a NumPy array, or a column of a data frame, as a list of Python's own numbers."""
    return values.tolist() if hasattr(values, "tolist") else list(values)


def _answer_fields(prediction: type[Prediction]) -> dict[str, FieldInfo]:
    return {name: prediction.model_fields[name] for name in prediction.__leftfold_answers__}


def _annotated(info: FieldInfo) -> Any:
    """Return the type of a field with its rules, as the type of a list's items."""
    return Annotated[(info.annotation, *info.metadata)] if info.metadata else info.annotation
