"""Steals cards at nine, and prints how many payments a thief completes before each way of watching knows.

`python nine_am.py --rate 1000 --thefts 25 --runs 20`. The view, the scorer and the consumer that blocks run beside it.
"""

import argparse
import heapq
import itertools
import json
import random
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from nightly import stolen
from payments import CardActivity, Payment, is_stolen

import leftfold as lf

HOME, ABROAD = 276, 840
COUNTRIES = (HOME, 250, 380, 724, 528)
HONEST_CARDS = 10_000
THIEF_PAYS_EVERY_S = 2
UNTIL_MIDNIGHT_S = 15 * 3_600
THEFTS_BEGIN_EVERY_S = 0.4
MOST_PAYMENTS = 30  # then even a thief whom nobody has noticed stops
LOOKS_EVERY_S = 0.1  # how often the service reads the view
SETTLES_S = 5  # so long honest cards pay before the first theft
PATIENCE_S = 180
WAYS = ("view", "scorer")


@dataclass
class Theft:
    """A stolen card: when each payment was sent and acknowledged, and when each way of watching knew of it."""

    card: str
    sent: list[float] = field(default_factory=list)
    acknowledged: list[float] = field(default_factory=list)
    known: dict[str, float] = field(default_factory=dict)

    @property
    def is_known(self) -> bool:
        return len(self.known) == len(WAYS)

    def completed(self, way: str) -> int:
        """The number of payments that the card made before it was known to be stolen."""
        return sum(moment < self.known[way] for moment in self.sent)

    def seconds(self, way: str) -> float:
        """From the acknowledgement of the first payment abroad until it was known."""
        return self.known[way] - self.acknowledged[0]


@dataclass
class Night:
    """The nightly job of one run: what it read, how long that took, and what it found."""

    payments: int
    seconds: float
    found: set[str]

    @property
    def completed(self) -> int:
        """The payments that the thief makes from nine until the job has ended: one at nine, then one each two seconds.

        The hours until midnight are declared, the seconds of the job are measured.
        """
        return 1 + int((UNTIL_MIDNIGHT_S + self.seconds) / THIEF_PAYS_EVERY_S)


def payment(card: str, country: int) -> Payment:
    return Payment(card=card, country=country, amount=20.0, at=datetime.now(UTC))


# Those who watch ------------------------------------------------------------------------------------------------------


class Watching:
    """Reads the view of given cards again and again, as a service would, and the list of those that were blocked.

    A service does not know in advance which cards are stolen; this one does, so its figures are the best case.
    """

    def __init__(self, app: lf.App) -> None:
        self._app = app
        self._thefts: dict[str, Theft] = {}
        self._ended = threading.Event()

    @contextmanager
    def over(self, thefts: list[Theft]) -> Iterator[None]:
        self._thefts, self._ended = {theft.card: theft for theft in thefts}, threading.Event()
        thread = threading.Thread(target=self._look, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._ended.set()
            thread.join()

    def _look(self) -> None:
        while not self._ended.wait(LOOKS_EVERY_S):
            self._look_at_view()
            for card, moment in blocked():
                if card in self._thefts:
                    self._thefts[card].known.setdefault("scorer", moment)

    def _look_at_view(self) -> None:
        open_thefts = [t for t in self._thefts.values() if t.acknowledged and "view" not in t.known]
        rows = self._app.get_many(CardActivity, [{"card": theft.card} for theft in open_thefts])
        now = time.time()
        for theft, row in zip(open_thefts, rows, strict=True):
            if is_stolen(row.lowest_country_1h, row.highest_country_1h):
                theft.known["view"] = now


def blocked() -> list[tuple[str, float]]:
    """Return what the consumer `block` has noted: cards, each with the moment when its alert was read."""
    path = Path("blocked.txt")
    words = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
    return [(card, float(moment)) for card, moment in words]


# Those who pay --------------------------------------------------------------------------------------------------------


@contextmanager
def honest_cards(app: lf.App, rate: int) -> Iterator[None]:
    """Let honest cards pay, so many times a second. Some pay often; each stays in its country."""
    ended, chance = threading.Event(), random.Random(9)

    def pay() -> None:
        began, sent = time.monotonic(), 0
        with app.producer("payments") as producer:
            while not ended.wait(0.01):
                for _ in range(int((time.monotonic() - began) * rate) - sent):
                    number = int(HONEST_CARDS * chance.random() ** 3)
                    producer.send(payment(f"c{number}", COUNTRIES[number % len(COUNTRIES)]))
                    sent += 1

    thread = threading.Thread(target=pay, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def steal(app: lf.App, thefts: list[Theft]) -> None:
    """Let each stolen card pay every two seconds, until both ways know of it."""
    chance, began = random.Random(len(thefts)), time.time()
    due = [(began + (n + chance.random()) * THEFTS_BEGIN_EVERY_S, n) for n in range(len(thefts))]
    heapq.heapify(due)
    with app.producer("payments") as producer:
        while due:
            moment, number = heapq.heappop(due)
            time.sleep(max(0.0, moment - time.time()))
            theft = thefts[number]
            if theft.is_known or len(theft.sent) == MOST_PAYMENTS:
                continue
            theft.sent.append(time.time())
            producer.send(payment(theft.card, ABROAD))
            producer.flush()
            theft.acknowledged.append(time.time())
            heapq.heappush(due, (moment + THIEF_PAYS_EVERY_S, number))


# The play -------------------------------------------------------------------------------------------------------------


def owners_pay(app: lf.App, thefts: list[Theft]) -> None:
    """Let the owners pay at home, and wait until the view holds that."""
    app.send("payments", [payment(theft.card, HOME) for theft in thefts])
    await_view(app, thefts)


def await_view(app: lf.App, thefts: list[Theft]) -> None:
    keys, deadline = [{"card": theft.card} for theft in thefts], time.monotonic() + PATIENCE_S
    while True:
        try:
            if all(row.found for row in app.get_many(CardActivity, keys)):
                return
        except lf.StoreError:  # the view was never built
            if time.monotonic() > deadline:
                raise
        if time.monotonic() > deadline:
            sys.exit("the view does not follow: does `leftfold run` work?")
        time.sleep(0.5)


def rehearse(app: lf.App, watching: Watching) -> None:
    """Steal cards until all readers notice: then all of them run. These thefts are not counted."""
    deadline = time.monotonic() + PATIENCE_S
    for attempt in itertools.count():
        thefts = [Theft(f"rehearsal-{attempt}-{number}") for number in range(12)]
        owners_pay(app, thefts)
        with watching.over(thefts):
            app.send("payments", [payment(theft.card, ABROAD) for theft in thefts])
            for theft in thefts:
                theft.acknowledged.append(time.time())
            seen = time.monotonic() + 5
            while time.monotonic() < seen and not all(theft.is_known for theft in thefts):
                time.sleep(0.1)
        if all(theft.is_known for theft in thefts):
            return
        if time.monotonic() > deadline:
            sys.exit("nobody blocks cards: do `leftfold consume --consumers fraud` and `… --consumers block` work?")


def play(app: lf.App, watching: Watching, run: int, thefts: int) -> tuple[list[Theft], Night]:
    """Steal cards, wait until they are known, and let the nightly job look for them."""
    cards, began = [Theft(f"stolen-{run}-{number}") for number in range(thefts)], datetime.now(UTC)
    owners_pay(app, cards)
    with watching.over(cards):
        steal(app, cards)
    return cards, nightly(app, began)


def nightly(app: lf.App, since: datetime) -> Night:
    began, read = time.monotonic(), 0

    def day() -> Iterator[dict[str, object]]:
        nonlocal read
        for record in app.read("payments", start=since - timedelta(seconds=1), most=None):
            if record.fields is not None and not record.fields["card"].startswith("rehearsal"):
                read += 1
                yield record.fields

    found = stolen(day())
    return Night(read, time.monotonic() - began, found)


# The result -----------------------------------------------------------------------------------------------------------


def quantile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that at least this share of the values does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, -int(-share * len(ordered) // 1) - 1))]


def spread(values: list[int]) -> str:
    return f"{quantile(values, 0.5):,.0f} ({min(values):,} to {max(values):,})"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=int, default=100, help="payments of honest cards in a second")
    parser.add_argument("--thefts", type=int, default=4, help="cards that are stolen in a run")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="print every figure, as one document")
    asked = parser.parse_args()
    app, played = lf.open(), []
    watching = Watching(app)
    rehearse(app, watching)
    with honest_cards(app, asked.rate):
        time.sleep(SETTLES_S)
        for run in range(asked.runs):
            played.append(play(app, watching, run, asked.thefts))
    thefts, nights = [theft for run, _ in played for theft in run], [night for _, night in played]
    cards = {theft.card for theft in thefts}
    honest = {card for card, _ in blocked()} - cards
    wrong = [card for card in honest if not card.startswith("rehearsal")]
    missed = [theft.card for theft in thefts if not theft.is_known]
    right_at_night = all({theft.card for theft in run} == night.found for run, night in played)
    if asked.json:
        document = {
            "thefts": len(thefts),
            "missed": missed,
            "wrong": wrong,
            "right_at_night": right_at_night,
            "nightly": {
                "completed": [night.completed for night in nights],
                "seconds": [night.seconds for night in nights],
                "payments": [night.payments for night in nights],
            },
            **{
                way: {
                    "completed": [theft.completed(way) for theft in thefts if theft.is_known],
                    "seconds": [theft.seconds(way) for theft in thefts if theft.is_known],
                }
                for way in WAYS
            },
        }
        print(json.dumps(document))
    elif not missed:
        print(f"{len(thefts):,} cards are stolen at 9:00, while honest cards pay {asked.rate:,} times a second")
        print("                        payments before it knows  it knows after the first payment's acknowledgement")
        job = max(night.seconds for night in nights)
        print(f"nightly job             {spread([n.completed for n in nights]):24}  15 h, and {job:.2f} s of the job")
        for way, title in zip(WAYS, ("view, read again", "scorer on the stream"), strict=True):
            seconds = [theft.seconds(way) for theft in thefts]
            print(
                f"{title:22}  {spread([theft.completed(way) for theft in thefts]):24}  "
                f"p50 {quantile(seconds, 0.5):.3f} s, p99 {quantile(seconds, 0.99):.3f} s"
            )
    print(f"{len(wrong):,} honest cards are blocked, {len(missed):,} thefts are not noticed", file=sys.stderr)
    return 1 if wrong or missed or not right_at_night else 0


if __name__ == "__main__":
    sys.exit(main())
