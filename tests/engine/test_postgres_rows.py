"""What only a store in Postgres has: locks, sessions, rights and rows that somebody has to remove."""

from __future__ import annotations

import asyncio
import json
import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from leftfold.errors import StoreError
from leftfold.store.engine import BuildPlace
from leftfold.store.frames import framed_row
from leftfold.store.opening import open_client
from leftfold.store.postgres import connection, store
from leftfold.store.postgres.store import PostgresStore
from leftfold.store.postgres.tables import build_id
from leftfold.store.reader import Reader
from leftfold.store.writer import write_rows
from tests.engine import stores
from tests.engine.conftest import STORES


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with STORES["postgres"](tmp_path_factory.mktemp("postgres")) as opened:
        yield opened.url


@pytest.fixture
def at(url: str) -> BuildPlace:
    place = BuildPlace("", "v", uuid.uuid4().hex)
    with PostgresStore(url) as opened:
        opened.claim(place, 0)
    return place


def tile(index: int, batch: int, value: int) -> str:
    return json.dumps([index, batch, value], separators=(",", ":"))


def test_expired_rows_are_removed_some_at_a_time(url: str, at: BuildPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "_LOOKED_AT", 10)
    inside = stores.inside(url)
    write_rows(url, at, [framed_row(f"{n:02}", ["300:1"], [tile(1, 0, n)]) for n in range(25)], 600)
    for entity in ("03", "12", "24"):
        inside.expire(at, entity, 0)
    with PostgresStore(url) as opened:
        assert [opened.remove_expired(at) for _ in range(4)] == [1, 1, 1, 0]
    assert inside.count(at) == 22


def test_writers_of_the_same_rows_wait_for_each_other_in_turn(url: str, at: BuildPlace) -> None:
    """Some rows are new, and some are there; each writer has them in another order."""
    entities = [f"{n}" for n in range(300)]

    def write(batch: int) -> None:
        mine = entities[batch:] + entities[:batch]
        write_rows(url, at, [framed_row(one, ["300:1"], [tile(1, batch, batch)]) for one in mine], 0)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, [batch * 7 % 40 for batch in range(40)]))
    inside = stores.inside(url)
    assert {inside.row(at, one)[b"300:1"] for one in entities} == {tile(1, 39, 39).encode()}
    assert inside.count(at) == 300


def test_a_writer_that_stands_still_holds_rows_for_seconds(
    url: str, at: BuildPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its session ends, and with it its transaction. Another writer then goes on."""
    monkeypatch.setitem(connection._SETTINGS, "idle_in_transaction_session_timeout", "1s")
    row = [framed_row("k", ["300:1"], [tile(1, 5, 5)])]
    write_rows(url, at, row, 0)
    with psycopg.connect(connection.Address(url).conninfo) as stopped:
        stopped.execute("select 1 from leftfold_rows where build = %s for update", (build_id(at),))
        write_rows(url, at, [framed_row("k", ["300:1"], [tile(1, 6, 6)])], 0)
        with pytest.raises(psycopg.Error, match="idle-in-transaction"):
            stopped.execute("select 1")
    assert stores.inside(url).row(at, "k") == {b"300:1": tile(1, 6, 6).encode()}


def test_a_role_with_fewer_rights(url: str, at: BuildPlace) -> None:
    role = f"r{uuid.uuid4().hex[:8]}"
    theirs = url.replace("leftfold@", f"{role}:secret@").partition("?")[0]
    reader = Reader(theirs, "")
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute(f"create role {role} login password 'secret'".encode())
        with PostgresStore(f"{theirs}?options=-csearch_path%3Dnew_{role}") as opened:
            with pytest.raises(StoreError) as refused:
                opened.claim(at, 0)
            assert refused.value.code == "store-no-tables"
        with pytest.raises(StoreError) as denied:
            reader.ledger("v")
        with pytest.raises(StoreError) as on_a_loop:
            asyncio.run(reader.aread("v", [], None))
        with PostgresStore(theirs) as opened, pytest.raises(StoreError) as looked:
            opened.builds(at.of)
        assert denied.value.code == on_a_loop.value.code == looked.value.code == "store-denied"
        admin.execute(f"grant usage on schema leftfold to {role}".encode())
        admin.execute(f"grant select on all tables in schema leftfold to {role}".encode())
    assert reader.ledger("v") is None
    with PostgresStore(theirs) as opened, pytest.raises(StoreError) as refused:
        opened.claim(at, 0)
    assert refused.value.code == "store-denied"
    with pytest.raises(StoreError) as wrong:
        Reader(theirs.replace("secret", "wrong"), "").ledger("v")
    assert wrong.value.code == "store-denied"
    assert "wrong" not in wrong.value.what + wrong.value.why


def test_a_url_may_have_a_timeout_of_its_own(url: str, at: BuildPlace) -> None:
    """A read that takes longer is not asked again."""
    write_rows(url, at, [framed_row("k", ["300:1"], [tile(1, 5, 5)])], 0)
    asked, client = open_client(f"{url}&options=-cstatement_timeout%3D200ms")
    with psycopg.connect(url) as held:
        held.execute("lock table leftfold.leftfold_rows in access exclusive mode")
        started = time.monotonic()
        with pytest.raises(StoreError) as late:
            client.execute([asked.row(at)("k")])
        assert late.value.code == "store-unreachable"
        assert time.monotonic() - started < 3
    (row,) = client.execute([asked.row(at)("k")])
    assert row == [b"300:1", tile(1, 5, 5).encode()]


def test_several_processes_make_the_tables_at_once(url: str) -> None:
    schema = f"s{uuid.uuid4().hex[:8]}"
    begun = threading.Barrier(6)

    def claim(number: int) -> int:
        with PostgresStore(f"{url}&options=-csearch_path%3D{schema}") as opened:
            begun.wait()
            return opened.claim(BuildPlace("", "v", f"{number}"), 0).batch

    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(claim, range(6))) == [-1] * 6
