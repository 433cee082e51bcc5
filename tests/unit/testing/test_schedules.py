"""Crash schedules of a billing consumer in the model: every account is right to the cent.

`make test` runs 2,000 schedules; `make schedules` runs 1,000,000 in two processes, and says how long it took.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import pytest

import leftfold as lf
from leftfold.testing.log import Log, random_crashes
from tests.engine.dying_consumer import STEPS as REAL_STEPS
from tests.unit.testing import billing
from tests.unit.testing.billing import Schedules, fares, rides

FULL = os.environ.get("LEFTFOLD_SCHEDULES") == "full"
SCHEDULES = 1_000_000 if FULL else 2_000
PIECE = 10_000
PROCESSES = 2


def run_piece(numbers: range) -> tuple[list[int], Counter[str]]:
    """Run schedules, and return the numbers of those that went wrong, and what happened in all of them."""
    began = time.process_time()
    schedules = Schedules()
    wrong = []
    for number in numbers:
        accounts, expected = schedules.run(number)
        if accounts != expected:
            wrong.append(number)
    counts = {"crashes": schedules.crashes, "rebalances": schedules.rebalances, "fenced": schedules.fenced}
    return wrong, Counter({**counts, "CPU ms": int((time.process_time() - began) * 1_000)})


@pytest.mark.timeout(3_600)
def test_every_account_is_right(capsys: pytest.CaptureFixture[str]) -> None:
    began = time.monotonic()
    pieces = [range(at, min(at + PIECE, SCHEDULES)) for at in range(0, SCHEDULES, PIECE)]
    if FULL:
        results = []
        with ProcessPoolExecutor(PROCESSES) as pool, capsys.disabled():
            for number, result in enumerate(pool.map(run_piece, pieces), 1):
                results.append(result)
                if number % 10 == 0:
                    print(f"{number * PIECE:,} schedules, {time.monotonic() - began:.0f} s", flush=True)
    else:
        results = [run_piece(piece) for piece in pieces]
    took = time.monotonic() - began
    wrong = [number for piece, _ in results for number in piece]
    counts = sum((found for _, found in results), Counter())
    with capsys.disabled():
        print(f"\n{SCHEDULES:,} schedules in {took:.0f} s: {len(wrong)} wrong; {dict(counts)}")
    assert wrong == []
    assert counts["crashes"] > SCHEDULES
    assert counts["fenced"] > SCHEDULES // 10
    if FULL:
        assert took < 600


@pytest.mark.parametrize(
    "consumer", [billing.charge_naively, billing.charge_at_most_once], ids=lambda consumer: str(consumer.name)
)
def test_a_version_that_cannot_be_right_is_wrong_in_some(consumer: lf.Consumer[..., Any]) -> None:
    """Else the test above could not fail."""
    schedules = Schedules()
    wrong = sum(accounts != expected for accounts, expected in (schedules.run(n, consumer) for n in range(200)))
    assert wrong > 20


def test_invoices_are_written_once_for_each_record() -> None:
    """Exactly once to a topic: a ride that was sent twice has two fares, and no crash makes a third."""
    for number in range(300):
        chance = random.Random(number)
        sent = billing.traffic(chance)
        log = Log(seed=number)
        log.send(rides, *sent)
        outcome = log.consume(
            billing.invoice, crashes=random_crashes(chance, "exactly_once"), members=2, rebalances=chance.randrange(3)
        )
        assert (outcome.lost, outcome.doubled) == (0, 0), number
        assert Counter(fare.ride_id for fare in log.read(fares)) == Counter(ride.ride_id for ride in sent), number


def test_the_same_seed_is_the_same_history() -> None:
    runs = []
    for _ in range(2):
        billing.bank = billing.Bank()
        log = Log(seed=7)
        log.send(rides, *billing.traffic(random.Random(7)))
        runs.append(log.consume(billing.charge, crashes=[("settled", 2), ("commit sent", 1)], members=2, rebalances=2))
    assert runs[0] == runs[1]


def test_the_steps_are_those_of_real_deaths() -> None:
    from leftfold.testing.log import STEPS

    real = {step: {delivery.removesuffix("_sql") for delivery in those} for step, those in REAL_STEPS.items()}
    assert {step: set(those) for step, those in STEPS.items()} == real


def test_a_crash_that_does_not_happen_is_no_success() -> None:
    log = Log()
    log.send(rides, *billing.POOL[:3])
    with pytest.raises(AssertionError, match=r"charge never came to 'records written' for the 1\. time: no crash"):
        log.consume(billing.charge, crash_at=("records written", 1))


def test_a_step_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match="'done' is no step of a delivery; the steps are polled, "):
        Log().consume(billing.charge, crash_at=("done", 1))
