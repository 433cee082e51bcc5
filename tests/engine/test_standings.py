"""Which build readers follow, in a real store: every way of moving them, and every way of not moving them."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest

from leftfold import clock
from leftfold.errors import StoreError
from leftfold.store.builds import forget, remove_rows, stored_builds
from leftfold.store.engine import BuildPlace
from leftfold.store.frames import framed_row
from leftfold.store.layout import Build
from leftfold.store.opening import open_store
from leftfold.store.standings import Standings
from leftfold.store.writer import BuildWriter, write_rows
from tests.engine import projects, stores
from tests.unit.rebuild.declared import activity

VIEW = "activity"
DAY = 86_400_000_000


class Store:
    def __init__(self, url: str) -> None:
        self.url, self.namespace = url, f"s{uuid.uuid4().hex[:8]}"
        self.standings = Standings(url, self.namespace)
        self.inside = stores.inside(url)

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

    def place(self, name: str) -> BuildPlace:
        return BuildPlace(self.namespace, VIEW, self.id(name))


@pytest.fixture
def store(online_url: str) -> Store:
    return Store(online_url)


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


def test_only_what_nobody_needs_is_removed(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    now = clock.now_us
    store.build("a")
    b = store.build("b")
    for name, entities in (("a", ["e*"]), ("b", ["e*", "ee"])):
        rows = [framed_row(entity, ["300:1"], ["[1,0,1,1]"]) for entity in entities]
        write_rows(store.url, store.place(name), rows, 0)

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
    monkeypatch.setattr(clock, "now_us", lambda: 1 + DAY + now())
    assert store.roles() == {"a": "left", "b": "followed"}
    remove_rows(store.url, store.namespace, VIEW, store.id("a"))
    assert store.standings.of(VIEW).previous is None
    assert store.roles() == {"a": "left", "b": "followed"}, "until it is forgotten, a plan goes on removing it"
    forget(store.url, store.namespace, VIEW, store.id("a"))
    assert [store.inside.count(store.place(name)) for name in "ab"] == [0, 2]
    assert store.roles() == {"b": "followed"}


def test_a_build_that_was_removed_takes_no_rows_and_no_mark(store: Store) -> None:
    """Its process was thought dead."""
    store.build("a")
    b = store.build("b")
    b.check(0)
    remove_rows(store.url, store.namespace, VIEW, store.id("b"))
    rows = [framed_row("e", ["300:1"], ["[1,0,1,1]"])]
    _, calls = write_rows(store.url, store.place("b"), rows, 60)
    with pytest.raises(StoreError, match="store-went-back"):
        b.mark(0, [], calls)


def test_a_lease_has_one_holder(store: Store) -> None:
    with open_store(store.url) as opened:

        def take(holder: str, *, instead_of: str | None = None, seconds: int = 60) -> bool:
            return opened.take(store.namespace, "apply", holder, seconds, instead_of=instead_of)

        assert opened.holder(store.namespace, "apply")[0] == ""
        assert take("one")
        assert not take("another")
        assert not take("another", instead_of="a third")
        holder, seconds = opened.holder(store.namespace, "apply")
        assert (holder, 0 < seconds <= 60) == ("one", True)
        assert opened.renew(store.namespace, "apply", "one", 60)
        assert take("another", instead_of="one")
        assert not opened.renew(store.namespace, "apply", "one", 60)
        opened.release(store.namespace, "apply", "one")
        assert opened.holder(store.namespace, "apply")[0] == "another"
        opened.release(store.namespace, "apply", "another")
        assert take("one", seconds=1)
        projects.await_true(lambda: take("another"), timeout=60, what="the end of a lease")
        assert not opened.renew(store.namespace, "apply", "one", 60)
