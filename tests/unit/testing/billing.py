"""A billing consumer in three deliveries, and schedules of crashes for it.

Rides come as events in cents. 2 % of them are sent twice, with the same ride id, as a producer does that lost an answer
and keeps no sequence. The account of each customer must be right to the cent.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from datetime import UTC, datetime, timedelta
from typing import Any

import leftfold as lf
import leftfold.testing.log as the_model

SENT_TWICE = 0.02
_START = datetime(2026, 3, 1, tzinfo=UTC)


class Ride(lf.Event):
    ride_id: str
    customer: str
    metres: int
    at: datetime


class Fare(lf.Event):
    ride_id: str
    customer: str
    cents: int
    at: datetime


rides = lf.Topic("rides", Ride, key=Ride.customer, time=Ride.at, partitions=2)
fares = lf.Topic("fares", Fare, key=Fare.customer, time=Fare.at, partitions=2)


def cents(metres: int) -> int:
    return 350 + metres * 19 // 100


# SQL ------------------------------------------------------------------------------------------------------------------

SCHEMA = """
create table billed (ride_id text primary key);
create table accounts (customer text primary key, cents int not null);
"""


@lf.consumer(rides, start="beginning", delivery="exactly_once", into=lf.Sql("env:LEDGER_URL"))
def bill(ride: Ride, db: lf.SqlConnection) -> None:
    """Exactly once into SQL: the rides that were billed, the accounts and the position are one transaction."""
    if db.execute("select 1 from billed where ride_id = %s", (ride.ride_id,)).fetchone():
        return
    db.execute("insert into billed values (%s)", (ride.ride_id,))
    db.execute(
        "insert into accounts values (%s, %s) on conflict (customer) do update set cents = cents + excluded.cents",
        (ride.customer, cents(ride.metres)),
    )


# At least once, with a key on the other side --------------------------------------------------------------------------


class Bank:
    """A service that takes an idempotency key, and forgets nothing."""

    def __init__(self) -> None:
        self.billed: dict[str, str] = {}  # the record that billed a ride
        self.accounts: Counter[str] = Counter()
        self._seen: set[str] = set()

    def book(self, customer: str, amount: int, *, key: str | None) -> None:
        if key is not None:
            if key in self._seen:
                return
            self._seen.add(key)
        self.accounts[customer] += amount


bank = Bank()


@lf.consumer(rides, start="beginning", parallel=4)
def charge(ride: Ride, record: lf.Record) -> None:
    """At least once. A ride that was sent twice has two records: the first one bills it, however often it comes."""
    if bank.billed.setdefault(ride.ride_id, record.id) == record.id:
        bank.book(ride.customer, cents(ride.metres), key=record.id)


@lf.consumer(rides, start="beginning")
def charge_naively(ride: Ride) -> None:
    bank.book(ride.customer, cents(ride.metres), key=None)


@lf.consumer(rides, start="beginning", delivery="at_most_once")
def charge_at_most_once(ride: Ride) -> None:
    bank.book(ride.customer, cents(ride.metres), key=ride.ride_id)


@lf.consumer(rides, start="beginning", delivery="exactly_once", to=fares)
def invoice(ride: Ride) -> Fare:
    return Fare(ride_id=ride.ride_id, customer=ride.customer, cents=cents(ride.metres), at=ride.at)


# Schedules ------------------------------------------------------------------------------------------------------------

CUSTOMERS = [f"c{number}" for number in range(6)]
POOL = [
    Ride(ride_id=f"r{n}", customer=CUSTOMERS[n * n % 6], metres=137 * n % 9_001, at=_START + timedelta(seconds=n))
    for n in range(400)
]


def traffic(chance: random.Random) -> list[Ride]:
    """Return the rides of one schedule, as they are sent."""
    first = chance.randrange(380)
    sent = []
    for ride in POOL[first : first + chance.randrange(4, 13)]:
        sent += [ride] * (1 + (chance.random() < SENT_TWICE))
    return sent


def right(sent: list[Ride]) -> dict[str, int]:
    """Compute the accounts independently: one pass over the rides that were sent, each ride once."""
    seen: set[str] = set()
    accounts: dict[str, int] = defaultdict(int)
    for ride in sent:
        if ride.ride_id not in seen:
            seen.add(ride.ride_id)
            accounts[ride.customer] += 350 + (19 * ride.metres) // 100
    return dict(accounts)


class Schedules:
    """Runs schedules by their number. The database is one for all, and is emptied before each."""

    def __init__(self, model: Any = the_model) -> None:
        self._model = model
        self._database = model.InMemoryDatabase(SCHEMA)
        self.crashes = self.rebalances = self.fenced = 0

    def run(self, number: int, consumer: lf.Consumer[..., Any] | None = None) -> tuple[dict[str, int], dict[str, int]]:
        """Run a schedule, and return the accounts that came of it, and the right ones. Half of them use SQL."""
        global bank  # noqa: PLW0603 # the handlers are declared once, and use the bank of the schedule that runs
        chance = random.Random(number)
        chosen = consumer or (bill if number % 2 else charge)
        into = self._database if chosen is bill else None
        sent = traffic(chance)
        log = self._model.Log(seed=number, brokers=1)
        before, after = sent[: len(sent) // 2], sent[len(sent) // 2 :]
        log.send(rides, *before)
        if into is not None:
            for table in ("billed", "accounts", "leftfold_positions"):
                into.execute(f"delete from {table}")
        bank = Bank()
        for piece in (after, []):
            outcome = log.consume(
                chosen,
                crashes=self._model.random_crashes(chance, chosen.delivery),
                members=chance.randrange(1, 3),
                rebalances=chance.randrange(3),
                into=into,
            )
            self.crashes += len(outcome.crashes)
            self.rebalances += outcome.generations
            self.fenced += outcome.fenced
            log.send(rides, *piece)
        if into is not None:
            return dict(into.execute("select customer, cents from accounts").fetchall()), right(sent)
        if chosen is invoice:
            found: Counter[str] = Counter()
            for fare in log.read(fares):
                found[fare.customer] += fare.cents
            return dict(found), right(sent)
        return dict(bank.accounts), right(sent)
