"""Hazards of the online store's memory: rows that it evicts, writes that it refuses, and memory needed later."""

from __future__ import annotations

from collections.abc import Iterator

from leftfold.hazards.hazard import Facts, Hazard, Rule
from leftfold.units import counted, percent, size

CODES = ("online-memory-short", "online-store-evicts", "online-store-full")

_SUBJECT = "online store"
_KEEPS_ALL = "noeviction"
# The rest is room for a copy of what a batch writes, and for growth until somebody has added memory.
_FULL = 0.9


def _evicts(facts: Facts) -> Iterator[Hazard]:
    """Judge only a store with a memory limit. Without one, Redis evicts nothing, whatever its policy."""
    store = facts.observed.store
    if store is None or store.limit == 0 or store.policy == _KEEPS_ALL:
        return
    yield Hazard(
        "online-store-evicts",
        "danger",
        _SUBJECT,
        f"throws keys away when its {size(store.limit)} are full (maxmemory-policy={store.policy}); {size(store.used)} "
        "are in use",
        "A row that was thrown away reads as if nothing had ever happened to its key. Nothing notices it: only a store "
        "that lost all is computed anew.",
        f"set maxmemory-policy={_KEEPS_ALL}, and a maxmemory that holds all rows",
    )


def _full(facts: Facts) -> Iterator[Hazard]:
    store = facts.observed.store
    if store is None or store.limit == 0 or store.used <= _FULL * store.limit:
        return
    if store.policy == _KEEPS_ALL:
        why = "At its limit Redis refuses writes: every view stops, and readers get values that grow old."
    else:
        why = f"At its limit Redis makes room with maxmemory-policy={store.policy}, by throwing keys away."
    yield Hazard(
        "online-store-full",
        "danger" if store.used >= store.limit else "warning",
        _SUBJECT,
        f"uses {size(store.used)} of {size(store.limit)} of memory ({percent(store.used / store.limit)})",
        why,
        "give it more memory (maxmemory), or remove what nobody reads: other keys in it, windows that are too long",
    )


def _short(facts: Facts) -> Iterator[Hazard]:
    """Compare all memory that the views will need with the store's limit. What they use of it now is not known."""
    store = facts.observed.store
    if store is None or store.limit == 0 or facts.sizing is None:
        return
    known = [most for view in facts.sizing.views if (most := view.result("online bytes, at most")) is not None]
    if sum(known) <= store.limit:
        return
    yield Hazard(
        "online-memory-short",
        "warning",
        _SUBJECT,
        f"{counted(len(known), 'view')} will hold up to {size(sum(known))}, and its limit is {size(store.limit)}",
        "Rows grow until every slot of every window has a tile, and stay so. By then it is full (online-store-full).",
        f"set maxmemory to more than {size(sum(known))}, or use shorter windows, or those that share a step",
    )


RULES: tuple[Rule, ...] = (_evicts, _full, _short)
