"""What an acknowledged record survives, for every number of replicas; and the same by trying every loss."""

from __future__ import annotations

from itertools import combinations

import pytest

from leftfold.observe.durability import Durability, durability_of
from tests import clusters


@pytest.mark.parametrize(
    ("copies", "in_sync", "unclean", "text"),
    [
        (
            *(3, 2, False),
            "an acknowledged record is on at least 2 of 3 brokers and survives the loss of any 1; "
            "writes stop while 2 are away",
        ),
        (
            *(3, 3, False),
            "an acknowledged record is on at least 3 of 3 brokers and survives the loss of any 2; "
            "writes stop while one is away",
        ),
        (
            *(3, 1, False),
            "an acknowledged record is on at least 1 of 3 brokers and is lost with it if no other replica was in sync; "
            "writes stop while 3 are away",
        ),
        (
            *(3, 2, True),
            "an acknowledged record is on at least 2 of 3 brokers and may be lost with any one: a replica that was not "
            "in sync can become leader; writes stop while 2 are away",
        ),
        (*(1, 1, False), "an acknowledged record is on 1 broker, and is lost with it; writes stop while it is away"),
        (*(2, 3, False), "every write is refused: min.insync.replicas=3, with 2 replicas"),
    ],
)
def test_text(copies: int, in_sync: int, unclean: bool, text: str) -> None:
    assert str(Durability(copies, in_sync, unclean)) == text


@pytest.mark.parametrize("copies", [1, 2, 3, 4, 5])
def test_every_loss(copies: int) -> None:
    """A record is on the brokers that were in sync; any of these may be lost, and any may be away."""
    brokers = range(copies)
    for in_sync in range(1, copies + 1):
        durability = Durability(copies, in_sync)
        holders = [set(h) for size in range(in_sync, copies + 1) for h in combinations(brokers, size)]
        survived = [n for n in brokers if all(h - set(lost) for h in holders for lost in combinations(brokers, n))]
        assert durability.survives == max(survived)
        refused = [away for away in range(copies + 1) if copies - away < in_sync]
        assert durability.stops_at == min(refused)


def test_of_a_topic_by_its_settings() -> None:
    seen = clusters.seen_topic("t", 6, 3, {"min.insync.replicas": "2", "unclean.leader.election.enable": "true"})
    assert durability_of(seen) == Durability(3, 2, unclean=True)
    assert durability_of(clusters.seen_topic("t", 6, 3)) == Durability(3, 1)
