"""A store in Postgres without a server: how its URL is understood, and what its failures are told as."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict

from leftfold.errors import StoreError
from leftfold.store.engine import BuildPlace, ViewPlace
from leftfold.store.opening import open_async_client, open_client, place_of
from leftfold.store.postgres import connection
from leftfold.store.postgres.connection import Address, failed
from leftfold.store.postgres.questions import PostgresQuestions
from leftfold.store.postgres.tables import CREATE, build_id, entity_key

URL = "postgresql://shop:hunter2@db:5433/features"


def options(url: str) -> str:
    return str(conninfo_to_dict(Address(url).conninfo)["options"])


def test_the_schema_is_that_of_the_url() -> None:
    assert Address(URL).schema == "leftfold"
    named = f"{URL}?options=-csearch_path%3Done,public%20-c%20work_mem%3D8MB"
    assert Address(named).schema == "one"
    assert "search_path=one" in options(named).split(" -c ")[-1] + options(named)
    assert "work_mem=8MB" in options(named)


def test_a_bad_url_does_not_show_its_password() -> None:
    with pytest.raises(StoreError) as caught:
        Address("postgresql://shop:hunter2@db:port/x?nonsense=1")
    assert "hunter2" not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    ("url", "place"),
    [(URL, "db:5433"), ("postgres://db/x", "db:5432"), ("redis://r/0", "r:6379"), ("rediss://u:p@r:1/0", "r:1")],
)
def test_where_a_store_is(url: str, place: str) -> None:
    assert place_of(url) == place


@pytest.mark.parametrize(
    ("error", "code", "retriable"),
    [
        (psycopg.OperationalError("connection refused"), "store-unreachable", True),
        (psycopg.OperationalError('FATAL:  password authentication failed for user "shop"'), "store-denied", False),
        (psycopg.OperationalError('FATAL:  no pg_hba.conf entry for host "::1", no encryption'), "store-denied", False),
        (psycopg.OperationalError('FATAL:  database "x" does not exist'), "store-denied", False),
        (errors.InsufficientPrivilege("permission denied for table leftfold_rows"), "store-denied", False),
        (psycopg.OperationalError("server does not support SSL, but SSL was required"), "store-tls", False),
        (psycopg.OperationalError("SSL error: certificate verify failed"), "store-tls", False),
        (errors.DiskFull("could not extend file: No space left on device"), "store-full", True),
        (errors.ReadOnlySqlTransaction("cannot execute UPDATE in a read-only transaction"), "store-refused", True),
        (errors.TooManyConnections("sorry, too many clients already"), "store-refused", True),
        (errors.AdminShutdown("terminating connection"), "store-unreachable", True),
        (errors.QueryCanceled("canceling statement due to statement timeout"), "store-unreachable", True),
        (errors.CannotConnectNow("the database system is starting up"), "store-unreachable", True),
    ],
)
def test_by_what_postgres_says(error: psycopg.Error, code: str, retriable: bool) -> None:
    told = failed(Address(URL), error)
    assert told.code == code
    assert told.retriable is retriable
    assert "db:5433" in told.what
    assert "hunter2" not in str(told)


def test_a_server_that_says_nothing_holds_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(connection._ALIVE, "connect_timeout", "2")  # libpq's least
    question = PostgresQuestions().followed(ViewPlace("", "v"))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"postgresql://u@127.0.0.1:{silent.getsockname()[1]}/x"
        _, client = open_client(url)
        with pytest.raises(StoreError) as sync:
            client.execute([question])
        with pytest.raises(StoreError) as on_a_loop:
            asyncio.run(open_async_client(url).execute([question]))
        assert sync.value.code == on_a_loop.value.code == "store-unreachable"


def test_keys() -> None:
    """The protocol has these numbers: they never change."""
    assert build_id(BuildPlace("prod", "user_activity", "7a55379304b7-f93b6b7e")) == 4_610_802_669_716_386_786
    assert entity_key("a:b") == b"a:b"
    long = "é" * 1_001
    assert (len(entity_key(long)), entity_key(long)[0]) == (33, 0xFF)


def test_builds_have_numbers_of_their_own() -> None:
    places: list[Any] = [("a", "b", "c"), ("", "ab", "c"), ("a", "bc", ""), ("ab", "", "c")]
    assert len({build_id(BuildPlace(*place)) for place in places}) == len(places)


def test_the_protocol_has_the_statements() -> None:
    page = (Path(__file__).parents[3] / "docs" / "reference" / "protocol.md").read_text()
    documented = page.split("```sql\n")[1].split("```")[0].strip().removesuffix(";")
    assert documented == CREATE.replace("if not exists ", "")
