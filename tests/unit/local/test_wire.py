"""The Metadata answer, from bytes, and from sockets that are not brokers."""

from __future__ import annotations

import socket
import struct
import threading

import pytest

from leftfold.local import wire
from leftfold.local.endpoints import HOST


def answer(brokers: dict[int, int], *, rack: bytes | None = None, correlation: int = 7) -> bytes:
    body = struct.pack(">ii", correlation, len(brokers))
    for node, port in brokers.items():
        rack_field = struct.pack(">h", -1) if rack is None else struct.pack(">h", len(rack)) + rack
        body += struct.pack(">ih", node, 9) + b"127.0.0.1" + struct.pack(">i", port) + rack_field
    return body + struct.pack(">ii", 1, 0)  # controller, topics


@pytest.mark.parametrize("rack", [None, b"", b"cellar"])
def test_brokers_are_read(rack: bytes | None) -> None:
    assert wire.parse(answer({1: 20001, 2: 20002}, rack=rack)) == {1: 20001, 2: 20002}


def test_an_answer_to_another_question_is_none() -> None:
    assert wire.parse(answer({1: 20001}, correlation=8)) == {}


def served(reply: bytes) -> dict[int, int]:
    """What live_brokers makes of a server that reads a request, sends this and hangs up."""
    with socket.create_server((HOST, 0)) as server:

        def serve() -> None:
            link, _ = server.accept()
            with link:
                link.recv(1024)
                link.sendall(reply)

        thread = threading.Thread(target=serve)
        thread.start()
        found = wire.live_brokers(server.getsockname()[1])
        thread.join()
    return found


def test_a_broker_answers() -> None:
    body = answer({3: 20003})
    assert served(struct.pack(">i", len(body)) + body) == {3: 20003}


@pytest.mark.parametrize(
    "reply",
    [b"", b"\0\0", b"HTTP/1.1 400 Bad Request\r\n\r\n", struct.pack(">i", 100) + answer({1: 1})[:12], b"\0\0\0\1x"],
    ids=["hangs up", "half a size", "a web server", "half an answer", "too short"],
)
def test_what_is_not_a_broker_is_not_ready(reply: bytes) -> None:
    assert served(reply) == {}


def test_nobody_listens() -> None:
    with socket.create_server((HOST, 0)) as server:
        port = server.getsockname()[1]
    assert wire.live_brokers(port) == {}
