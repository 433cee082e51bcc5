"""A real Postgres behind one address, which a test can make go back in time: the twin of `redis_faults`.

A "dump" is a base backup: the server is killed, and another one starts on what was backed up. A "flush" drops all
tables. A "failover" promotes a standby that lagged.
"""

from __future__ import annotations

import itertools
import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg

from leftfold.local import postgres_server
from leftfold.local.postgres_server import _unprivileged, _user
from leftfold.local.service import Service
from tests.engine.projects import await_true
from tests.engine.redis_faults import HOST, Relay

# Nothing here outlives a crash of the machine, and a kill of the server loses nothing without it.
_QUICK = ("-c", "fsync=off", "-c", "max_wal_size=64MB", "-c", "shared_buffers=16MB")


class _Server:
    """One postgres on a port of its own, which survives a kill."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.port = _free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def service(self) -> Service:
        return postgres_server.service(self.home, port=self.port)

    @property
    def conninfo(self) -> str:
        passfile = (self.home / "postgres" / "password").absolute()
        return f"host={HOST} port={self.port} user=leftfold dbname=postgres passfile={passfile}"

    def format(self) -> None:
        made = postgres_server.format_service(self.service)
        subprocess.run([*made.argv, "--no-sync"], check=True, stdout=subprocess.DEVNULL)
        assert postgres_server.keep(self.service)

    def copy_of(self, other: _Server, *, port: int, options: tuple[str, ...] = ()) -> None:
        """Take a base backup of another server, through a port. With -R it is that one's standby."""
        directory = self.service.directory
        data = directory / "data"
        data.mkdir(parents=True, mode=0o700)
        if (user := _user()) is not None:
            os.chown(data, user.pw_uid, user.pw_gid)
        password = directory / "password"
        password.write_bytes((other.service.directory / "password").read_bytes())
        password.chmod(0o600)
        # libpq refuses a password file that others may read, and takes one of another user.
        secret = password.read_text().strip().rpartition(":")[2]
        source = f"host={HOST} port={port} user=leftfold password={secret} connect_timeout=10"
        command = [str(postgres_server.find() / "pg_basebackup"), "-d", source, "-D", str(data), "-c", "fast", "-N"]
        subprocess.run([*_unprivileged(), *command, *options], check=True)

    def start(self) -> None:
        service = self.service
        service.log.parent.mkdir(parents=True, exist_ok=True)
        with service.log.open("ab") as log:
            self._process = subprocess.Popen([*service.argv, *_QUICK], cwd=service.directory, stdout=log, stderr=log)
        await_true(self.answers, timeout=240, what="postgres")

    def answers(self) -> bool:
        with suppress(psycopg.OperationalError):
            psycopg.connect(self.conninfo, connect_timeout=5).close()
            return True
        return False

    def run(self, statement: str) -> object:
        with psycopg.connect(self.conninfo, autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            row = cursor.fetchone() if cursor.description else None
            return row and row[0]

    def kill(self) -> None:
        """Kill the postmaster and all of its children, as a machine that is gone."""
        if self._process is None:
            return
        children = [int(pid) for pid in _children(self._process.pid)]
        self._process.kill()
        self._process.wait()
        for child in children:
            with suppress(ProcessLookupError):
                os.kill(child, 9)
        await_true(lambda: not any(map(_lives, children)), timeout=60, what="the end of postgres")
        (self.service.directory / "data" / "postmaster.pid").unlink(missing_ok=True)
        self._process = None


class PostgresStore:
    """The address that readers and writers use, and the faults that a test can cause in the Postgres behind it."""

    def __init__(self, root: Path) -> None:
        self._root, self._numbers = root, itertools.count()
        self.primary = self._server()
        self.primary.format()
        self.primary.start()
        self.front = Relay(self.primary.port)
        self.port = self.front.port
        passfile = (self.primary.service.directory / "password").absolute()
        self.url = f"postgresql://leftfold@{HOST}:{self.port}/postgres?passfile={passfile}"
        self._link: Relay | None = None
        self._other: _Server | None = None  # the backup, or the standby

    def _server(self) -> _Server:
        return _Server(self._root / f"postgres-{next(self._numbers)}")

    def remember(self, kind: str) -> None:
        """Make the present content the one that the store goes back to at a strike of this kind."""
        if kind == "dump":
            self._other = self._server()
            self._other.copy_of(self.primary, port=self.primary.port)
        elif kind == "failover":
            self._link, self._other = Relay(self.primary.port), self._server()
            self._other.copy_of(self.primary, port=self._link.port, options=("-R",))
            self._other.start()
            await_true(self._level, timeout=240, what="a standby that has everything")
            self._link.held.set()

    def strike(self, kind: str) -> None:
        """Make the store go back in time while clients are connected. Commits that it has answered are lost."""
        if kind == "flush":
            self.primary.run("drop schema leftfold cascade")
            return
        assert self._other is not None
        self.primary.kill()
        if kind == "dump":
            self._other.start()
        else:
            self._other.run("select pg_promote()")
        self.primary, self._other = self._other, None
        self.front.target = self.primary.port
        self.front.cut()

    def _level(self) -> bool:
        assert self._other is not None
        here = self.primary.run("select pg_current_wal_flush_lsn()")
        return bool(self._other.run(f"select pg_last_wal_replay_lsn() >= '{here}'"))

    def close(self) -> None:
        if self._link is not None:
            self._link.close()
        if self._other is not None:
            self._other.kill()
        self.front.close()
        self.primary.kill()


@contextmanager
def postgres_behind_an_address(root: Path) -> Iterator[PostgresStore]:
    store = PostgresStore(root)
    try:
        yield store
    finally:
        store.close()


def _free_port() -> int:
    with socket.create_server((HOST, 0)) as probe:
        port: int = probe.getsockname()[1]
    return port


def _children(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
