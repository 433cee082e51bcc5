"""Models behind a server that speaks the Open Inference Protocol, over HTTP with JSON."""

from __future__ import annotations

import http.client
import json
import threading
import urllib.parse
from typing import TYPE_CHECKING, Any

from leftfold.declare.model_source import Remote
from leftfold.infer.loaders import Loaded

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

_TYPES = {"float32": "FP32", "float64": "FP64", "int64": "INT64", "int32": "INT32", "bool": "BOOL"}
_OK = 200


class RemoteServerError(Exception):
    """The server refused a request, or gave an answer that is none."""


class RemoteInference:
    """A model of a server. Each thread has a connection of its own, which is opened again if it breaks."""

    def __init__(self, source: Remote) -> None:
        self._source = source
        self._url = urllib.parse.urlsplit(source.url)
        version = "" if source.version is None else f"/versions/{source.version}"
        self._path = f"{self._url.path.rstrip('/')}/v2/models/{source.model}{version}"
        self._local = threading.local()

    def metadata(self) -> dict[str, Any]:
        return self._ask("GET", self._path, None)

    def run(self, **inputs: Array) -> dict[str, Array]:
        import numpy as np

        asked = [
            {"name": name, "shape": list(one.shape), "datatype": _TYPES[str(one.dtype)], "data": one.ravel().tolist()}
            for name, one in inputs.items()
        ]
        answer = self._ask("POST", f"{self._path}/infer", json.dumps({"inputs": asked}))
        return {one["name"]: np.array(one["data"]).reshape(one["shape"]) for one in answer["outputs"]}

    def _ask(self, method: str, path: str, body: str | None) -> dict[str, Any]:
        try:
            return self._once(method, path, body)
        except (http.client.RemoteDisconnected, ConnectionError):  # it was idle too long; the next one is new
            self._local.connection = None
            return self._once(method, path, body)

    def _once(self, method: str, path: str, body: str | None) -> dict[str, Any]:
        connection = getattr(self._local, "connection", None)
        if connection is None:
            kind = http.client.HTTPSConnection if self._url.scheme == "https" else http.client.HTTPConnection
            connection = kind(self._url.netloc, timeout=self._source.timeout_s)
            self._local.connection = connection
        try:
            connection.request(method, path, body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            text = response.read()
        except BaseException:
            connection.close()
            self._local.connection = None
            raise
        if response.status != _OK:
            raise RemoteServerError(f"{self._source.url} answered {response.status}: {text[:200]!r}")
        answer: dict[str, Any] = json.loads(text)
        return answer


def connect(source: Remote) -> Loaded:
    """Ask the server for its newest version. Requests name none unless the source does, so the server may move on."""
    model = RemoteInference(source)
    versions = model.metadata().get("versions") or []
    version = source.version or (str(versions[-1]) if versions else "")
    return Loaded(model, source.model, version or "unknown")
