"""Hazards of the online store's memory: each provoked, with all that a person is told, and each just not."""

from __future__ import annotations

from typing import Any

import pytest

from leftfold.hazards.online_store import CODES, RULES
from leftfold.hazards.rules import hazards
from leftfold.observe.observation import ObservedStore
from leftfold.run import probed
from leftfold.sizing.catalog_size import Known, Sizing, size_catalog
from leftfold.sizing.constants import Constants
from leftfold.sizing.load import Given
from tests.unit.hazards.judging import codes, facts

GB = 1_000_000_000
CATALOG = probed.catalog()


def sized(keys: int | None) -> Sizing:
    return size_catalog(CATALOG, {probed.TOPIC: Known(given=Given(rate=1_000, keys=keys))}, Constants())


def bytes_of(sizing: Sizing) -> float:
    return sum(view.result("online bytes, at most") or 0 for view in sizing.views)


def told(used: int, limit: int, policy: str = "noeviction", **known: Any) -> list[str]:
    seen = facts(store=ObservedStore(used, limit, policy), **known)
    return [str(hazard) for rule in RULES for hazard in rule(seen)]


def test_codes_are_sorted_out() -> None:
    assert len(set(CODES)) == len(CODES) == 3


def test_a_store_with_room() -> None:
    assert told(GB, 8 * GB, sizing=sized(1_000)) == []
    assert told(9 * GB, 10 * GB) == []
    assert codes(RULES, facts()) == []  # it did not tell
    assert codes(RULES, facts(sizing=sized(100_000_000))) == []


def test_a_store_without_a_limit() -> None:
    assert told(64 * GB, 0, sizing=sized(100_000_000)) == []
    assert told(GB, 0, "allkeys-lru") == []  # without a limit Redis evicts nothing


def test_rows_that_are_thrown_away() -> None:
    assert told(GB, 8 * GB, "volatile-lru") == [
        "! danger[online-store-evicts] online store: throws keys away when its 8 GB are full "
        "(maxmemory-policy=volatile-lru); 1 GB are in use\n"
        "    why: A row that was thrown away reads as if nothing had ever happened to its key. Nothing notices it: "
        "only a store that lost all is computed anew.\n"
        "    fix: set maxmemory-policy=noeviction, and a maxmemory that holds all rows"
    ]


def test_a_store_that_is_nearly_full() -> None:
    assert told(9_100_000_000, 10 * GB) == [
        "· warning[online-store-full] online store: uses 9.1 GB of 10 GB of memory (91%)\n"
        "    why: At its limit Redis refuses writes: every view stops, and readers get values that grow old.\n"
        "    fix: give it more memory (maxmemory), or remove what nobody reads: other keys in it, windows that are too "
        "long"
    ]
    (full,) = told(10 * GB, 10 * GB)
    assert full.startswith("! danger[online-store-full] online store: uses 10 GB of 10 GB of memory (100%)\n")
    (_, evicting) = told(10 * GB, 10 * GB, "allkeys-lru")
    assert "why: At its limit Redis makes room with maxmemory-policy=allkeys-lru, by throwing keys away.\n" in evicting


def test_memory_that_will_be_short() -> None:
    sizing = sized(1_000_000)
    needed = bytes_of(sizing)
    assert needed > GB
    assert told(0, int(needed) + 1, sizing=sizing) == []
    (short,) = told(0, GB, sizing=sizing)
    head, why, fix = short.split("\n")
    assert head.startswith("· warning[online-memory-short] online store: 1 view will hold up to ")
    assert head.endswith(", and its limit is 1 GB")
    assert why.endswith(
        "Rows grow until every slot of every window has a tile, and stay so. By then it is full (online-store-full)."
    )
    assert fix.startswith("    fix: set maxmemory to more than ")


def test_keys_that_nobody_knows_take_no_memory() -> None:
    assert told(0, 1_000, sizing=sized(None)) == []


@pytest.mark.parametrize("code", CODES)
def test_every_rule_is_among_all(code: str) -> None:
    seen = facts(store=ObservedStore(GB, GB, "allkeys-lfu"), sizing=sized(100_000_000))
    assert [hazard.code for hazard in hazards(seen) if hazard.code in CODES].count(code) == 1
