"""Runs the server of scorers and features with uvicorn, on a socket that is opened first."""

from __future__ import annotations

import importlib.util
import signal
import socket
from typing import TYPE_CHECKING

from leftfold.errors import RunError

if TYPE_CHECKING:
    from leftfold.infer.serving import Serving

_LAST_PORT = 65_535
_GRACE_S = 20  # for requests under way when the server is stopped


def check_installed() -> None:
    if importlib.util.find_spec("starlette") is None or importlib.util.find_spec("uvicorn") is None:
        raise RunError(
            "serve-missing",
            "Starlette and uvicorn are not installed here",
            why="leftfold serve is made with them; everything else works without them",
            fix="install them: pip install 'leftfold[serve]'",
        )


def listen(host: str, port: int) -> socket.socket:
    """Open the socket. It is done before models are loaded, so that a port that is taken is told at once."""
    listening = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen()
    except OSError as error:
        listening.close()
        raise RunError(
            "serving-port",
            f"nothing can be served at {host}, port {port}",
            why=error.strerror or str(error),
            fix=f"name another one: leftfold serve --port {port + 1 if port < _LAST_PORT else 8_080}",
        ) from error
    return listening


def address(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def run(serving: Serving, listening: socket.socket) -> None:
    """Answer requests until a signal ends it; requests under way are answered first."""
    import uvicorn

    config = uvicorn.Config(
        serving.asgi, log_level="warning", access_log=False, lifespan="on", timeout_graceful_shutdown=_GRACE_S
    )
    # When it has ended, uvicorn raises the signal again that ended it. That must not end this process: the caller looks
    # whether all predictions are acknowledged.
    before = {number: signal.signal(number, _ended) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        uvicorn.Server(config).run(sockets=[listening])
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _ended(_number: int, _frame: object) -> None:
    """Do nothing: the server has ended."""
