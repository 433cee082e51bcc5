"""How to provoke errors of an online store in Postgres."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import psycopg
from psycopg import errors

import leftfold as lf
from leftfold.errors import StoreError
from leftfold.local import endpoints
from leftfold.local.endpoints import Endpoints, Ports
from leftfold.local.process import Identity
from leftfold.store.opening import open_store
from leftfold.store.postgres import connection
from leftfold.store.postgres.connection import Address, Pool
from leftfold.store.row_value import decoded
from tests.golden.causes import DEAD, PROJECT, Cause

URL = f"postgresql://shop:hunter2@{DEAD}/features"


def store_unreachable(_: Path) -> None:
    with open_store(URL) as store:
        store.publish("", {"v": "{}"})


def says(error: psycopg.Error) -> Cause:
    def cause(_: Path) -> None:
        with Address(URL).reaching():
            raise error

    return cause


def bad_url(_: Path) -> None:
    Address("postgresql://shop:hunter2@db:port/features?nonsense=1")


def no_tables(_: Path) -> None:
    address = Address(URL)
    pool = Pool(address, writes=True)
    denied = StoreError("store-denied", "", why="permission denied for database features", fix="")
    with mock.patch.object(pool, "transact", side_effect=denied):
        connection.create_tables(pool, address)


def psycopg_missing(_: Path) -> None:
    with mock.patch("importlib.util.find_spec", return_value=None):
        open_store(URL)


def newer_value(_: Path) -> None:
    decoded(b"\2\0\0\0\0")


def local_postgres_missing(tmp: Path) -> None:
    running = Endpoints("id", Ports((20001,), (20002,), 20003, 20004), {"redis": Identity(1, "now")})
    (tmp / "leftfold.toml").write_text(f'{PROJECT}\n[profile.local]\nonline = {{ url = "postgres" }}\n')
    with mock.patch.object(endpoints, "read", return_value=running):
        _ = lf.open(tmp).online


CAUSES: dict[str, Cause] = {
    "store-unreachable/postgres": store_unreachable,
    "store-unreachable/url": bad_url,
    "store-denied/postgres": says(psycopg.OperationalError('FATAL:  password authentication failed for user "shop"')),
    "store-tls/postgres": says(psycopg.OperationalError("SSL error: certificate verify failed")),
    "store-full/postgres": says(errors.DiskFull('could not extend file "base/5/16391": No space left on device')),
    "store-refused/postgres": says(errors.ReadOnlySqlTransaction("cannot execute UPDATE in a read-only transaction")),
    "store-no-tables": no_tables,
    "psycopg-missing/store": psycopg_missing,
    "packed-row-unreadable/value": newer_value,
    "local-postgres-missing": local_postgres_missing,
}
