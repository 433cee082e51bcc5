"""Serves metrics for Prometheus, and the health of the process, from a thread of its own.

A scrape reads the metrics from the progress of what runs; nothing is counted separately.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.core import Metric
from prometheus_client.exposition import ThreadingWSGIServer
from prometheus_client.registry import Collector

from leftfold.errors import RunError
from leftfold.settings import LISTENING

# Only this machine by default: rates can reveal the figures of a business.
HOST = "127.0.0.1"


class MetricsServer:
    """Serves /metrics, /health/live and /health/ready until it is closed. `url` is the address of the metrics.

    `ready` returns the state of each thing that runs, and whether it is well. The process is ready if all are.
    """

    def __init__(
        self,
        address: str,
        collect: Callable[[], Iterable[Metric]],
        ready: Callable[[], Mapping[str, tuple[str, bool]]] = dict,
    ) -> None:
        """Start to serve at `address`: PORT, HOST:PORT or [IPV6]:PORT. Port 0 takes a free one."""
        match = re.fullmatch(LISTENING, address)
        assert match is not None, f"{address!r} was not checked by whoever took it"
        host, port = match["host"] or HOST, int(match["port"])
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Collector(collect))
        metrics = make_wsgi_app(registry)

        def answer(request: dict[str, Any], start: Any) -> Any:
            path = request.get("PATH_INFO", "")
            if not path.startswith("/health"):
                return metrics(request, start)
            states = {} if path == "/health/live" else ready()
            well = all(ok for _, ok in states.values())
            start("200 OK" if well else "503 Service Unavailable", [("Content-Type", "application/json")])
            return [json.dumps({"ready": well, **{name: state for name, (state, _) in states.items()}}).encode()]

        try:
            self._server = make_server(host.strip("[]"), port, answer, ThreadingWSGIServer, handler_class=_Silent)
        except (OSError, OverflowError) as error:
            raise RunError(
                "metrics-port",
                f"metrics cannot be served at {host}, port {port}",
                why=getattr(error, "strerror", None) or str(error),
                fix="name another one: leftfold run --metrics 9465, or metrics in the profile",
            ) from error
        self._thread = threading.Thread(target=self._server.serve_forever, name="leftfold-metrics", daemon=True)
        self._thread.start()
        self.url = f"http://{host}:{self._server.server_port}/metrics"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Collector(Collector):
    def __init__(self, metrics: Callable[[], Iterable[Metric]]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics()


class _Silent(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Print no line for a request."""
