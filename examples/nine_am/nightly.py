"""The nightly job: it reads the day's payments in the log, and finds the cards that were stolen."""

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any

from payments import is_stolen

WINDOW = timedelta(hours=1)


def stolen(payments: Iterable[Mapping[str, Any]]) -> set[str]:
    """Return the cards to which the rule applies. The payments of a card come in the order of their times."""
    found: set[str] = set()
    lately: defaultdict[str, deque[Mapping[str, Any]]] = defaultdict(deque)
    for payment in payments:
        card, within = payment["card"], lately[payment["card"]]
        within.append(payment)
        while payment["at"] - within[0]["at"] >= WINDOW:
            within.popleft()
        if is_stolen(*(each["country"] for each in within)):
            found.add(card)
    return found
