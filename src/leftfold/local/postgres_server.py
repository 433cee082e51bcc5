"""A Postgres as a local process, for consumers that book into a database: durable, on loopback, with a password.

The password is in a file that only this user can read. The URL names the file, so the URL itself is no secret.

Postgres refuses to run as root. As root, it is started as another user, who keeps one right of root: to enter this
project's private directory.
"""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import signal
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from leftfold import private
from leftfold.errors import LocalError
from leftfold.local import process
from leftfold.local.endpoints import HOST
from leftfold.local.process import Identity
from leftfold.local.service import Service, connect

USER = "leftfold"
_INSTALLED = Path("/usr/lib/postgresql")  # where Debian puts each version; its programs are not on the PATH
# A start-up message of protocol 3.0: its length, the version, a user and a database.
_HELLO = b"\x00\x03\x00\x00user\x00leftfold\x00database\x00postgres\x00\x00"


def find() -> Path:
    """The directory of the server's programs: of the newest version on this machine."""
    on_path = shutil.which("postgres")
    versions = sorted(_INSTALLED.glob("*/bin/postgres"), key=lambda path: float(path.parents[1].name))
    if on_path is None and not versions:
        raise LocalError(
            "postgres-missing",
            "postgres was not found",
            why=f"it is not on the PATH, and not in {_INSTALLED}",
            fix="install it (Debian: `apt install postgresql`, macOS: `brew install postgresql`), then "
            "`leftfold up --postgres`",
        )
    return (Path(on_path).resolve() if on_path else versions[-1]).parent


def service(state: Path, *, port: int) -> Service:
    home = state / "postgres"
    settings = {
        "listen_addresses": HOST,
        "port": str(port),
        "unix_socket_directories": "",
        "max_connections": "200",
        "fsync": "on",
        "synchronous_commit": "on",
        "logging_collector": "off",  # it writes to its log by itself
    }
    data = str((home / "data").absolute())
    argv = (str(find() / "postgres"), "-D", data, *(p for k, v in settings.items() for p in ("-c", f"{k}={v}")))
    return Service(
        name="postgres",
        argv=(*_unprivileged(), *argv),
        directory=home,
        log=state / "logs" / "postgres.log",
        port=port,
    )


def formatted(service: Service) -> bool:
    return (service.directory / "data").exists()


def format_service(service: Service) -> Service:
    """The process that makes the data directory, under another name: a half-made one is never taken for a whole."""
    new = service.directory / "data.new"
    shutil.rmtree(new, ignore_errors=True)
    private.directory(new)
    password = secrets.token_urlsafe(24)
    _write_private(service.directory / "password.new", password)
    _write_private(service.directory / "password", f"*:*:*:{USER}:{password}\n")  # as libpq's .pgpass
    if (user := _user()) is not None:
        os.chown(new, user.pw_uid, user.pw_gid)
    options = ("-U", USER, "--pwfile", str((service.directory / "password.new").absolute()), "-A", "scram-sha-256")
    argv = (str(find() / "initdb"), "-D", str(new.absolute()), *options, "-E", "UTF8", "--locale=C")
    return replace(service, argv=(*_unprivileged(), *argv))


def keep(service: Service) -> bool:
    """Give the new data directory its name. Returns False if it was not made."""
    new = service.directory / "data.new"
    (service.directory / "password.new").unlink()
    if not (new / "global" / "pg_control").exists():
        return False
    new.rename(service.directory / "data")
    return True


def ask_to_end(identities: Iterable[Identity]) -> None:
    """Ask for a fast shutdown. The usual signal to end would wait until all clients have left."""
    for identity in filter(process.alive, identities):
        os.kill(identity.pid, signal.SIGINT)


def answers(port: int) -> bool:
    """True if Postgres asks a new client for its password. While it starts or recovers, it answers with an error."""
    try:
        with connect(port) as link:
            link.sendall((len(_HELLO) + 4).to_bytes(4, "big") + _HELLO)
            return link.recv(1) == b"R"
    except OSError:
        return False


def _write_private(path: Path, text: str) -> None:
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
        file.write(text)


def _user() -> pwd.struct_passwd | None:
    """The user as whom Postgres runs; None if it can run as this user."""
    if os.geteuid() != 0:
        return None
    names = {entry.pw_name: entry for entry in pwd.getpwall()}
    return names.get("postgres") or names["nobody"]


def _unprivileged() -> tuple[str, ...]:
    """The beginning of a command that runs the rest as that user."""
    if (user := _user()) is None:
        return ()
    right = "dac_override"
    return (
        *("setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"),
        *(f"--inh-caps=-all,+{right}", f"--ambient-caps=-all,+{right}"),
    )
