"""The fence inside a real store, of either engine: what an older batch, an older tile or a wrong mark may not do."""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from leftfold.errors import StoreError
from leftfold.fold.columns import Column
from leftfold.fold.definition import Definition, Key, Origin, Windowed
from leftfold.store.engine import BuildPlace, Calls, FramedRow
from leftfold.store.frames import framed_row
from leftfold.store.layout import Build, LedgerRow, field
from leftfold.store.postgres.connection import Address, Pool
from leftfold.store.postgres.rows import Call
from leftfold.store.redis.names import names_of, row_key
from leftfold.store.redis.rows import CALLS_PER_ROUND_TRIP, TILES_PER_CALL
from leftfold.store.redis.scripts import WRITE_ROWS
from leftfold.store.writer import BuildWriter, write_rows
from tests.engine import stores
from tests.engine.conftest import STORES
from tests.engine.postgres_faults import PostgresStore
from tests.engine.redis_faults import KINDS, Store
from tests.engine.stores import Inside

HOUR = 3_600_000_000


@pytest.fixture
def url(online_url: str) -> str:
    return online_url


@pytest.fixture
def inside(url: str) -> Inside:
    return stores.inside(url)


@pytest.fixture
def at(url: str) -> BuildPlace:
    return a_build(url).at


Fields = dict[str, str]


def written(url: str, at: BuildPlace, rows: dict[str, Fields], ttl_s: int) -> int:
    framed = [framed_row(entity, list(row), list(row.values())) for entity, row in rows.items()]
    return write_rows(url, at, framed, ttl_s)[0]


def tile(index: int, batch: int, value: int) -> str:
    return json.dumps([index, batch, value], separators=(",", ":"))


def held(inside: Inside, at: BuildPlace, entity: str) -> Fields:
    return {name.decode(): value.decode() for name, value in inside.row(at, entity).items()}


def test_a_late_writer_changes_nothing(url: str, at: BuildPlace, inside: Inside) -> None:
    """A driver that was stopped in the middle of batch 4 wakes up after batch 5 was applied by its successor."""
    assert written(url, at, {"k": {"300:1": tile(1, 4, 10), "300:2": tile(2, 4, 20)}}, 60) == 2
    assert written(url, at, {"k": {"300:1": tile(1, 5, 11)}}, 60) == 1
    again = {"k": {"300:1": tile(1, 4, 10), "300:2": tile(2, 4, 20)}}
    assert written(url, at, again, 60) == 1  # only its own again
    assert held(inside, at, "k") == {"300:1": tile(1, 5, 11), "300:2": tile(2, 4, 20)}


def test_a_slot_goes_forward_only(url: str, at: BuildPlace, inside: Inside) -> None:
    both = framed_row("k", ["300:1", "300:1"], [tile(17, 0, 7), tile(1, 0, 5)])  # two tiles of one slot
    write_rows(url, at, [both], 60)
    assert held(inside, at, "k") == {"300:1": tile(17, 0, 7)}
    written(url, at, {"k": {"300:1": tile(1, 9, 6)}}, 60)  # a late record for a tile that left every window
    assert held(inside, at, "k") == {"300:1": tile(17, 0, 7)}
    written(url, at, {"k": {"300:1": tile(33, 2, 1)}}, 60)
    assert held(inside, at, "k") == {"300:1": tile(33, 2, 1)}
    written(url, at, {"k": {"60:0": tile(-3, 2, 1)}}, 60)  # before 1970
    assert 0 < inside.ttl(at, "k") <= 60


def test_many_rows_and_one_row_larger_than_a_call(url: str, at: BuildPlace, inside: Inside) -> None:
    wide = {f"1:{n}": tile(n, 0, n) for n in range(5 * TILES_PER_CALL)}
    rows = {f"e{n}": {"300:0": tile(0, 0, n)} for n in range(3_000)}
    assert written(url, at, {**rows, "wide": wide}, 60) == 3_000 + len(wide)
    assert held(inside, at, "e2999") == {"300:0": tile(0, 0, 2999)}
    assert held(inside, at, "wide") == wide


def test_a_row_that_has_expired_is_no_row(url: str, at: BuildPlace, inside: Inside) -> None:
    written(url, at, {"k": {"300:1": tile(9, 5, 1)}}, 60)
    inside.expire(at, "k", 0)
    assert held(inside, at, "k") == {}
    assert written(url, at, {"k": {"300:1": tile(3, 4, 2)}}, 60) == 1
    assert held(inside, at, "k") == {"300:1": tile(3, 4, 2)}
    assert 0 < inside.ttl(at, "k") <= 60


def definition() -> Definition:
    columns, features = (Column("count", None, "int"),), (Windowed("n", (0,), HOUR, HOUR // 12),)
    origins, keys = (Origin("t", HOUR, "broker"),), (Key("k", "string"),)
    return Definition("v", origins, None, "at", keys, HOUR, (), columns, features)


def a_build(url: str) -> BuildWriter:
    """Announced, as it is before its first batch."""
    writer = BuildWriter(url, uuid.uuid4().hex, Build(definition(), uuid.uuid4().hex))
    writer.announce()
    return writer


LEDGER = [LedgerRow("t", 0, "accepted", 10, newest_log=5, newest_event=4, newest_offset=9)]


def test_the_mark_goes_one_batch_at_a_time(url: str) -> None:
    writer, ledger = a_build(url), LEDGER
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


def test_a_stale_deletion_does_not_let_a_live_row_expire(url: str, at: BuildPlace, inside: Inside) -> None:
    """Nor does a stale value keep a deleted row for ever; and what was written before is not written again."""
    now = {"live": {"row": '[9,5,"books"]'}, "gone": {"row": "[9,5]"}}
    stale = {"live": {"row": "[7,3]"}, "gone": {"row": '[7,3,"old"]'}}
    written(url, at, now, 0)
    assert inside.ttl(at, "live") == -1
    inside.expire(at, "gone", 1_000)
    assert written(url, at, stale, 0) == 0
    assert (held(inside, at, "live"), inside.ttl(at, "live")) == (now["live"], -1)
    assert held(inside, at, "gone") == now["gone"]
    assert 0 < inside.ttl(at, "gone") <= 1_000
    assert written(url, at, now, 0) == 2  # the same again
    assert inside.ttl(at, "live") == -1
    assert 0 < inside.ttl(at, "gone") <= 1_000
    written(url, at, {"live": {"row": "[10,6]"}, "gone": {"row": '[10,6,"new"]'}}, 0)
    assert 86_000 < inside.ttl(at, "live") <= 86_400
    assert inside.ttl(at, "gone") == -1


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        (2**53, 2**53 + 1),
        (2**63 - 2, 2**63 - 1),
        (-(2**53) - 1, -(2**53)),
        (-(2**63), -(2**63) + 1),
        (-(2**62), 2**62),
        (-1, 0),
        (9, 10),
        (-10, -9),
        (-5, 3),
        (999_999_999_999_999_999, 1_000_000_000_000_000_000),
    ],
)
def test_positions_are_compared_exactly(url: str, at: BuildPlace, inside: Inside, older: int, newer: int) -> None:
    written(url, at, {"k": {"row": tile(newer, 1, 1)}}, 0)
    assert written(url, at, {"k": {"row": tile(older, 2, 0)}}, 0) == 0
    assert held(inside, at, "k") == {"row": tile(newer, 1, 1)}
    written(url, at, {"other": {"row": tile(older, 9, 0)}}, 0)
    assert written(url, at, {"other": {"row": tile(newer, 10, 1)}}, 0) == 1
    assert written(url, at, {"other": {"row": tile(newer, 9, 0)}}, 0) == 0
    assert held(inside, at, "other") == {"row": tile(newer, 10, 1)}


Faulty = Store | PostgresStore


@pytest.fixture(params=STORES)
def faulty(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Faulty]:
    with STORES[request.param](tmp_path) as store:
        yield store


def rows_of(writer: BuildWriter, batch: int, count: int) -> Iterator[FramedRow]:
    for number in range(count):
        yield framed_row(f"{number}", ["300:1"], [tile(1, batch, batch)])


def wrote(writer: BuildWriter, url: str, rows: Iterator[FramedRow]) -> Calls:
    (calls,) = write_rows(url, writer.at, rows, 0)[1]
    return calls


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("batch", [0, 1])
def test_rows_that_are_lost_before_the_mark_are_noticed(faulty: Faulty, kind: str, batch: int) -> None:
    """Of two writers, as two tasks are: one is done before the store goes back, the other begins after it."""
    writer = a_build(faulty.url)
    for number in range(batch):
        writer.check(number)
        writer.mark(number, LEDGER, [wrote(writer, faulty.url, rows_of(writer, number, 1_000))])
    faulty.remember(kind)
    writer.check(batch)
    calls = [wrote(writer, faulty.url, rows_of(writer, batch, 1_000))]
    faulty.strike(kind)
    calls.append(wrote(writer, faulty.url, rows_of(writer, batch, 10)))
    with pytest.raises(StoreError) as lost:
        writer.mark(batch, LEDGER, calls)
    assert lost.value.code == ("store-behind" if kind == "flush" and batch else "store-went-back")
    assert lost.value.retriable
    assert writer.applied() < batch
    if writer.applied() == batch - 1:  # else it is repaired first
        writer.announce()
        writer.check(batch)
        writer.mark(batch, LEDGER, [wrote(writer, faulty.url, rows_of(writer, batch, 1_000))])
        assert stores.inside(faulty.url).count(writer.at) == 1_000


@pytest.mark.parametrize("kind", KINDS)
def test_a_writer_whose_store_goes_back_under_its_hands(faulty: Faulty, kind: str) -> None:
    """Between two round trips, onto a server that knows the script already: the client connects anew without a word."""
    round_trip = TILES_PER_CALL * CALLS_PER_ROUND_TRIP
    writer = a_build(faulty.url)
    faulty.remember(kind)
    writer.check(0)

    def rows() -> Iterator[FramedRow]:
        for number, row in enumerate(rows_of(writer, 0, 3 * round_trip)):
            if number == round_trip + 10:
                faulty.strike(kind)
                if isinstance(faulty, Store):
                    faulty.primary.client.script_load(WRITE_ROWS)
            yield row

    calls = wrote(writer, faulty.url, rows())
    writer.announce()
    with pytest.raises(StoreError) as lost:
        writer.mark(0, LEDGER, [calls])
    assert lost.value.code == "store-went-back"


def sent(store: Faulty, writer: BuildWriter, call: int) -> int:
    """Send a call of one tile, and return the number of tiles that took effect."""
    at, calls = writer.at, Calls("w", call)
    if isinstance(store, PostgresStore):
        rows = [framed_row(f"{call}", ["300:1"], [tile(1, 0, call)])]
        return Pool(Address(store.url), writes=True).transact(Call(at, calls, rows, 0, packs=None, repairs=False))
    arguments = (calls.writer, call, 0, 99, "batch", 1, "300:1", tile(1, 0, call))
    keys = (names_of(at).calls(at.build), row_key(at, f"{call}"))
    written, *_ = store.primary.client.eval(WRITE_ROWS, 2, *keys, *arguments)
    return int(written)


def test_a_call_that_is_sent_again_is_one_call(faulty: Faulty) -> None:
    """A client may do that when an answer does not come. The mark takes the count with it."""
    writer = a_build(faulty.url)
    writer.check(0)
    for call in (1, 1, 2, 1, 2, 3):
        assert sent(faulty, writer, call) == 1
    assert sent(faulty, writer, 5) == 0
    with pytest.raises(StoreError, match="store-went-back"):
        writer.mark(0, LEDGER, [Calls("w", 5)])
    writer.mark(0, LEDGER, [Calls("w", 3), Calls("without rows", 0)])
    writer.mark(0, LEDGER, [Calls("w", 3)])
    writer.check(1)
    with pytest.raises(StoreError, match="store-went-back"):  # the mark took the count with it
        writer.mark(1, LEDGER, [Calls("w", 3)])


def test_a_store_that_lost_its_manifest_before_the_first_batch(faulty: Faulty) -> None:
    writer = a_build(faulty.url)
    writer.check(0)
    faulty.strike("flush")
    with pytest.raises(StoreError) as lost:
        writer.mark(0, LEDGER, [wrote(writer, faulty.url, rows_of(writer, 0, 10))])
    assert lost.value.code == "store-went-back"


@pytest.mark.parametrize("kind", ["dump", "failover"])
def test_re_driven_rows_that_are_lost_are_noticed(faulty: Faulty, kind: str) -> None:
    """Mark and rows of all batches are there; what was re-driven after them is not."""
    writer = a_build(faulty.url)
    writer.check(0)
    writer.mark(0, LEDGER, [wrote(writer, faulty.url, rows_of(writer, 0, 100))])
    faulty.remember(kind)
    writer.begin_again()
    writer.move_redriven(0, [wrote(writer, faulty.url, rows_of(writer, 0, 5))], since=0, until=7)
    assert not writer.lacks(0, 7)
    writer.check(1, redriven=7)
    faulty.strike(kind)
    assert writer.lacks(0, 7)
    with pytest.raises(StoreError) as lost:
        writer.mark(1, LEDGER, [wrote(writer, faulty.url, rows_of(writer, 1, 10))], redriven=7)
    assert lost.value.code == "store-went-back"
    with pytest.raises(StoreError, match="store-went-back"):
        writer.check(1, redriven=7)
    with pytest.raises(StoreError, match="store-went-back"):  # what came before these is gone too
        writer.move_redriven(0, [], since=7, until=9)
    writer.move_redriven(0, [], since=0, until=9)
    writer.check(1, redriven=9)


@pytest.fixture(scope="session")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    with ExitStack() as opened:
        yield [opened.enter_context(open_(tmp_path_factory.mktemp(name))).url for name, open_ in STORES.items()]


@pytest.mark.parametrize("seed", range(3))
def test_both_engines_keep_the_same_rows(both: list[str], seed: int) -> None:
    """The rule is there twice, in Lua and in Python: any tiles, in any order, of any batch, repairs among them."""
    chance = random.Random(seed)
    writers, insides = [a_build(url) for url in both], [stores.inside(url) for url in both]
    defined = definition()
    entities = [f"e{number}" for number in range(5)]
    for _ in range(40):
        batch, repairs = chance.randrange(6), chance.random() < 0.1
        rows = {}
        for entity in chance.sample(entities, chance.randrange(1, 5)):
            tiles = [(chance.randrange(-2, 40), chance.randrange(3)) for _ in range(chance.choice((1, 3, 30)))]
            rows[entity] = {
                field(HOUR // 12, index, defined.rings[HOUR // 12]): tile(index, batch, n) for index, n in tiles
            }
        framed = [framed_row(entity, list(row), list(row.values())) for entity, row in rows.items()]
        took = {
            write_rows(url, writer.at, framed, 60, packs=defined, repairs=repairs)[0]
            for url, writer in zip(both, writers, strict=True)
        }
        assert len(took) == 1
        for entity in entities:
            one, other = (inside.row(w.at, entity) for inside, w in zip(insides, writers, strict=True))
            assert one == other
    assert any(b"packed" in insides[0].row(writers[0].at, entity) for entity in entities)
