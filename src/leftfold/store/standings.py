"""The builds of a view that readers follow, could follow and did follow; and moving readers between them.

A move happens in one step or not at all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from leftfold import clock
from leftfold.errors import StoreError
from leftfold.store.engine import BuildPlace, ViewPlace
from leftfold.store.layout import HISTORY, WRITTEN, LedgerRow, ledger_in
from leftfold.store.opening import open_store


@dataclass(frozen=True)
class Previous:
    build: str
    until: int  # the build is kept until then, µs


@dataclass(frozen=True)
class Standing:
    """The builds of one view: the one that readers follow, the staged one, and the one that they left last."""

    view: str
    followed: str | None
    staged: str | None
    previous: Previous | None

    def as_json(self) -> dict[str, Any]:
        previous = self.previous and {"build": self.previous.build, "until": self.previous.until}
        return {"view": self.view, "followed": self.followed, "staged": self.staged, "previous": previous}


class Standings:
    """The standings of all views of one namespace."""

    def __init__(self, url: str, namespace: str) -> None:
        self._store = open_store(url)
        self._namespace = namespace

    def of(self, view: str) -> Standing:
        found = self._store.builds(ViewPlace(self._namespace, view))
        return Standing(view, found.active, found.staged, found.previous and Previous(*found.previous))

    def position(self, view: str, build: str) -> tuple[int, list[LedgerRow]]:
        """Return a build's last batch in the store, -1 if none, and its ledger."""
        return ledger_in(self._store.mark(BuildPlace(self._namespace, view, build)))

    def waiting_for(self, view: str, build: str) -> str | None:
        """Return why a build cannot be read yet, whatever its position; None if it can be read."""
        at = BuildPlace(self._namespace, view, build)
        if self._store.manifest(at) is None:
            return "its history is still being read"
        waits = self._store.mark(at).get(HISTORY.encode()) == WRITTEN.encode()
        return "its stream is still at what history has of open tiles" if waits else None

    def manifest(self, view: str, build: str) -> bytes | None:
        return self._store.manifest(BuildPlace(self._namespace, view, build))

    def promote(self, standing: Standing, *, keep: int) -> Standing:
        """Move readers to the staged build, and keep the build that they leave for `keep` µs.

        Raises if the followed or the staged build is no longer the one in `standing`.
        """
        at, until = ViewPlace(self._namespace, standing.view), clock.now_us() + keep
        moved = self._store.promote(at, standing.staged or "", standing.followed or "", until)
        if not moved:
            raise _moved(standing.view)
        left = Previous(standing.followed, until) if standing.followed else None
        return Standing(standing.view, standing.staged, None, left)

    def roll_back(self, standing: Standing) -> Standing:
        """Move readers back to the build that they left last. The build that they leave now is staged again.

        Raises if the followed or the previous build is no longer the one in `standing`.
        """
        assert standing.previous is not None
        at = ViewPlace(self._namespace, standing.view)
        moved = self._store.roll_back(at, standing.previous.build, standing.followed or "")
        if not moved:
            raise _moved(standing.view)
        return Standing(standing.view, standing.previous.build, standing.followed, None)


def _moved(view: str) -> StoreError:
    return StoreError(
        "builds-moved",
        f"the builds of {view} are no longer as they were a moment ago",
        why="somebody else staged, promoted or rolled back at the same time",
        state="readers follow what the other one decided",
        fix=f"leftfold status shows the builds of {view}",
        retriable=True,
    )
