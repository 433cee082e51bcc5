"""The server of scorers and features: an ASGI application, made with Starlette.

It has no authentication, so it listens on loopback unless told otherwise; a proxy in front of it knows who asks.
"""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from leftfold.declare.prediction import Prediction, view_fields
from leftfold.declare.rows import Read
from leftfold.declare.vector import Vector
from leftfold.errors import DeclarationError, LeftfoldError
from leftfold.infer.answered import Unlogged
from leftfold.infer.coalescing import Busy, Coalescing
from leftfold.infer.openapi import openapi
from leftfold.infer.requests import RequestScoring
from leftfold.infer.scoring import Scoring, new_id
from leftfold.infer.serving_metrics import exposition
from leftfold.store.reader import Reader

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

_MOST_BYTES = 1_048_576  # of a request's body
_MOST_ROWS = 1_000  # of one request for features
_BAD, _NOT_FOUND, _TOO_LARGE, _REFUSED, _FAILED, _BUSY = 400, 404, 413, 422, 500, 503
_ID = "prediction_id"  # a caller may give its own


class Serving:
    """The scorers and vectors that one server answers for. `open` loads the models; until then it is not ready."""

    def __init__(
        self,
        title: str,
        scorers: Mapping[str, Callable[[], RequestScoring]],
        vectors: Mapping[str, type[Vector]],
        reader: Reader,
        *,
        most_waiting: int,
        lost: Callable[[], Sequence[Unlogged]] = tuple,
    ) -> None:
        self._open = scorers
        self._lost = lost
        self.lost: dict[str, int] = {}  # by scorer: answers of processes that died, which are not in the log
        self._vectors = vectors
        self._reader = reader
        self._most_waiting = most_waiting
        self._scorers: dict[str, Coalescing] = {}
        self.unlogged = 0
        self._ready = False
        self._document: dict[str, Any] = {}
        self._title = title
        routes = [
            Route("/score/{name}", self._answered(self._score), methods=["POST"]),
            Route("/features/{name}", self._answered(self._features), methods=["GET"]),
            Route("/features/{name}", self._answered(self._many_features), methods=["POST"]),
            Route("/health/live", self._live),
            Route("/health/ready", self._is_ready),
            Route("/metrics", self._metrics),
            Route("/models", self._models),
            Route("/openapi.json", self._openapi),
        ]
        self.asgi = Starlette(routes=routes, lifespan=self._lifespan)

    # Life ------------------------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Load all models. Raises if one does not fit."""
        for name, make in self._open.items():
            if name not in self._scorers:
                self._scorers[name] = Coalescing(make(), most_waiting=self._most_waiting)
        declared = {name: one.scoring.scoring.scorer for name, one in self._scorers.items()}
        self._document = openapi(self._title, declared, self._vectors)
        self._ready = True

    @property
    def lose_silently(self) -> list[str]:
        """The scorers whose answers nobody could count if this process were killed before they are logged."""
        return [name for name, one in self._scorers.items() if one.scoring.loses_silently]

    def look_back(self, tell: Callable[[Sequence[Unlogged] | LeftfoldError], None]) -> None:
        """Look in the background which answers of processes that died are not in the log, and tell it once."""

        def look() -> None:
            try:
                found = self._lost()
            except LeftfoldError as error:  # the next start looks again
                tell(error)
                return
            self.lost = {one.scorer: one.count for one in found}
            tell(found)

        threading.Thread(target=look, name="leftfold-look-back", daemon=True).start()

    def close(self) -> None:
        """Wait until predictions are acknowledged. `unlogged` counts those that are not."""
        self._ready = False
        for one in self._scorers.values():
            self.unlogged += one.scoring.close() + one.scoring.log.unlogged

    @asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        self.open()
        try:
            yield
        finally:
            self.close()

    # Requests --------------------------------------------------------------------------------------------------------

    def _answered(self, handle: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            try:
                return await handle(request)
            except _Refused as refused:
                return refused.response
            except Busy:
                return _problem(_BUSY, "server-busy", "too many requests wait", {"Retry-After": "1"})
            except DeclarationError as error:
                return _problem(_BAD, error.code, f"{error.what}: {error.why}")
            except LeftfoldError as error:
                status = _REFUSED if error.code == "score-refused" else _BUSY if error.retriable else _FAILED
                return _problem(status, error.code, error.what)

        return answer

    async def _score(self, request: Request) -> Response:
        name = request.path_params["name"]
        scorer = self._scorers.get(name)
        if scorer is None:
            raise _Refused(_NOT_FOUND, "unknown-scorer", f"this server has no scorer {name}")
        given = await _body(request)
        if not isinstance(given, dict):
            raise _Refused(_BAD, "request-body", "the body is a JSON object with keys and requests")
        request_id = given.pop(_ID, None) or new_id()
        answer = await scorer.score(given, str(request_id))
        return _json(_shown(answer))

    async def _features(self, request: Request) -> Response:
        vector = self._vector(request)
        kinds = {**vector.__leftfold_keys__, **{i.name: i.kind for i in vector.__leftfold_definition__.inputs}}
        given = {name: _typed(kinds.get(name), text) for name, text in request.query_params.items()}
        (row,) = await self._reader.aread(vector.__leftfold_definition__, [given], None)
        return _json(_row(row))

    async def _many_features(self, request: Request) -> Response:
        vector, given = self._vector(request), await _body(request)
        if not isinstance(given, list) or len(given) > _MOST_ROWS or not all(isinstance(one, dict) for one in given):
            what = f"the body is a JSON list of at most {_MOST_ROWS:,} objects with keys and requests"
            raise _Refused(_BAD, "request-body", what)
        rows = await self._reader.aread(vector.__leftfold_definition__, given, None) if given else []
        return _json([_row(row) for row in rows])

    def _vector(self, request: Request) -> type[Vector]:
        name = request.path_params["name"]
        if name not in self._vectors:
            raise _Refused(_NOT_FOUND, "unknown-vector", f"this server has no vector {name}")
        return self._vectors[name]

    async def _live(self, _: Request) -> Response:
        return PlainTextResponse("ok")

    async def _is_ready(self, _: Request) -> Response:
        return PlainTextResponse("ok" if self._ready else "models are loading", 200 if self._ready else _BUSY)

    async def _metrics(self, _: Request) -> Response:
        return PlainTextResponse(exposition(self._scorers, self.lost), media_type="text/plain; version=0.0.4")

    async def _models(self, _: Request) -> Response:
        return _json({name: _in_use(one.scoring.scoring) for name, one in self._scorers.items()})

    async def _openapi(self, _: Request) -> Response:
        return _json(self._document)


class _Refused(Exception):  # noqa: N818 # it carries an answer, and is not an error of the server
    def __init__(self, status: int, code: str, what: str) -> None:
        super().__init__(what)
        self.response = _problem(status, code, what)


async def _body(request: Request) -> Any:
    """Return the decoded body. It is read in pieces, so that a large one is refused before it is in memory."""
    size, pieces = 0, []
    async for piece in request.stream():
        size += len(piece)
        if size > _MOST_BYTES:
            raise _Refused(_TOO_LARGE, "request-too-large", f"a body has at most {_MOST_BYTES:,} bytes")
        pieces.append(piece)
    try:
        return json.loads(b"".join(pieces))
    except ValueError as error:
        raise _Refused(_BAD, "request-body", f"the body is not JSON: {error}") from error


def _typed(kind: str | None, text: str) -> Any:
    try:
        match kind:
            case "int":
                return int(text)
            case "float":
                return float(text)
            case "bool" if text in ("true", "false"):
                return text == "true"
    except ValueError:
        pass
    return text  # of another kind than declared: the reader says so


def _shown(answer: Prediction) -> dict[str, Any]:
    """Return what a caller sees of a prediction: the answer, its model, and the provenance; not the features."""
    held, vector = answer.__dict__, answer.__leftfold_vector__
    names = ("prediction_id", "model", "version", "role", "outcome", "reason", "scored_at", "took_us")
    provenance = [
        {"view": view, "build": held[n.build], "batch": held[n.batch], "found": held[n.found]}
        for view, n in view_fields(vector).items()
        if held[n.found] is not None
    ]
    answers = {name: held[name] for name in answer.__leftfold_answers__}
    return {**answers, **{name: held[name] for name in names}, "provenance": provenance}


def _in_use(scoring: Scoring) -> dict[str, Any]:
    """Return the models of a scorer, and why the newest version of one is not in use or a shadow fails."""
    models = [{"role": role, "model": m.name, "version": m.version} for role, m in scoring.models.now.by_role]
    problem = scoring.models.problem
    return {
        "models": models,
        "problem": scoring.shadow_problem if problem is None else f"{problem.what}: {problem.why}",
    }


def _row(row: Read) -> dict[str, Any]:
    provenance: Sequence[Any] = [
        {"view": p.view, "build": p.build, "batch": p.batch, "found": p.found} for p in row.provenance
    ]
    return {"values": row.values, "read_at": row.read_at, "found": row.found, "provenance": provenance}


def _json(document: Any) -> Response:
    def plain(value: Any) -> str:
        if isinstance(value, datetime):
            return value.isoformat()
        if isinstance(value, bytes):
            return base64.b64encode(value).decode()
        raise TypeError(f"{type(value).__name__} has no JSON form")

    return Response(json.dumps(document, default=plain, ensure_ascii=False), media_type="application/json")


def _problem(status: int, code: str, what: str, headers: Mapping[str, str] | None = None) -> Response:
    body = json.dumps({"error": code, "what": what})
    return Response(body, status, dict(headers or {}), media_type="application/json")
