"""A shop with made-up people: `python shop.py browse` sends what they looked at in the last hour, and `python shop.py
visit http://127.0.0.1:8080` lets them come back: they get recommendations, and buy some.
"""

import json
import math
import random
import sys
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import leftfold as lf

PEOPLE, ITEMS = 300, 60
TOGETHER = 20  # so many recommendations, then the purchases that came of them


class Person:
    """Somebody with a purse, and more or less eager to buy. The shop sees neither of them, only clicks."""

    def __init__(self, number: int) -> None:
        chance = random.Random(number)
        self.user_id = f"u{number}"
        self.purse = math.exp(chance.uniform(2, 5))
        self.eager = chance.random()

    def buys(self, price: float, chance: random.Random) -> bool:
        away = abs(price - self.purse) / self.purse
        return chance.random() < 1 / (1 + math.exp(1.0 - 3.0 * self.eager + 2.0 * min(away, 3.0)))


def price_of(item: int) -> float:
    return round(math.exp(2 + 3 * random.Random(10_000 + item).random()), 2)


def browse() -> Iterator[dict[str, Any]]:
    """Yield clicks of the last 50 minutes. Eager people look at more, and at what fits their purse."""
    chance, now, items = random.Random(1), datetime.now(UTC), range(ITEMS)
    for number in range(PEOPLE):
        person = Person(number)
        fits = [1 / (0.05 + abs(price_of(item) - person.purse) / person.purse) for item in items]
        for item in chance.choices(items, weights=fits, k=1 + int(20 * person.eager)):
            at = now - timedelta(seconds=60 + 2_900 * chance.random())
            yield {"user_id": person.user_id, "item_id": f"i{item}", "price": price_of(item), "at": at}


def visits(seed: int) -> list[tuple[Person, dict[str, Any]]]:
    """Return who comes, each with an item to be recommended. Everybody comes twice, and sees another item."""
    chance = random.Random(seed)
    found = []
    for number in range(PEOPLE):
        for item in chance.sample(range(ITEMS), 2):
            asked = {"user_id": f"u{number}", "item_id": f"i{item}", "price": price_of(item)}
            found.append((Person(number), asked))
    return found


def ask(url: str, row: dict[str, Any]) -> dict[str, Any]:
    request = urllib.request.Request(f"{url}/score/ranker", json.dumps(row).encode(), method="POST")
    with urllib.request.urlopen(request, timeout=30) as answer:
        return dict(json.load(answer))


def visit(app: lf.App, url: str, seed: int) -> tuple[int, int]:
    """Let people visit the shop. Return how many recommendations they got, and how many of these they bought."""
    chance, here, bought = random.Random(seed), visits(seed), 0
    with ThreadPoolExecutor(8) as browsers, app.producer("purchases") as purchases:
        for begin in range(0, len(here), TOGETHER):
            some = here[begin : begin + TOGETHER]
            for _ in browsers.map(ask, [url] * len(some), [asked for _, asked in some]):
                pass  # the shop shows the item, whatever its score: so the next model learns of all
            for person, asked in some:
                if person.buys(asked["price"], chance):
                    purchases.send_dict({**asked, "at": datetime.now(UTC)})
                    bought += 1
            purchases.flush()
    return len(here), bought


if __name__ == "__main__":
    if sys.argv[1] == "browse":
        print(f"{lf.open().send('clicks', browse()):,} clicks")
    else:
        recommended, sold = visit(lf.open(), sys.argv[2], seed=int(sys.argv[3]))
        print(f"{recommended:,} recommendations, {sold:,} of them were bought")
