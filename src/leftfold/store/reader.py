"""The fast read path: reads rows of views and vectors, by the manifests of their builds.

It needs neither pyspark nor the declarations. A read takes one round trip while the active builds stay the same. An
`Exchange` is the one piece of code that decides what to ask and how to use the answers. The versions for a thread and
for an event loop differ only in how they wait.
"""

from __future__ import annotations

import json
from asyncio import AbstractEventLoop, get_running_loop
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary

from leftfold import clock
from leftfold.declare.acceptance import OUTCOMES
from leftfold.declare.keys import key_values
from leftfold.declare.rows import Provenance, Read
from leftfold.errors import DeclarationError, StoreError
from leftfold.fold.definition import Definition
from leftfold.fold.durations import SECOND
from leftfold.fold.expressions import from_micros
from leftfold.fold.latest import Latest
from leftfold.fold.values import entity_text
from leftfold.fold.vector import VectorDefinition
from leftfold.store.engine import AsyncClient, BuildPlace, Question, Questions, ViewPlace
from leftfold.store.layout import ROW_FIELD, LedgerRow, definition_in, ledger_in
from leftfold.store.opening import open_async_client, open_client
from leftfold.store.tile_read import Held, TileRead, WindowedPart, newest_batch, not_kept, off_step

Exchange = Generator[list[Question], list[Any], Any]  # yields questions, receives their answers
_ROW = ROW_FIELD.encode()
_DAY = 86_400 * SECOND
_NEWEST_ROWS = "it keeps the newest row of each key, and no earlier one"
_TYPES: dict[str, tuple[type, ...]] = {"string": (str,), "int": (int,), "float": (float, int), "bool": (bool,)}


@dataclass(frozen=True)
class AppliedOffsets:
    """The records of a topic that views had applied when rows were read, as far as their marks said."""

    batches: dict[str, int]
    offsets: dict[str, dict[int, int]]  # by view and partition: the newest applied offset, -1 if none was

    def holds(self, row: Read, partition: int, offset: int) -> bool | None:
        """Return whether a row holds the record at this place; None if that is not known, or no view reads its topic.

        A row may be newer than its view's mark, which is written last. Then the mark cannot tell.
        """
        verdicts = [
            True if self.offsets[p.view][partition] >= offset else None if p.batch > self.batches[p.view] else False
            for p in row.provenance
            if p.view in self.offsets
        ]
        if not verdicts or (None in verdicts and False not in verdicts):
            return None
        return False not in verdicts


@dataclass(frozen=True)
class Inside:
    """A row of one view as the store holds it."""

    build: str
    definition: Definition | Latest
    entity: str
    batch: int  # the last batch that was applied completely
    ledger: list[LedgerRow]
    moment: int
    exact: bool  # the moment is not after the newest event: no tile may reach beyond it
    held: Held
    still: bool  # False if a batch was being written: the row may then hold a part of it


@dataclass(frozen=True)
class _Published:
    """A vector that was found by its name, and the question that shows whether it is still the same."""

    definition: VectorDefinition
    document: bytes
    again: Question


@dataclass
class _Followed:
    """The build of a view that this reader believes to be active."""

    at: BuildPlace
    definition: Definition | Latest
    ask: Questions
    row: Callable[[str], Question]  # prepares the question for the row of an entity
    _prepared: dict[int, TileRead] = field(default_factory=dict)

    @property
    def build(self) -> str:
        return self.at.build

    @cached_property
    def heading(self) -> list[Question]:
        """The questions whether the build is still followed, and what it has applied."""
        return self.heading_with(())

    def heading_with(self, fields: Sequence[str]) -> list[Question]:
        """The same with more fields of the mark."""
        return [self.ask.followed(self.at.of), self.ask.mark(self.at, ("batch", "newest", *fields))]

    def reads(self, topic: str) -> bool:
        return any(origin.topic == topic for origin in self.definition.origins)

    def prepared(self, at: int, *, exact: bool) -> TileRead | None:
        """Return which tiles to fetch of a row; None for a view that keeps only the latest row."""
        definition = self.definition
        if isinstance(definition, Latest):
            return None
        finest = definition.steps[0] if definition.steps else 1
        if exact or any(f.window % finest for f in definition.windowed if f.window is not None):
            return TileRead(definition, at, at, exact=exact)
        tick = at // finest if definition.steps else 0
        known = self._prepared.get(tick)
        if known is None:
            known = TileRead(definition, tick * finest, (tick + 1) * finest, exact=False)
            self._prepared = {tick: known}
        return known


class Reader:
    def __init__(self, url: str, namespace: str) -> None:
        self._url = url
        self._namespace = namespace
        self._ask, self._client = open_client(url)
        self._async_clients: WeakKeyDictionary[AbstractEventLoop, AsyncClient] = WeakKeyDictionary()
        self._followed: dict[str, _Followed] = {}
        self._vectors: dict[str, _Published] = {}

    # In a thread ------------------------------------------------------------------------------------------------

    def read(self, target: str | VectorDefinition, asked: Sequence[Mapping[str, Any]], at: int | None) -> list[Read]:
        rows: list[Read] = self._run(self._rows(target, asked, at))
        return rows

    def read_applied(
        self, target: VectorDefinition, asked: Sequence[Mapping[str, Any]], topic: str, partitions: Collection[int]
    ) -> tuple[list[Read], AppliedOffsets]:
        """Read rows, and what their views have applied of some partitions of a declared topic, in one round trip."""
        wanted = _Wanted(topic, tuple(partitions))
        rows: list[Read] = self._run(self._rows(target, asked, None, wanted))
        assert wanted.applied is not None
        return rows, wanted.applied

    def keys(self, name: str) -> dict[str, str]:
        """Return the names and kinds of the arguments that a read of a view or vector takes."""
        kinds: dict[str, str] = self._run(self._request_kinds(name))
        return kinds

    def ledger(self, view: str) -> tuple[str, int, list[LedgerRow]] | None:
        """Return a view's active build, its last applied batch and its ledger; None if the view was never built."""
        place = ViewPlace(self._namespace, view)
        (active,) = self._client.execute([self._ask.followed(place)])
        if active is None:
            return None
        (mark,) = self._client.execute([self._ask.whole_mark(place.build(active.decode()))])
        return active.decode(), *ledger_in(_map(mark))

    def inside(self, view: str, given: Mapping[str, Any], at: int | None) -> Inside:
        """Return one row with everything that its values are made of, and what was applied when it was read."""
        followed: _Followed = self._run(self._follow(view))
        now = clock.now_us()
        moment, exact = now if at is None else at, False
        if moment < now:
            _check_past([followed], moment, now)
        entity = entity_text(key_values(view, followed.definition.keys, given))
        mark = self._ask.whole_mark(followed.at)
        # The mark is written after a batch's rows. If it is the same before and after reading the row, it says what the
        # row holds.
        answers = self._client.execute([mark, followed.row(entity), mark])
        before, row, after = (_map(pairs) for pairs in answers)
        newest = int(after.get(b"newest", b"0"))
        if newest >= moment and at is None:
            moment = newest + 1
        elif newest >= moment:
            _check_edge([followed], moment)
            exact = True
        batch, ledger = ledger_in(after)
        still = before == after and newest_batch(row) <= batch
        return Inside(followed.build, followed.definition, entity, batch, ledger, moment, exact, row, still)

    def _run(self, exchange: Exchange) -> Any:
        answers: list[Any] | None = None
        while True:
            try:
                questions = next(exchange) if answers is None else exchange.send(answers)
            except StopIteration as done:
                return done.value
            answers = self._client.execute(questions)

    # In an event loop -------------------------------------------------------------------------------------------

    async def aread(
        self, target: str | VectorDefinition, asked: Sequence[Mapping[str, Any]], at: int | None
    ) -> list[Read]:
        loop = get_running_loop()  # a connection belongs to the loop in which it was made
        client = self._async_clients.get(loop) or self._async_clients.setdefault(loop, open_async_client(self._url))
        exchange = self._rows(target, asked, at)
        answers: list[Any] | None = None
        while True:
            try:
                questions = next(exchange) if answers is None else exchange.send(answers)
            except StopIteration as done:
                rows: list[Read] = done.value
                return rows
            answers = await client.execute(questions)

    # The exchange -----------------------------------------------------------------------------------------------

    def _rows(
        self,
        target: str | VectorDefinition,
        asked: Sequence[Mapping[str, Any]],
        at: int | None,
        wanted: _Wanted | None = None,
    ) -> Exchange:
        named = None
        if isinstance(target, str) and target not in self._followed:
            named = self._vectors.get(target) or (yield from self._find(target))
        vector = target if isinstance(target, VectorDefinition) else named and named.definition
        followed: dict[str, _Followed] = {}
        for view in [str(target)] if vector is None else vector.views:
            followed[view] = self._followed.get(view) or (yield from self._follow(view))
        now = clock.now_us()
        moment, exact = now if at is None else at, False
        if moment < now:
            _check_past(followed.values(), moment, now)
        while True:
            again = named.again if named else None
            fetch = _Fetch(vector, followed, asked, moment, exact=exact, again=again, wanted=wanted)
            fetch.answers = yield fetch.questions
            if named is not None and fetch.published != named.document:  # the vector was published again
                self._vectors.pop(named.definition.name, None)  # another read may have noticed it, too
                return (yield from self._rows(target, asked, at, wanted))
            if stale := fetch.stale:
                for view in stale:
                    followed[view] = yield from self._follow(view)
            elif exact or fetch.newest < moment:
                return fetch.rows()
            elif at is None:  # some events are ahead of this clock: answer for the moment after the newest
                moment = fetch.newest + 1
            else:
                _check_edge(followed.values(), moment)
                exact = True

    def _find(self, name: str) -> Exchange:
        """Look up a name that is not known yet. Returns the vector; None if it is not a vector, but maybe a view."""
        again = self._ask.vector(self._namespace, name)
        (document,) = yield [again]
        if document is None:
            return None
        named = _Published(VectorDefinition.from_json(json.loads(document)), document, again)
        self._vectors[name] = named
        return named

    def _request_kinds(self, name: str) -> Exchange:
        named = yield from self._find(name)
        vector = named and named.definition
        views = (name,) if vector is None else vector.views
        kinds: dict[str, str] = {}
        for view in views:
            followed = yield from self._follow(view)
            kinds |= {k.name: k.kind for k in followed.definition.keys}
        return kinds | ({} if vector is None else {i.name: i.kind for i in vector.inputs})

    def _follow(self, view: str) -> Exchange:
        place = ViewPlace(self._namespace, view)
        (active,) = yield [self._ask.followed(place)]
        (document,) = (yield [self._ask.manifest(place.build(active.decode()))]) if active else (None,)
        if not document:
            raise StoreError(
                "view-not-built",
                f"the store has no view {view!r}" + (f" in namespace {self._namespace}" if self._namespace else ""),
                why="no run has written it yet, or its name is misspelt",
                fix="leftfold check lists the views that are declared; leftfold run builds them",
            )
        at = place.build(active.decode())
        definition = definition_in(json.loads(document))
        self._followed[view] = _Followed(at, definition, self._ask, self._ask.row(at))
        return self._followed[view]


@dataclass
class _Wanted:
    """A question what views have applied of some partitions of a topic, and its answer."""

    topic: str  # as it is declared
    partitions: tuple[int, ...]
    applied: AppliedOffsets | None = None

    @cached_property
    def fields(self) -> list[str]:
        return [f"{self.topic}/{partition}:{outcome}" for partition in self.partitions for outcome in OUTCOMES]

    def newest(self, entries: Sequence[bytes | None]) -> dict[int, int]:
        offsets = [-1 if entry is None else int(entry.split(b":")[3]) for entry in entries]
        step = len(OUTCOMES)
        return {p: max(offsets[i * step : (i + 1) * step]) for i, p in enumerate(self.partitions)}


class _Fetch:
    """One round trip: what to ask of the store, and what the answers mean."""

    answers: list[Any]

    def __init__(
        self,
        vector: VectorDefinition | None,
        followed: Mapping[str, _Followed],
        asked: Sequence[Mapping[str, Any]],
        moment: int,
        *,
        exact: bool,
        again: Question | None,
        wanted: _Wanted | None,
    ) -> None:
        self._wanted = wanted
        self._vector, self._followed, self._asked, self._moment = vector, followed, asked, moment
        self._plans = {view: f.prepared(moment, exact=exact) for view, f in followed.items()}
        self._keys = [_split(vector, followed, request) for request in asked]
        self.questions = [
            question
            for f in followed.values()
            for question in (f.heading if wanted is None else f.heading_with(wanted.fields))
        ]
        self._headings = len(self.questions)
        if again is not None:
            self.questions.append(again)
        self._places: dict[tuple[str, str], int] = {}
        for entities in self._keys:
            for place in entities.items():
                if place not in self._places:
                    view, entity = place
                    self._places[place] = len(self.questions)
                    self.questions.append(followed[view].row(entity))

    @property
    def published(self) -> bytes | None:
        document: bytes | None = self.answers[self._headings]
        return document

    @property
    def stale(self) -> list[str]:
        """The views that now have another active build."""
        active = self.answers[0 : self._headings : 2]
        return [
            view
            for (view, follow), build in zip(self._followed.items(), active, strict=True)
            if build is None or build.decode() != follow.build
        ]

    @property
    def newest(self) -> int:
        """The newest event time that any of the views has applied."""
        return max(int(mark[1] or 0) for mark in self.answers[1 : self._headings : 2])

    def rows(self) -> list[Read]:
        marks = self.answers[1 : self._headings : 2]
        batches = {view: int(mark[0] or -1) for view, mark in zip(self._followed, marks, strict=True)}
        if (wanted := self._wanted) is not None:
            offsets = {
                view: wanted.newest(mark[2:])
                for (view, followed), mark in zip(self._followed.items(), marks, strict=True)
                if followed.reads(wanted.topic)
            }
            wanted.applied = AppliedOffsets(batches, offsets)
        held = {
            (view, entity): _values(self._followed[view], self._plans[view], _map(self.answers[i]), self._moment)
            for (view, entity), i in self._places.items()
        }
        read_at = from_micros(self._moment)
        rows = []
        for request, entities in zip(self._asked, self._keys, strict=True):
            parts = {view: held[view, entity] for view, entity in entities.items()}
            origin = tuple(
                Provenance(view, self._followed[view].build, max(batches[view], part.batch), part.found)
                for view, part in parts.items()
            )
            rows.append(Read(_gathered(self._vector, request, parts), read_at, origin))
        return rows


def _split(
    vector: VectorDefinition | None, followed: Mapping[str, _Followed], request: Mapping[str, Any]
) -> dict[str, str]:
    """Return the entity to read from each view."""
    if vector is None:
        ((view, only),) = followed.items()
        return {view: entity_text(key_values(view, only.definition.keys, request))}
    known = {i.name for i in vector.inputs}
    for needed in vector.inputs:
        if type(request.get(needed.name)) not in _TYPES[needed.kind]:
            raise DeclarationError(
                "wrong-request",
                f"{vector.name} was given {needed.name}={request[needed.name]!r}"
                if needed.name in request
                else f"{vector.name} was given no {needed.name}",
                why=f"the caller gives it, as {needed.kind}",
                fix=f"pass {needed.name}=... of that kind",
            )
    entities = {}
    for view, follow in followed.items():
        names = [k.name for k in follow.definition.keys]
        known.update(names)
        if absent := [name for name in names if name not in request]:
            raise DeclarationError(
                "wrong-key",
                f"{vector.name} was given no {absent[0]}",
                why=f"its values of {view} are found by {', '.join(names)}",
                fix=f"pass {absent[0]}=... too",
            )
        mine = {name: request[name] for name in names}
        entities[view] = entity_text(key_values(view, follow.definition.keys, mine))
    if unknown := [name for name in request if name not in known]:
        raise DeclarationError(
            "wrong-key",
            f"{vector.name} was given {unknown[0]}={request[unknown[0]]!r}",
            why=f"it takes {', '.join(sorted(known))}",
            fix=f"leave {unknown[0]} out",
        )
    return entities


def _map(pairs: Sequence[bytes]) -> dict[bytes, bytes]:
    """Return a map from its names and values: name, value, name, value, …"""
    return dict(zip(pairs[0::2], pairs[1::2], strict=True))


def _values(followed: _Followed, plan: TileRead | None, held: Held, at: int) -> WindowedPart:
    definition = followed.definition
    if plan is not None:
        return plan.values(held, at)
    assert isinstance(definition, Latest)
    _, batch, *row = json.loads(held[_ROW]) if _ROW in held else (0, -1)
    return WindowedPart(definition.row(row or None), bool(row), batch)


def _gathered(
    vector: VectorDefinition | None, request: Mapping[str, Any], parts: Mapping[str, WindowedPart]
) -> dict[str, Any]:
    if vector is None:
        (only,) = parts.values()
        return only.values
    row: dict[str, Any] = {
        i.name: float(request[i.name]) if i.kind == "float" else request[i.name] for i in vector.inputs
    }
    for part in vector.parts:
        values = parts[part.view].values
        if part.feature not in values:
            raise not_built(part.view, part.feature)
        value = values[part.feature]
        row[part.name] = part.default if value is None else value
    return {name: row[name] for name in vector.order}


def not_built(view: str, feature: str) -> StoreError:
    return StoreError(
        "feature-not-built",
        f"{view}.{feature} is declared, but the active build does not have it",
        why="the declaration is newer than what runs",
        fix="leftfold run builds it; readers move over when it has caught up",
    )


def _check_past(followed: Iterable[_Followed], at: int, now: int) -> None:
    """Raise if a past moment cannot be read, whatever the store holds."""
    for follow in followed:
        definition = follow.definition
        if isinstance(definition, Latest):
            raise not_kept(definition, at, _NEWEST_ROWS)
        if at < now - _DAY:  # a row without writes for so long may be gone, and would read as empty
            raise not_kept(definition, at, "it is more than a day ago, and the store has values of the past day")


def _check_edge(followed: Iterable[_Followed], at: int) -> None:
    """Raise if a moment that is not after the newest event cannot be read."""
    for follow in followed:
        definition = follow.definition
        if isinstance(definition, Latest):
            raise not_kept(definition, at, _NEWEST_ROWS)
        if definition.lifetime:
            raise not_kept(definition, at, "it has a feature without a window, which has one value: the newest")
        if at % definition.steps[0]:
            raise off_step(definition, at)
