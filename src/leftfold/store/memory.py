"""The memory of a store, as far as its server tells."""

from __future__ import annotations

from leftfold.store.engine import MemoryInUse
from leftfold.store.opening import open_store


def memory_in_use(url: str) -> MemoryInUse | None:
    """Return the server's memory in use and its limit; None if it does not tell, or keeps rows on disk."""
    with open_store(url) as store:
        return store.memory()
