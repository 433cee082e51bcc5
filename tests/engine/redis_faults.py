"""A real Redis behind one address, which a test can make go back in time.

There are three ways: restart from a dump, lose everything, or fail over to a lagging replica. All clients use the
address of a relay, as they would use that of a proxy or a service. Behind the relay is the primary. A second relay
carries the replication, so that a test can choose the moment from which the replica lags.
"""

from __future__ import annotations

import contextlib
import itertools
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import redis

from tests.engine.projects import await_true

HOST = "127.0.0.1"
KINDS = ("dump", "flush", "failover")
_CHUNK = 4_096  # bytes; one call of a writer takes a few chunks


class Relay:
    """A TCP relay from its own port to the port `target`.

    A test can have a function called when a client sends certain bytes.
    """

    def __init__(self, target: int) -> None:
        self.target = target
        self.held = threading.Event()  # once set, nothing from the target is passed on
        self._due: tuple[bytes, int, Callable[[], None]] | None = None
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._listener = socket.create_server((HOST, 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def strike_at(self, said: bytes, after: int, how: Callable[[], None]) -> None:
        """Call `how` once, after a client has sent `said` and at least `after` more bytes have been passed on."""
        self._due = (said, after, how)

    def cut(self) -> None:
        """Cut every connection. Clients notice it before they send anything more, and connect again."""
        with self._lock:
            for one in self._open:
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return  # closed
            try:
                server = socket.create_connection((HOST, self.target), timeout=5)
            except OSError:
                client.close()
                continue
            server.settimeout(None)
            for one in (client, server):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._open |= {client, server}
            threading.Thread(target=self._pass, args=(client, server, True), daemon=True).start()
            threading.Thread(target=self._pass, args=(server, client, False), daemon=True).start()

    def _pass(self, one: socket.socket, other: socket.socket, from_client: bool) -> None:
        passed: int | None = None  # bytes since the client sent what is waited for; None: not sent yet
        with contextlib.suppress(OSError):
            while said := one.recv(_CHUNK):
                if from_client and (due := self._due) is not None:
                    if passed is None and due[0] in said:
                        passed = 0
                    if passed is not None and passed >= due[1] and self._take(due):
                        due[2]()
                    passed = None if passed is None else passed + len(said)
                if not from_client and self.held.is_set():
                    continue
                other.sendall(said)
        with self._lock:  # so that after `cut` every client has been told, whoever was first to notice a dead target
            for each in (one, other):
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
                each.close()
            self._open -= {one, other}

    def _take(self, due: tuple[bytes, int, Callable[[], None]]) -> bool:
        with self._lock:
            taken = self._due is due
            if taken:
                self._due = None
            return taken


class _Server:
    """A redis-server that saves nothing by itself: after a restart it has only what an explicit dump holds."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True)
        self.directory = directory
        with socket.create_server((HOST, 0)) as probe:
            self.port: int = probe.getsockname()[1]
        self.start()

    def start(self, *options: str) -> None:
        settings = [
            "--save",
            "",
            "--appendonly",
            "no",
            "--enable-debug-command",
            "yes",
            "--repl-diskless-sync-delay",
            "0",
        ]
        where = ["--port", str(self.port), "--bind", HOST, "--dir", str(self.directory)]
        self.process = subprocess.Popen(["redis-server", *where, *settings, *options], stdout=subprocess.DEVNULL)
        self.client: Any = redis.Redis(host=HOST, port=self.port, decode_responses=True)
        await_true(self._answers, timeout=240, what="redis-server")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self.client.close()

    def _answers(self) -> bool:
        try:
            return bool(self.client.ping())
        except redis.RedisError:  # not there yet, or loading
            return False


class Store:
    """The address that readers and writers use, and the faults that a test can cause in the Redis behind it."""

    def __init__(self, root: Path) -> None:
        self._root, self._numbers = root, itertools.count()
        self.primary = self._server()
        self.front = Relay(self.primary.port)
        self.port = self.front.port
        self.url = f"redis://{HOST}:{self.port}/0"
        self._link: Relay | None = None
        self._replica: _Server | None = None
        self._fences: list[threading.Timer] = []  # each ends an old primary
        self.strikes = self.bites = 0

    def _server(self) -> _Server:
        return _Server(self._root / f"redis-{next(self._numbers)}")

    def follow(self) -> None:
        """Start a replica of the primary. It keeps up with the primary until `remember`."""
        self._drop_replica()
        self._link = Relay(self.primary.port)
        self._replica = self._server()
        self._replica.client.replicaof(HOST, self._link.port)
        await_true(self._level, timeout=240, what="a replica")

    def remember(self, kind: str) -> None:
        """Make the present content the one that the store goes back to at a strike of this kind."""
        if kind == "dump":
            self.primary.client.save()
        elif kind == "failover":
            if self._replica is None:
                self.follow()
            assert self._link is not None
            if not self._link.held.is_set():
                await_true(self._level, timeout=240, what="a replica that has everything")
                self._link.held.set()

    def strike(self, kind: str, *, lingers: bool = False) -> None:
        """Make the store go back in time, in one of the KINDS, while clients are connected.

        Writes that the store has already answered are lost. A primary that `lingers` does not know yet that another
        one took over: for a second it still answers the clients that are connected to it.
        """
        before = self._digest()
        if kind == "flush":
            self.primary.client.flushall()
        elif kind == "dump":
            self.primary.kill()
            self.primary.start()
            self.front.cut()
        else:
            assert self._replica is not None, "a failover needs a replica that remembers"
            old = self.primary
            if not lingers:
                old.kill()
            self._replica.client.replicaof("NO", "ONE")
            self.primary, self._replica = self._replica, None
            self.front.target = self.primary.port
            if not lingers:
                self.front.cut()
            else:
                self._fences.append(timer := threading.Timer(1, old.kill))
                timer.start()
        self.strikes += 1
        self.bites += self._digest() != before

    def _level(self) -> bool:
        assert self._replica is not None
        told = self._replica.client.info("replication")
        ours = self.primary.client.info("replication")["master_repl_offset"]
        return told["master_link_status"] == "up" and bool(told["slave_repl_offset"] >= ours)

    def _digest(self) -> str:
        return str(self.primary.client.execute_command("DEBUG", "DIGEST"))

    def _drop_replica(self) -> None:
        if self._link is not None:
            self._link.close()
        if self._replica is not None:
            self._replica.kill()
        self._link = self._replica = None

    def close(self) -> None:
        for timer in self._fences:
            timer.join()
        self._drop_replica()
        self.front.close()
        self.primary.kill()


@contextmanager
def store_behind_an_address(root: Path) -> Iterator[Store]:
    store = Store(root)
    try:
        yield store
    finally:
        store.close()
