"""The exchange with the store, by hand; what it makes of tiles is compared with an oracle in tests/unit/fold."""

from __future__ import annotations

import json
from typing import Any

import pytest

import leftfold as lf
from leftfold import clock
from leftfold.errors import LeftfoldError
from leftfold.fold.definition import Definition
from leftfold.fold.expressions import from_micros, to_micros
from tests.unit.declare.declared import NOON, Click, clicks
from tests.unit.fold.test_latest import ITEM
from tests.unit.store.held import HeldStore, arguments

AT = to_micros(NOON)
STEP = 300_000_000


class User(lf.Features, of=clicks, by=Click.user_id):
    clicks_1h = lf.count("1h")
    spend_1h = lf.sum(Click.price, "1h")


class Ever(lf.Features, of=clicks, by=(Click.user_id, Click.pieces)):
    ever = lf.count(None, ttl="1d")


class Item(lf.Table, of=lf.Topic("items", Click, key=Click.item_id, compacted=True), by=Click.item_id):
    price = lf.latest(Click.price)
    coupon = lf.latest(Click.coupon).default("none")


class Ranker(lf.Vector):
    clicks_1h = User.clicks_1h
    cart = lf.request(float)
    spend = User.spend_1h.default(-1.0)
    price = Item.price
    coupon = Item.coupon


USER, ITEMS = User.__leftfold_definition__, Item.__leftfold_definition__
RANKER = Ranker.__leftfold_definition__


def tile(at: int, *partials: Any, batch: int = 3) -> dict[str, bytes]:
    index = at // STEP
    slot = index % USER.rings[STEP]
    return {f"300:{slot}": json.dumps([index, batch, *partials]).encode()}


def store(**rows: dict[str, bytes]) -> HeldStore:
    held = HeldStore()
    held.publish(USER, rows or {"u": tile(AT - 1, 2, 5_000_000)}, newest=AT - 1)
    return held


def both() -> HeldStore:
    held = store()
    held.publish(ITEMS, {"i": {"row": b"[7,2,9.5,null]"}, "gone": {"row": b"[8,2]"}}, newest=0, batch=2)
    return held


def refused(held: HeldStore, target: Any, given: dict[str, Any], at: int | None = AT) -> LeftfoldError:
    with pytest.raises(LeftfoldError) as caught:
        held.reader().read(target, [given], at)
    return caught.value


def test_a_row_and_where_it_came_from() -> None:
    (read,) = store().reader().read("user", [{"user_id": "u"}], AT)
    assert read.values == {"clicks_1h": 2, "spend_1h": 5.0}
    assert (read.read_at, read.found) == (NOON, True)
    (origin,) = read.provenance
    assert (origin.view, origin.batch, origin.build.split("-")[0]) == ("user", 3, USER.fingerprint)


def test_an_entity_that_nobody_knows() -> None:
    (read,) = store().reader().read("user", [{"user_id": "nobody"}], AT)
    assert (read.values, read.found) == ({"clicks_1h": 0, "spend_1h": None}, False)


def test_a_read_is_one_round_trip_once_the_build_is_known() -> None:
    held = store()
    reader = held.reader()
    reader.read("user", [{"user_id": "u"}], None)
    before = held.round_trips
    reader.read("user", [{"user_id": f"u{i}"} for i in range(100)], None)
    assert held.round_trips == before + 1


def test_a_reader_moves_over_to_another_build() -> None:
    held = store()
    reader = held.reader()
    reader.read("user", [{"user_id": "u"}], AT)
    held.publish(USER, {"u": tile(AT - 1, 9, None, batch=0)}, newest=AT - 1, batch=0, generation="second")
    (read,) = reader.read("user", [{"user_id": "u"}], AT)
    assert (read.values["clicks_1h"], read.provenance[0].batch) == (9, 0)


def test_events_stamped_ahead_of_this_clock_are_past_when_it_answers() -> None:
    held, ahead = store(), to_micros(from_micros(4_000_000_000_000_000))
    held.publish(USER, {"u": tile(ahead, 1, None)}, newest=ahead)
    (read,) = held.reader().read("user", [{"user_id": "u"}], None)
    assert read.values["clicks_1h"] == 1
    assert to_micros(read.read_at) == ahead + 1


def test_moments_that_are_not_kept() -> None:
    held = both()
    assert refused(held, "user", {"user_id": "u"}, AT - 1).code == "moment-not-kept"  # inside a tile
    held.publish(ITEMS, {}, newest=AT)
    assert refused(held, "item", {"item_id": "i"}).code == "moment-not-kept"  # it has no history
    held.publish(Ever.__leftfold_definition__, {}, newest=AT)
    assert refused(held, "ever", {"user_id": "u", "pieces": 1}).code == "moment-not-kept"


def test_what_the_store_does_not_have() -> None:
    assert refused(store(), "usr", {"user_id": "u"}).code == "view-not-built"
    held = both()
    older = Definition.from_json({**USER.as_json(), "features": USER.as_json()["features"][:1]})
    held.publish(older, {}, newest=0)
    given = {"user_id": "u", "item_id": "i", "cart": 1.0}
    error = refused(held, RANKER, given)
    assert (error.code, "user.spend_1h" in error.what) == ("feature-not-built", True)


def test_a_table() -> None:
    held = HeldStore()
    held.publish(ITEM, {"i": {"row": b'[7,2,"toys",3,1,[1],null,4]'}, "gone": {"row": b"[8,2]"}}, newest=0)
    here, gone, never = held.reader().read("item", [{"item_id": i} for i in ("i", "gone", "never")], AT)
    assert (here.values["category"], here.values["cost"], here.found) == ("toys", 3.0, True)
    assert gone.values == never.values == ITEM.row(None)
    assert not gone.found
    assert not never.found


# Vectors ------------------------------------------------------------------------------------------------------------


def test_a_vector_gathers_in_its_own_order() -> None:
    asked = [{"user_id": "u", "item_id": i, "cart": 2} for i in ("i", "gone")]
    here, gone = both().reader().read(RANKER, asked, AT)
    assert list(here.values.items()) == [
        *(("clicks_1h", 2), ("cart", 2.0), ("spend", 5.0)),
        *(("price", 9.5), ("coupon", "none")),
    ]
    assert (gone.values["price"], gone.values["coupon"], gone.found) == (None, "none", False)
    assert [(p.view, p.batch, p.found) for p in gone.provenance] == [("user", 3, True), ("item", 2, False)]


def test_the_vectors_default_stands_in_for_what_is_missing() -> None:
    (read,) = both().reader().read(RANKER, [{"user_id": "nobody", "item_id": "i", "cart": 0.5}], AT)
    assert (read.values["clicks_1h"], read.values["spend"]) == (0, -1.0)


def test_what_is_more_than_a_day_ago_may_be_gone() -> None:
    reader = store().reader()
    reader.now = AT + 86_400_000_000
    assert reader.read("user", [{"user_id": "u"}], AT)[0].values["clicks_1h"] == 2
    reader.now += 1
    with pytest.raises(LeftfoldError) as caught:
        reader.read("user", [{"user_id": "u"}], AT)
    assert caught.value.code == "moment-not-kept"


def test_a_vector_by_name_needs_no_declaration() -> None:
    held = both()
    held.publish_vector(json.dumps(RANKER.as_json()).encode(), RANKER)
    reader = held.reader()
    given = {"user_id": "u", "item_id": "i", "cart": 2.0}
    assert reader.read("ranker", [given], AT) == reader.read(RANKER, [given], AT)
    assert reader.keys("ranker") == {"user_id": "string", "item_id": "string", "cart": "float"}
    assert reader.keys("user") == {"user_id": "string"}


def ended(held: HeldStore, read: Any, command: Any) -> Any:
    """Answer an exchange until it ends, and return its rows."""
    try:
        while True:
            command = read.send(held.execute(command))
    except StopIteration as done:
        return done.value


def test_two_reads_notice_at_once_that_a_vector_was_published_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "now_us", lambda: AT)
    held = both()
    document = json.dumps(RANKER.as_json()).encode()
    held.publish_vector(document, RANKER)
    reader = held.reader()
    given = {"user_id": "u", "item_id": "i", "cart": 2.0}
    expected = reader.read("ranker", [given], AT)
    held.publish_vector(document + b" ", RANKER)
    reads = [reader._rows("ranker", [given], None) for _ in range(2)]
    commands = [next(read) for read in reads]
    replies = [held.execute(command) for command in commands]
    commands = [read.send(reply) for read, reply in zip(reads, replies, strict=True)]  # both notice it
    assert [ended(held, read, command) for read, command in zip(reads, commands, strict=True)] == [expected, expected]


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"user_id": "u", "item_id": "i"}, "wrong-request"),
        ({"user_id": "u", "item_id": "i", "cart": "2"}, "wrong-request"),
        ({"user_id": "u", "item_id": "i", "cart": True}, "wrong-request"),
        ({"user_id": "u", "cart": 1.0}, "wrong-key"),
        ({"user_id": "u", "item_id": 3, "cart": 1.0}, "wrong-key"),
        ({"user_id": "u", "item_id": "i", "cart": 1.0, "more": 1}, "wrong-key"),
    ],
)
def test_what_a_vector_is_given(given: dict[str, Any], code: str) -> None:
    assert refused(both(), RANKER, given).code == code


def test_the_ledger() -> None:
    held = store()
    reader = held.reader()
    assert reader.ledger("nothing") is None
    (mark,) = (key for key in held.hashes if ":mark:" in key)
    held.hashes[mark]["clicks/3:late"] = b"5:1:2:3"
    found = reader.ledger("user")
    assert found is not None
    build, batch, (row,) = found
    assert (build.split("-")[0], batch) == (USER.fingerprint, 3)
    assert (row.topic, row.partition, row.outcome, row.records) == ("clicks", 3, "late", 5)


def test_a_packed_command_comes_apart_again() -> None:
    assert arguments(b"*2\r\n$3\r\nGET\r\n$5\r\na\r\nbc\r\n") == ["GET", "a\r\nbc"]
