"""What is asked of a cluster. Real ones are looked at by tests/engine/test_adopt.py."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from leftfold.adopt import look as module
from leftfold.adopt.look import look
from leftfold.errors import LogError
from leftfold.kafka.log_reader import Logged
from leftfold.settings import Kafka
from tests import clusters
from tests.unit.adopt.topics import record

KAFKA = Kafka(bootstrap="nowhere:1")


class Reader:
    """Has a record at every offset."""

    asked: Mapping[int, tuple[int, int]]
    size = 10
    closed = False

    def __init__(self, _kafka: Kafka) -> None:
        Reader.closed = False

    def read(self, _topic: str, ranges: Mapping[int, tuple[int, int]]) -> Iterator[Logged]:
        Reader.asked = ranges
        for start, end in ranges.values():
            yield from (record(b"\x00\x00\x00\x00\x09" + bytes(self.size), offset=n) for n in range(start, end))

    def close(self) -> None:
        Reader.closed = True


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Any:
    def make(partitions: int, records: int) -> None:
        cluster = clusters.seen_cluster(clusters.seen_topic("orders", partitions, records=records))
        monkeypatch.setattr(module, "observe_cluster", lambda *_: cluster)
        monkeypatch.setattr(module, "LogReader", Reader)

    return make


def registry(*ids: int, subject: str = "orders-value") -> Any:
    return SimpleNamespace(
        versions=lambda asked: {1: "one"} if asked == subject else {},
        schema=lambda id_: f"schema {id_}" if id_ in ids else None,
    )


ADMIN: Any = None  # only handed on


def test_the_newest_of_every_partition(seen: Any) -> None:
    seen(4, 4_000)
    found = look("orders", KAFKA, ADMIN, registry(9))
    assert Reader.asked == dict.fromkeys(range(4), (875, 1_000))
    assert (len(found.records), found.versions, found.others) == (500, {1: "one"}, {9: "schema 9"})
    assert Reader.closed


def test_of_many_partitions_a_few_each(seen: Any) -> None:
    seen(1_000, 3_000)
    look("orders", KAFKA, ADMIN, registry())
    assert set(Reader.asked.values()) == {(0, 3)}


def test_large_records_are_fewer(seen: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    seen(1, 500)
    monkeypatch.setattr(Reader, "size", 1_000_000)
    assert len(look("orders", KAFKA, ADMIN, registry()).records) == 34
    assert Reader.closed


def test_an_id_that_was_never_given_out(seen: Any) -> None:
    seen(1, 1)
    assert look("orders", KAFKA, ADMIN, registry()).others == {}


def test_the_schema_of_keys(seen: Any) -> None:
    seen(1, 0)
    assert look("orders", KAFKA, ADMIN, registry(subject="orders-key")).key_schema == "one"


def test_a_topic_that_is_not_there(seen: Any) -> None:
    seen(1, 1)
    with pytest.raises(LogError) as refused:
        look("other", KAFKA, ADMIN, registry())
    assert refused.value.code == "topic-missing"
