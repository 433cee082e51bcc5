"""Predictions: answers of a model, as events on a topic of their own.

A prediction holds what it rests on: its keys, requests and features, the build and batch of each view, the model's
version, and the record that woke the scorer. So it can be replayed, joined with its outcome, and computed again.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Optional, TypeVar

from leftfold.declare.event import Event, EventMeta, Personal, fields_of
from leftfold.declare.rows import Provenance, make_row
from leftfold.declare.topic import Topic
from leftfold.declare.vector import PartKind, Vector
from leftfold.errors import DeclarationError, SourceLine, caller
from leftfold.fold.durations import Duration
from leftfold.fold.values import Kind
from leftfold.fold.vector import Part

V = TypeVar("V", bound=Vector)
P_co = TypeVar("P_co", bound="Prediction", covariant=True)
Role = Literal["live", "canary", "shadow"]
PredictionOutcome = Literal["scored", "fallback"]
_TYPES: dict[Kind, type] = {
    "string": str,
    "int": int,
    "float": float,
    "bool": bool,
    "datetime": datetime,
    "bytes": bytes,
}


class PredictionMeta(EventMeta):  # type: ignore[misc] # mypy takes a class of classes for an event
    """Adds the fields of the vector to a prediction, before those that a person declares."""

    def __new__(
        mcs,
        name: str,
        bases: tuple[type, ...],
        namespace: dict[str, Any],
        of: type[Vector] | None = None,
        *,
        for_vector: bool = False,
        **kwargs: Any,
    ) -> Any:
        parents = [base for base in bases if isinstance(base, PredictionMeta)]
        if not parents or for_vector:  # Prediction itself, and the class that holds the fields of a vector
            return super().__new__(mcs, name, bases, namespace, **kwargs)
        declared = dict(namespace.get("__annotations__", {}))
        source = caller()
        vector = _checked_vector(name, of, parents[0], source)
        made: Any = super().__new__(mcs, name, (_with_inputs(name, vector, declared, source),), namespace, **kwargs)
        made.__leftfold_vector__ = vector
        made.__leftfold_answers__ = tuple(
            n for n in declared if n in made.model_fields and n not in vector_keys(vector)
        )
        if not made.__leftfold_answers__:
            raise DeclarationError(
                "prediction-of",
                f"{name} declares no field",
                why="a prediction holds at least one value that the model gives",
                fix="add one, for example score: float",
                source=source,
            )
        return made


class Prediction(Event, metaclass=PredictionMeta):
    """Base of a prediction: `class RankerScore(lf.Prediction, of=RankerInput)`. It declares what the model gives.

    `prediction_id` is the same at every delivery of the record that woke the scorer, so repeats can be told.
    """

    prediction_id: str
    request_id: str  # shared by the predictions of a request: of the live model, and of its shadows
    scorer: str
    role: str  # live: answered; canary: answered by another model; shadow: only logged
    model: str
    version: str
    scored_at: datetime  # the moment for which the features were read
    outcome: str  # scored, or fallback: the answer is not the model's
    reason: str | None = None  # why it is a fallback
    took_us: int = 0
    trigger: str | None = None  # TOPIC/PARTITION/OFFSET of the record that woke the scorer
    trigger_applied: bool | None = None  # whether the features hold that record; None if that is unknown

    __leftfold_vector__: ClassVar[type[Vector]]
    __leftfold_answers__: ClassVar[tuple[str, ...]]  # the fields that the model gives

    if TYPE_CHECKING:

        def __init_subclass__(cls, *, of: type[Vector]) -> None: ...

    def inputs(self, vector: type[V]) -> V:
        """The row that the model was given: features and requests, with their provenance."""
        if vector is not self.__leftfold_vector__:
            raise DeclarationError(
                "prediction-of",
                f"{type(self).__name__} holds no {vector.__name__}",
                why=f"it is a prediction of {self.__leftfold_vector__.__name__}",
                fix=f"ask for inputs({self.__leftfold_vector__.__name__})",
            )
        held = self.__dict__
        provenance = tuple(
            Provenance(view, held[names.build] or "", -1 if held[names.batch] is None else held[names.batch], found)
            for view, names in view_fields(vector).items()
            if (found := held[names.found]) is not None
        )
        values = {name: held[name] for name in vector.__leftfold_names__}
        found_all = bool(provenance) and all(p.found for p in provenance)
        return make_row(vector, values, found=found_all, read_at=self.scored_at, provenance=provenance)


class ViewFields:
    """The names of the fields that hold the provenance of one view."""

    def __init__(self, view: str) -> None:
        plain = re.sub(r"[^A-Za-z0-9]", "_", view)
        self.build, self.batch, self.found = f"{plain}__build", f"{plain}__batch", f"{plain}__found"


def build_column(view: str) -> str:
    """The name of the field that holds the build of a view."""
    return ViewFields(view).build


def view_fields(vector: type[Vector]) -> dict[str, ViewFields]:
    return {view: ViewFields(view) for view in vector.__leftfold_definition__.views}


def vector_keys(vector: type[Vector]) -> tuple[str, ...]:
    """The names of all keys of a vector. Predictions of it are keyed by them."""
    return tuple(vector.__leftfold_keys__)


class Predictions(Topic[P_co]):
    """The topic of a prediction, keyed by the keys of its vector.

    A prediction whose log has it more than `lateness` after it was scored counts nowhere. Outcomes wait so long.
    """

    def __init__(
        self,
        name: str,
        prediction: type[P_co],
        *,
        partitions: int | None = None,
        rate: str | None = None,
        retention: Duration = "30d",
        lateness: Duration = "10m",
        replication: int = 3,
        archive: bool = False,
    ) -> None:
        if not (isinstance(prediction, type) and issubclass(prediction, Prediction) and prediction is not Prediction):
            raise DeclarationError(
                "prediction-of",
                f"topic {name} was given {prediction!r} as its prediction",
                why="it holds predictions of one declared type",
                fix="declare `class RankerScore(lf.Prediction, of=RankerInput)` and pass RankerScore",
                source=caller(),
            )
        super().__init__(
            name,
            prediction,
            key=vector_keys(prediction.__leftfold_vector__),
            time="scored_at",
            partitions=partitions,
            rate=rate,
            retention=retention,
            lateness=lateness,
            replication=replication,
            archive=archive,
        )


def logged_parts(predictions: Predictions[Any]) -> tuple[Part, ...]:
    """The features that predictions of this topic hold, under the names that they have there."""
    prediction: Any = predictions.event
    vector: type[Vector] = prediction.__leftfold_vector__
    return vector.__leftfold_definition__.parts


def _checked_vector(name: str, of: Any, parent: Any, source: SourceLine) -> type[Vector]:
    if parent is Prediction and isinstance(of, type) and issubclass(of, Vector) and of is not Vector:
        return of
    raise DeclarationError(
        "prediction-of",
        f"{name} is a prediction of {'nothing' if of is None else of!r}",
        why="a prediction is made from one vector, whose values it holds; it is not derived from another prediction",
        fix=f"write class {name}(lf.Prediction, of=YOUR_VECTOR)",
        source=source,
    )


def _with_inputs(name: str, vector: type[Vector], declared: dict[str, Any], source: SourceLine) -> type[Prediction]:
    """Return a prediction with the fields of a vector: its keys, its values, and their provenance.

    Values may be missing, so that the vector can grow and shrink while the topic stays.
    """
    fields: dict[str, tuple[Any, Any]] = {}
    for key, kind in vector.__leftfold_keys__.items():
        if kind is None and key in declared:
            continue
        if kind is None:
            raise DeclarationError(
                "prediction-of",
                f"the kind of {key}, a key of {vector.__name__}, is not known",
                why="only a free view has this key, and what it returns is known when it runs",
                fix=f"declare it in {name}: {key}: str, or {key}: int",
                source=source,
            )
        fields[key] = (_marked(_TYPES[kind], personal=key in vector.__leftfold_personal__), ...)
    for part, part_kind in vector.__leftfold_kinds__.items():
        fields[part] = _optional(part_kind, personal=part in vector.__leftfold_personal__)
    for names in view_fields(vector).values():
        fields |= {names.build: (str | None, None), names.batch: (int | None, None), names.found: (bool | None, None)}
    _check_names(name, vector, [*fields], declared, source)
    namespace: dict[str, Any] = {
        "__module__": __name__,
        "__annotations__": {field: annotation for field, (annotation, _) in fields.items()},
        **{field: default for field, (_, default) in fields.items() if default is not ...},
    }
    made: type[Prediction] = PredictionMeta(f"{vector.__name__}Inputs", (Prediction,), namespace, for_vector=True)
    return made


def _optional(part: PartKind, *, personal: bool) -> tuple[Any, Any]:
    kind: Any = _marked(_TYPES[part.kind], personal=personal)
    return (list[kind], []) if part.repeated else (Optional[kind], None)  # noqa: UP045 # a marked type has no |


def _marked(kind: type, *, personal: bool) -> Any:
    """Mark a field that shows personal data: what is marked in the event is marked in the prediction."""
    mark: Any = Personal  # for a type checker it is an alias
    return mark[kind] if personal else kind


def _check_names(
    name: str, vector: type[Vector], taken: list[str], declared: dict[str, Any], source: SourceLine
) -> None:
    own = fields_of(Prediction)
    twice = [field for field in taken if field in own] or [field for field in declared if field in {*own, *taken}]
    if twice:
        raise DeclarationError(
            "prediction-field-taken",
            f"{name} has two fields named {twice[0]}",
            why=f"it holds its own fields ({', '.join(own)}), those of {vector.__name__}, and those that it declares",
            fix="rename the field that you declared, in the vector or in the prediction",
            source=source,
        )
