"""Which build readers follow, in a real store: every way of moving them, and every way of not moving them."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest
import redis

from leftfold.errors import StoreError
from leftfold.store.builds import forget, remove_rows, stored_builds
from leftfold.store.layout import Build
from leftfold.store.redis.names import Names
from leftfold.store.standings import Standings
from leftfold.store.writer import BuildWriter
from tests.engine.conftest import Cluster
from tests.unit.rebuild.declared import activity

VIEW = "activity"
DAY = 86_400_000_000


class Store:
    def __init__(self, url: str) -> None:
        self.url, self.namespace = url, f"s{uuid.uuid4().hex[:8]}"
        self.standings = Standings(url, self.namespace)
        self.client: Any = redis.Redis.from_url(url, decode_responses=True)

    def build(self, name: str) -> BuildWriter:
        writer = BuildWriter(self.url, self.namespace, Build(activity(), name * 8))
        writer.announce()
        return writer

    def id(self, name: str) -> str:
        return Build(activity(), name * 8).id

    @property
    def followed(self) -> str | None:
        found = self.standings.of(VIEW).followed
        return found and found[-1]

    def roles(self) -> dict[str, str]:
        return {b.id[-1]: b.role for b in stored_builds(self.url, self.namespace, [VIEW])}


@pytest.fixture
def store(cluster: Cluster) -> Store:
    return Store(cluster.endpoints.redis_url)


def test_a_build_takes_readers_over_unless_it_is_held(store: Store) -> None:
    store.build("a")
    assert store.followed == "a"
    b = store.build("b")
    assert store.followed == "a"
    assert b.activate()
    assert store.followed == "b"
    assert store.roles() == {"a": "kept", "b": "followed"}
    c = store.build("c")
    c.stage()
    assert not c.activate()
    assert store.followed == "b"
    assert store.roles()["c"] == "staged"


def test_the_first_build_of_all_is_not_followed_if_it_is_staged(store: Store) -> None:
    writer = BuildWriter(store.url, store.namespace, Build(activity(), "a" * 8))
    writer.stage()
    writer.announce()
    assert store.followed is None
    assert store.standings.promote(store.standings.of(VIEW), keep=DAY).previous is None
    assert store.followed == "a"


def test_there_and_back(store: Store) -> None:
    a, b = store.build("a"), store.build("b")
    b.stage()
    for _ in range(3):
        moved = store.standings.promote(store.standings.of(VIEW), keep=DAY)
        assert (store.followed, moved.staged) == ("b", None)
        assert store.roles() == {"a": "kept", "b": "followed"}
        assert not a.activate(), "a run of the build that readers left does not take them back"
        b.stage()  # its process starts again
        assert store.standings.of(VIEW).staged is None
        back = store.standings.roll_back(store.standings.of(VIEW))
        assert (store.followed, back.previous) == ("a", None)
        assert store.roles() == {"a": "followed", "b": "staged"}
        assert not b.activate()
        assert a.activate()
    c = store.build("c")
    c.stage()
    b.stage()  # its process starts again; it was put behind another one
    assert store.standings.of(VIEW).staged == store.id("c")
    assert store.roles() == {"a": "followed", "b": "left", "c": "staged"}


@pytest.mark.parametrize("move", ["promote", "roll_back"])
def test_of_two_who_move_at_once_one_is_refused(store: Store, move: str) -> None:
    store.build("a")
    store.build("b").stage()
    if move == "roll_back":
        store.standings.promote(store.standings.of(VIEW), keep=DAY)
    seen = store.standings.of(VIEW)
    moves: dict[str, Callable[[], Any]] = {
        "promote": lambda: store.standings.promote(seen, keep=DAY),
        "roll_back": lambda: store.standings.roll_back(seen),
    }
    moves[move]()
    after = store.standings.of(VIEW)
    with pytest.raises(StoreError, match="no longer as they were"):
        moves[move]()
    assert store.standings.of(VIEW) == after


def test_only_what_nobody_needs_is_removed(store: Store) -> None:
    store.build("a")
    b = store.build("b")
    names = Names(store.namespace, VIEW)
    for name in "ab":
        store.client.hset(names.row_prefix(store.id(name)) + "e*", "300:1", "[1,0,1,1]")
    store.client.hset(names.row_prefix(store.id("b")) + "ee", "300:1", "[1,0,1,1]")

    def refused(build: str, role: str) -> None:
        with pytest.raises(StoreError, match=f"it is {role}"):
            remove_rows(store.url, store.namespace, VIEW, store.id(build))

    refused("a", "followed")
    b.beat()
    refused("b", "running")
    b.rest()
    b.stage()
    refused("b", "staged")
    store.standings.promote(store.standings.of(VIEW), keep=DAY)
    refused("a", "kept")
    store.client.hset(names.left, store.id("a"), 1)
    assert store.roles() == {"a": "left", "b": "followed"}
    remove_rows(store.url, store.namespace, VIEW, store.id("a"))
    assert store.standings.of(VIEW).previous is None
    assert store.roles() == {"a": "left", "b": "followed"}, "until it is forgotten, a plan goes on removing it"
    forget(store.url, store.namespace, VIEW, store.id("a"))
    left = sorted(store.client.scan_iter(f"lf:{store.namespace}:*", count=1_000))
    assert not [key for key in left if store.id("a") in key]
    assert len([key for key in left if ":row:" in key]) == 2
    assert store.roles() == {"b": "followed"}
