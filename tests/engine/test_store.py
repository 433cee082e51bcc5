"""The fence inside a real Redis: what an older batch, an older tile or a wrong mark may not do."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from leftfold.errors import StoreError
from leftfold.fold.columns import Column
from leftfold.fold.definition import Definition, Key, Origin, Windowed
from leftfold.store.layout import Build, LedgerRow
from leftfold.store.writer import TILES_PER_CALL, BuildWriter, write_rows
from tests.engine.conftest import Cluster

HOUR = 3_600_000_000


@pytest.fixture
def store(cluster: Cluster) -> Iterator[Any]:
    with redis.Redis.from_url(cluster.endpoints.redis_url, decode_responses=True) as client:
        yield client


def tile(index: int, batch: int, value: int) -> str:
    return json.dumps([index, batch, value], separators=(",", ":"))


def test_a_late_writer_changes_nothing(cluster: Cluster, store: Any) -> None:
    """A driver that was stopped in the middle of batch 4 wakes up after batch 5 was applied by its successor."""
    url, key = cluster.endpoints.redis_url, f"row:{uuid.uuid4().hex}"
    assert write_rows(url, [(key, ["300:1", "300:2"], [tile(1, 4, 10), tile(2, 4, 20)])], 60) == 2
    assert write_rows(url, [(key, ["300:1"], [tile(1, 5, 11)])], 60) == 1
    assert write_rows(url, [(key, ["300:1", "300:2"], [tile(1, 4, 10), tile(2, 4, 20)])], 60) == 1  # only its own again
    assert store.hgetall(key) == {"300:1": tile(1, 5, 11), "300:2": tile(2, 4, 20)}


def test_a_slot_goes_forward_only(cluster: Cluster, store: Any) -> None:
    url, key = cluster.endpoints.redis_url, f"row:{uuid.uuid4().hex}"
    write_rows(url, [(key, ["300:1", "300:1"], [tile(17, 0, 7), tile(1, 0, 5)])], 60)  # two tiles of one slot
    assert store.hgetall(key) == {"300:1": tile(17, 0, 7)}
    write_rows(url, [(key, ["300:1"], [tile(1, 9, 6)])], 60)  # a late record for a tile that left every window
    assert store.hgetall(key) == {"300:1": tile(17, 0, 7)}
    write_rows(url, [(key, ["300:1"], [tile(33, 2, 1)])], 60)
    assert store.hgetall(key) == {"300:1": tile(33, 2, 1)}
    write_rows(url, [(key, ["60:0"], [tile(-3, 2, 1)])], 60)  # before 1970
    assert 0 < store.ttl(key) <= 60


def test_many_rows_and_one_row_larger_than_a_call(cluster: Cluster, store: Any) -> None:
    url, prefix = cluster.endpoints.redis_url, f"row:{uuid.uuid4().hex}:"
    wide = [f"1:{n}" for n in range(5 * TILES_PER_CALL)]
    rows = [(f"{prefix}{n}", ["300:0"], [tile(0, 0, n)]) for n in range(3_000)]
    rows.append((f"{prefix}wide", wide, [tile(n, 0, n) for n in range(len(wide))]))
    assert write_rows(url, rows, 60) == 3_000 + len(wide)
    assert store.hget(f"{prefix}2999", "300:0") == tile(0, 0, 2999)
    assert store.hlen(f"{prefix}wide") == len(wide)


def test_the_mark_goes_one_batch_at_a_time(cluster: Cluster, store: Any) -> None:
    columns, features = (Column("count", None, "int"),), (Windowed("n", (0,), HOUR, HOUR // 12),)
    definition = Definition(
        "v", (Origin("t", HOUR, "broker"),), None, "at", (Key("k", "string"),), HOUR, (), columns, features
    )
    writer = BuildWriter(cluster.endpoints.redis_url, uuid.uuid4().hex, Build(definition, uuid.uuid4().hex))
    ledger = [LedgerRow("t", 0, "accepted", 10, newest_log=5, newest_event=4, newest_offset=9)]
    writer.check(0)
    writer.mark(0, ledger)
    writer.mark(0, ledger)  # the same batch again, after a crash before Spark's commit
    writer.check(1)
    assert writer.ledger() == (0, ledger)
    for wrong, code in ((2, "store-behind"), (5, "store-behind")):
        with pytest.raises(StoreError) as refused:
            writer.mark(wrong, ledger)
        assert refused.value.code == code
    for batch in (1, 2, 3):
        writer.mark(batch, ledger)
    with pytest.raises(StoreError) as ahead:
        writer.check(1)
    assert ahead.value.code == "store-ahead"
