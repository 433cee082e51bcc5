"""Scorers: a function that calls a model with rows of a vector, for requests, for records of a topic, for a frame."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeAlias, TypedDict, TypeVar, Union, Unpack, overload

from leftfold.declare import collector
from leftfold.declare.consumer import MOST_PARALLEL, Consumer, Start, between, checked_start, one_of
from leftfold.declare.delivery import Batch, MostDead, Retry
from leftfold.declare.event import fields_of, reference
from leftfold.declare.model_source import Canary, Model, ModelSource
from leftfold.declare.names import check_view_name
from leftfold.declare.prediction import Prediction, Predictions
from leftfold.declare.topic import Topic
from leftfold.declare.vector import Vector
from leftfold.declare.vector_rows import Rows
from leftfold.errors import DeclarationError, SourceLine, caller
from leftfold.fold.durations import SECOND, Duration, micros
from leftfold.fold.expressions import Expression, FieldRef, condition

V = TypeVar("V", bound=Vector)
P = TypeVar("P", bound=Prediction)
M = TypeVar("M")
Source: TypeAlias = Union[ModelSource[M], Callable[[], Union[M, Model[M]]]]  # noqa: UP007 # no | with a type variable
Answers: TypeAlias = Sequence[Any] | Mapping[str, Sequence[Any]]
Trigger = Literal["as_is", "applied"]
Missing = Literal["score", "fallback", "refuse"]
LogMode = Literal["behind", "before"]

# A stream is scored in batches of what is there: one read of features, one call of the model, one acknowledgement.
_BATCH = 256
_WITHIN = "3s"
_APPLIED_BATCH = 1_000  # such a batch waits for the views anyway, so a large one costs nothing


@dataclass(frozen=True, eq=False)
class Each:
    """The records of a topic that are scored, and the fields that give keys and requests of the vector."""

    topic: Topic[Any]
    start: Start
    where: Expression | None
    fields: Mapping[str, FieldRef]


def each(topic: Topic[Any], /, *, start: Start, where: Any = None, **fields: Any) -> Each:
    """Score each accepted record of a topic: `on=lf.each(payments, start="now", amount=Payment.amount)`.

    Keys and requests of the vector come from fields of the same name, or from those that are given by name. `start` is
    where scoring begins without a position of its own. With `where`, other records are passed over.
    """
    source = caller()
    if not isinstance(topic, Topic):
        raise DeclarationError(
            "not-a-topic",
            f"lf.each was given {topic!r}",
            why="the records of a topic are scored",
            fix="pass a lf.Topic",
            source=source,
        )
    given = {name: reference(topic.event, field, option=name, source=source) for name, field in fields.items()}
    return Each(topic, checked_start("lf.each", start, source), condition(where), given)


@dataclass(frozen=True, eq=False)
class Scorer(Generic[V, P]):
    """A scorer, as made by `@lf.scorer`. A test can call it like the function that it was made from."""

    name: str
    vector: type[V]
    to: Predictions[P]
    model: Source[Any]
    function: Callable[[Any, Rows[V]], Answers]
    on: Each | None
    trigger: Trigger
    within_s: float
    expire_us: int | None
    deadline_s: float | None
    fallback: Any
    missing: Missing
    shadows: tuple[Source[Any], ...]
    canary: Canary | None
    log: LogMode
    consumer: Consumer[..., Any] | None  # that scores the records of `on`
    source: SourceLine

    def __call__(self, model: Any, rows: Rows[V]) -> Answers:
        return self.function(model, rows)

    @property
    def __name__(self) -> str:
        return self.name

    @property
    def prediction(self) -> type[P]:
        event: type[Any] = self.to.event
        return event


class ScorerOptions(TypedDict, total=False):
    """The options of a scorer that do not change the form of its function."""

    name: str  # by default the function's name
    on: Each  # the records that are scored; without it, only requests
    delivery: Literal["at_least_once", "exactly_once"]  # of predictions for records
    trigger: Trigger  # "applied": wait until the features hold the record that woke the scorer
    within: Duration  # at most so long; then it is scored as it is
    expire: Duration  # records that are older than this are not scored, but counted
    parallel: int  # how many batches at once in a process
    retry: Retry
    most_dead: MostDead
    deadline: Duration  # of a request: features and model together
    fallback: Any  # the answer beyond the deadline: a value, or a function of the row
    missing: Missing  # for a row of which a view has no data: "score" it, the "fallback", or "refuse" it
    shadow: Sequence[Source[Any]]  # models that are scored and logged, and never answered
    canary: Canary
    log: LogMode  # of a request: "before" acknowledges the prediction before it is answered


# A checker that met the three forms of `model` in one union would not find M for a loader that returns a lf.Model.
@overload
def scorer(
    vector: type[V],
    *,
    to: Predictions[P],
    model: ModelSource[M] | Callable[[], Model[M]],
    **options: Unpack[ScorerOptions],
) -> Callable[[Callable[[M, Rows[V]], Answers]], Scorer[V, P]]: ...
@overload
def scorer(
    vector: type[V], *, to: Predictions[P], model: Callable[[], M], **options: Unpack[ScorerOptions]
) -> Callable[[Callable[[M, Rows[V]], Answers]], Scorer[V, P]]: ...
def scorer(
    vector: type[V], *, to: Predictions[P], model: Any, **options: Unpack[ScorerOptions]
) -> Callable[[Callable[[Any, Rows[V]], Answers]], Scorer[V, P]]:
    """Declare a function as a scorer: it gets a model and rows of the vector, and returns one answer for each row.

    An answer is the value of the field that the prediction declares. If it declares several, the function returns a
    mapping from their names to sequences.
    """
    source = caller()

    def decorate(function: Callable[[Any, Rows[V]], Answers]) -> Scorer[V, P]:
        name = check_view_name(options.get("name") or function.__name__, source)
        _check_function(name, function, source)
        _check_to(name, vector, to, source)
        fallback, deadline = options.get("fallback"), options.get("deadline")
        missing = one_of(name, "missing", options.get("missing", "score"), ("score", "fallback", "refuse"), source)
        if fallback is None and (deadline is not None or missing == "fallback"):
            raise DeclarationError(
                "scorer-fallback",
                f"{name} has {'a deadline' if deadline is not None else 'missing=fallback'}, and no fallback",
                why="a request needs an answer then",
                fix="give fallback= a value, or a function of the row",
                source=source,
            )
        trigger = one_of(name, "trigger", options.get("trigger", "as_is"), ("as_is", "applied"), source)
        expire = options.get("expire")
        declared = Scorer(
            name=name,
            vector=vector,
            to=to,
            model=model,
            function=function,
            on=options.get("on"),
            trigger=trigger,
            within_s=micros(options.get("within", _WITHIN), option="within", source=source) / SECOND,
            expire_us=None if expire is None else micros(expire, option="expire", source=source),
            deadline_s=None if deadline is None else micros(deadline, option="deadline", source=source) / SECOND,
            fallback=fallback,
            missing=missing,
            shadows=tuple(options.get("shadow", ())),
            canary=options.get("canary"),
            log=one_of(name, "log", options.get("log", "behind"), ("behind", "before"), source),
            consumer=_consumer(name, vector, to, options, source),
            source=source,
        )
        collector.declare(declared, source.file)
        return declared

    return decorate


def asked_by(on: Each, vector: type[Vector]) -> dict[str, FieldRef]:
    """Return the fields that give the keys and requests of a vector, for a record of a topic."""
    definition = vector.__leftfold_definition__
    names = [*vector.__leftfold_keys__, *(i.name for i in definition.inputs)]
    own = fields_of(on.topic.event)
    return {
        name: on.fields[name] if name in on.fields else FieldRef(name, own[name].kind, on.topic.event)
        for name in names
        if name in on.fields or name in own
    }


def _consumer(
    name: str, vector: type[Vector], to: Predictions[Any], options: ScorerOptions, source: SourceLine
) -> Consumer[..., Any] | None:
    """Return the consumer that scores the records of a topic. Its function is set when it runs."""
    on = options.get("on")
    if on is None:
        if alone := [o for o in ("trigger", "within", "expire", "delivery", "parallel", "retry") if o in options]:
            raise DeclarationError(
                "scorer-trigger",
                f"{name} has {alone[0]}=, and scores no records",
                why="it is about records that wake a scorer",
                fix=f"add on=lf.each(TOPIC, start=…), or leave {alone[0]}= out",
                source=source,
            )
        return None
    _check_asked(name, on, vector, source)
    applied = options.get("trigger") == "applied"
    within_s = micros(options.get("within", _WITHIN), option="within", source=source) / SECOND if applied else 0.0
    delivery = options.get("delivery", "at_least_once")
    batch = Batch(_APPLIED_BATCH if applied else _BATCH, within=None)
    return Consumer(
        name=name,
        topics=(on.topic,),
        function=_not_running,
        start=on.start,
        delivery=one_of(name, "delivery", delivery, ("at_least_once", "exactly_once"), source),
        order="partition",
        parallel=between(name, "parallel", options.get("parallel", 16 if applied else 4), MOST_PARALLEL, source),
        batch=batch,
        to=to,
        into=None,
        retry=options.get("retry") or Retry(),
        failure="dead",
        most_dead=options.get("most_dead") or MostDead(),
        late="skip",
        timeout_s=60.0 + within_s,
        in_flight=16_000 if applied else 4_000,
        drain_s=10.0,
        wants_record=True,
        source=source,
    )


def _not_running(events: list[Any], records: list[Any]) -> list[Any]:
    raise NotImplementedError("the function of a running scorer takes its place")


def _check_function(name: str, function: Callable[..., Any], source: SourceLine) -> None:
    parameters = inspect.signature(function).parameters.values()
    needed = [p for p in parameters if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if len(needed) != 2 or inspect.iscoroutinefunction(function):
        raise DeclarationError(
            "scorer-signature",
            f"{name}({', '.join(str(p) for p in parameters)}) cannot be called with a model and rows",
            why="a scorer's function is a plain def that takes the model and the rows",
            fix=f"write def {name}(model, rows)",
            source=source,
        )


def _check_to(name: str, vector: type[Vector], to: Any, source: SourceLine) -> None:
    if not isinstance(to, Predictions) or to.event.__leftfold_vector__ is not vector:  # type: ignore[attr-defined]
        raise DeclarationError(
            "predictions-vector",
            f"{name} reads {vector.__name__} and writes to {to.name if isinstance(to, Topic) else to!r}",
            why="a prediction holds the values of the vector that it was made from",
            fix=f"write to=lf.Predictions(…) of a prediction with of={vector.__name__}",
            source=source,
        )


def _check_asked(name: str, on: Each, vector: type[Vector], source: SourceLine) -> None:
    definition, asked = vector.__leftfold_definition__, asked_by(on, vector)
    kinds = {**vector.__leftfold_keys__, **{i.name: i.kind for i in definition.inputs}}
    unknown = [field for field in on.fields if field not in kinds]
    absent = [field for field in kinds if field not in asked]
    other = [f for f, kind in kinds.items() if f in asked and kind is not None and asked[f].kind != kind]
    if not (unknown or absent or other):
        return
    event = on.topic.event.__name__
    if absent:
        what, fix = f"{event} has no field {absent[0]}", f"name one: lf.each(…, {absent[0]}={event}.FIELD)"
    elif unknown:
        what, fix = f"lf.each was given {unknown[0]}", f"leave {unknown[0]} out"
    else:
        field = asked[other[0]]
        what, fix = f"{other[0]} is {field.kind} in {event}", f"take a field of kind {kinds[other[0]]}"
    raise DeclarationError(
        "scorer-trigger",
        f"{name} cannot score records of {on.topic.name}: {what}",
        why=f"{vector.__name__} is asked for by {', '.join(f'{n}: {k}' if k else n for n, k in kinds.items())}",
        fix=fix,
        source=source,
    )
