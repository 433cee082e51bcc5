"""When a failing record may become a dead letter, and when the consumer has to stop."""

from __future__ import annotations

from leftfold.consume.breaker import Breaker, Budget
from leftfold.declare.delivery import MostDead


def test_one_key_never_opens_it() -> None:
    breaker = Breaker()
    for second in range(100):
        breaker.failed("a", float(second))
    assert not breaker.is_open
    assert breaker.may_give_up(0.0)


def test_an_outage_opens_it_and_gives_nothing_up() -> None:
    breaker = Breaker()
    for second in range(20):
        breaker.failed(f"key {second % 7}", float(second))
    assert breaker.is_open
    assert not breaker.may_give_up(0.0)
    breaker.failed("key 8", 19.0)  # it was under way when the breaker opened
    assert breaker.next_try == 19 + 1
    waits = []
    for _ in range(7):
        now = breaker.next_try
        breaker.try_one()
        breaker.failed("key 1", now)
        waits.append(breaker.next_try - now)
    assert waits == [2, 4, 8, 16, 30, 30, 30]
    breaker.succeeded(200.0)
    assert not breaker.is_open


def test_a_database_that_is_away_opens_it_at_once() -> None:
    breaker = Breaker()
    breaker.away(5.0)
    breaker.away(5.1)  # of a worker that found the same
    assert breaker.is_open
    assert breaker.next_try == 5 + 1
    assert not breaker.may_give_up(0.0)
    breaker.try_one()
    breaker.away(6.0)
    assert breaker.next_try == 6 + 2
    breaker.back()
    assert not breaker.is_open, "it answered, with a failure of the record"
    breaker.away(7.0)
    breaker.succeeded(8.0)
    assert not breaker.is_open


def test_without_a_record_to_try_it_opens_again_at_the_first_failure() -> None:
    breaker = Breaker()
    for second in range(20):
        breaker.failed(f"key {second}", 0.0)
    breaker.let_through()
    assert not breaker.is_open
    breaker.failed("key 99", 10.0)
    assert breaker.is_open
    assert breaker.next_try == 10 + 2
    breaker.succeeded(20.0)
    breaker.failed("key 1", 21.0)
    assert not breaker.is_open


def test_with_few_records_an_outage_writes_no_dead_letter_either() -> None:
    """Two keys fail and nothing succeeds: neither is known to be at fault by itself."""
    breaker = Breaker()
    breaker.failed("a", 1.0)
    assert breaker.may_give_up(1.0), "nothing speaks for an outage yet"
    breaker.failed("b", 2.0)
    assert not breaker.may_give_up(1.0)
    breaker.succeeded(3.0)
    breaker.failed("a", 4.0)
    assert breaker.may_give_up(1.0), "another record was handled since"


def test_the_budget_of_a_share() -> None:
    budget = Budget(MostDead(share=0.01, run=1_000))
    letters = 0
    for _ in range(50):  # 1 % exactly is within the budget, for ever
        budget.handled(990)
        letters += sum(budget.dead() for _ in range(10))
    assert letters == 500
    for _ in range(200):
        budget.handled(1)
        letters += budget.dead()
    assert letters < 620
    assert not budget.dead()


def test_the_budget_of_a_run() -> None:
    budget = Budget(MostDead(share=1.0, run=3))
    assert [budget.dead() for _ in range(4)] == [True, True, True, False]
    budget.handled(1)
    assert budget.dead()
