"""Consumers as declared: options, handlers, the catalog."""

from __future__ import annotations

import re
import sys
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import leftfold as lf
from leftfold.declare.catalog import Catalog
from leftfold.declare.companions import companions_of
from leftfold.declare.delivery import INTO_DATABASE, PROMISES
from leftfold.declare.event import trusted
from leftfold.declare.guarantees import ConsumerGuarantee, consumer_guarantees
from leftfold.fold.expressions import to_micros


class Order(lf.Event):
    number: int
    customer: str
    note: str | None = None
    seen: list[datetime] = []  # noqa: RUF012 # pydantic copies it
    at: datetime


orders = lf.Topic("orders", Order, key=Order.customer, time=Order.at)
NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)


@lf.consumer(orders, start="beginning")
def double(order: Order) -> int:
    return 2 * order.number


@lf.consumer(orders, start=NOON, delivery="at_most_once", batch=lf.Batch(5, within="1s"), name="draws")
async def draw(batch: list[Order], records: list[lf.Record]) -> None: ...


def test_a_handler_stays_a_function() -> None:
    assert double(Order(number=4, customer="c", at=NOON)) == 8
    assert double.__name__ == "double"
    assert not double.wants_record


def test_defaults() -> None:
    assert (double.delivery, double.order, double.parallel, double.failure) == ("at_least_once", "key", 1, "dead")
    assert (double.timeout_s, double.in_flight, double.drain_s) == (60, 1_000, 10)
    assert (draw.name, draw.order, draw.retry.attempts) == ("draws", "partition", 1)
    assert draw.is_async
    assert draw.wants_record


@lf.consumer(orders, start="beginning", delivery="exactly_once", into=lf.Sql("env:LEDGER_URL"))
def book(order: Order, db: lf.SqlConnection) -> None:
    db.execute("insert into ledger values (%s)", (order.number,))


def test_into_a_database() -> None:
    @lf.consumer(orders, start="beginning", delivery="exactly_once", into=lf.Sql("env:LEDGER_URL"), name="placed")
    def book_place(order: Order, record: lf.Record, db: lf.SqlConnection) -> None: ...

    assert book.into is not None
    assert (book.into.variable, book.order, book.wants_record) == ("LEDGER_URL", "partition", False)
    assert book_place.wants_record
    told: list[Any] = []
    db: Any = SimpleNamespace(execute=lambda *args: told.append(args))
    book(Order(number=4, customer="c", at=NOON), db)
    assert told == [("insert into ledger values (%s)", (4,))]
    (one,) = consumer_guarantees(Catalog.of([book])[0])
    assert one.promise is INTO_DATABASE
    (other,) = consumer_guarantees(Catalog.of([double])[0])
    assert other.promise is PROMISES["at_least_once"]


@pytest.mark.parametrize("annotation", [lf.Record, "lf.Record", "Record"])
def test_a_handler_without_a_connection(annotation: Any) -> None:
    def no_db(order: Any, record: Any) -> None: ...

    no_db.__annotations__["record"] = annotation
    with pytest.raises(lf.DeclarationError) as caught:
        lf.consumer(orders, start="now", delivery="exactly_once", into=lf.Sql("env:LEDGER_URL"))(no_db)
    assert caught.value.code == "handler-signature"


@pytest.mark.parametrize("url", ["postgresql://clerk:secret@ledger/db", "env:", "env:A B", ""])
def test_a_url_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(lf.DeclarationError) as caught:
        lf.Sql(url)
    assert caught.value.code == "sql-url"
    assert "secret" not in str(caught.value)


def test_waits_double_up_to_the_longest() -> None:
    retry = lf.Retry(attempts=12, first="1s", most="20s")
    assert [retry.wait_s(failures, 0) for failures in (1, 2, 3, 5, 6, 11)] == [1, 2, 4, 16, 20, 20]
    assert retry.wait_s(1, 1) == pytest.approx(1.2)


def test_a_catalog_of_consumers() -> None:
    catalog, problems = Catalog.of([double, draw])
    assert problems == []
    assert list(catalog.consumers) == ["double", "draws"]
    assert list(catalog.topics) == ["orders"], "a topic that only a consumer reads"
    names = list(companions_of(catalog))
    assert names[-5:] == ["leftfold.consumers", "double.dead", "double.again", "draws.dead", "draws.again"]
    assert "leftfold.consumers" not in list(companions_of(Catalog.of([orders])[0]))


def test_each_delivery_says_what_it_promises() -> None:
    for promise in (*PROMISES.values(), INTO_DATABASE):
        assert promise.guarantee
        assert promise.conditions


def test_a_record_has_one_id() -> None:
    record = lf.Record("orders", 3, 17, b"c", NOON)
    assert record.id == "orders/3/17"
    assert lf.Record.fake("orders", 3, 17).id == record.id


def test_a_trusted_event_is_like_a_validated_one() -> None:
    fields = {"number": 4, "customer": "c", "note": None, "seen": [to_micros(NOON)], "at": to_micros(NOON)}
    made = trusted(Order)(fields)
    assert made == Order(number=4, customer="c", note=None, seen=[NOON], at=NOON)
    assert made.model_dump() == Order(number=4, customer="c", seen=[NOON], at=NOON).model_dump()
    assert made.model_copy(update={"number": 5}).number == 5
    with pytest.raises(ValueError, match="frozen"):
        made.number = 5  # type: ignore[misc] # what is tested


def test_the_example_of_the_guide(monkeypatch: pytest.MonkeyPatch) -> None:
    class Click(lf.Event):
        user_id: str
        at: datetime

    streams = ModuleType("streams")
    vars(streams).update(Click=Click, clicks=lf.Topic("clicks", Click, key=Click.user_id, time=Click.at))
    monkeypatch.setitem(sys.modules, "streams", streams)
    guide = Path(__file__).parents[3] / "docs" / "guide" / "delivery.md"
    (example,) = re.findall(r"^```python\n(.*?)^```", guide.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    called: list[Any] = []
    names: dict[str, Any] = {"post": lambda *args, **options: called.append(options), "redraw": called.append}
    exec(compile(example, str(guide), "exec"), names)  # our own page
    click = Click(user_id="u1", at=NOON)
    names["notify"](click, lf.Record.fake("clicks", 0, 7))
    names["draw"]([click])
    assert called[0]["headers"] == {"Idempotency-Key": "clicks/0/7"}
    assert called[1] == [click]
    assert (names["notify"].delivery, names["draw"].delivery) == ("at_least_once", "at_most_once")


# Guarantees ---------------------------------------------------------------------------------------------------------


def promised(declared: Any) -> ConsumerGuarantee:
    (one,) = consumer_guarantees(Catalog.of([declared])[0])
    return one


def test_the_guarantee_of_a_consumer_has_its_order_and_its_conditions() -> None:
    one = promised(double)
    assert (one.delivery, one.promise.guarantee) == ("at_least_once", "each record at least once")
    assert one.order == "records of a key in the order of the log"
    assert one.conditions == (
        *PROMISES["at_least_once"].conditions,
        "a record that fails for the last time is handled only if somebody re-drives it from double.dead",
        "it is not away for longer than its topics keep records, or than brokers keep positions: else it stops "
        "(log-overtaken, position-forgotten), and skips nothing silently",
    )


def test_conditions_that_options_and_topics_add() -> None:
    fragile = lf.Topic("fragile", Order, key=Order.customer, time=Order.at, replication=1)

    @lf.consumer(fragile, start="now", failure="stop", late="skip", order="none")
    def careless(order: Order) -> None: ...

    one = promised(careless)
    assert one.order == "in any order"
    assert "a record that fails for the last time stops the consumer, and all records after it wait" in one.conditions
    assert "late records, and those from the future, are not handed over" in one.conditions
    assert one.conditions[-1] == "fragile has one copy: what a broker loses, the consumer never gets"


def test_whoever_reads_what_is_written_exactly_once_must_be_read_committed() -> None:
    bills = lf.Topic("bills", Order, key=Order.customer, time=Order.at)

    @lf.consumer(orders, start="now", delivery="exactly_once", to=bills)
    def bill(order: Order) -> Order:
        return order

    conditions = promised(bill).conditions
    assert "readers of what it writes are read-committed (isolation.level=read_committed)" in conditions
    assert (
        "views and consumers of Leftfold read bills so; of other groups no broker tells it (group-not-declared names "
        "them)" in conditions
    )


def test_useful_members_are_those_of_the_topic_with_the_most_partitions() -> None:
    wide, narrow = (
        lf.Topic(name, Order, key=Order.customer, time=Order.at, partitions=count)
        for name, count in (("wide", 12), ("narrow", 4))
    )

    @lf.consumer((wide, narrow), start="now")
    def both(order: Order) -> None: ...

    assert promised(both).members == 12
