"""The builds of a view that readers follow, could follow and did follow; and moving readers between them.

A move happens in one step or not at all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from leftfold import clock
from leftfold.errors import StoreError
from leftfold.store.client import connect, reaching
from leftfold.store.layout import HISTORY, WRITTEN, LedgerRow, Names, ledger_in
from leftfold.store.scripts import PROMOTE, ROLL_BACK


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
        self._client = connect(url)
        self._namespace = namespace

    def of(self, view: str) -> Standing:
        names = self._names(view)
        with reaching(self._client):
            pipeline = self._client.pipeline(transaction=True)  # a transaction: all values are from one moment
            pipeline.get(names.active)
            pipeline.get(names.staged)
            pipeline.hgetall(names.previous)
            active, staged, fields = pipeline.execute()
        previous = Previous(fields[b"build"].decode(), int(fields[b"until"])) if fields else None
        return Standing(view, active and active.decode(), staged and staged.decode(), previous)

    def position(self, view: str, build: str) -> tuple[int, list[LedgerRow]]:
        """Return a build's last batch in the store, -1 if none, and its ledger."""
        with reaching(self._client):
            return ledger_in(self._client.hgetall(self._names(view).mark(build)))

    def waiting_for(self, view: str, build: str) -> str | None:
        """Return why a build cannot be read yet, whatever its position; None if it can be read."""
        names = self._names(view)
        with reaching(self._client):
            pipeline = self._client.pipeline(transaction=True)
            pipeline.exists(names.manifest(build))
            pipeline.hget(names.mark(build), HISTORY)
            announced, history = pipeline.execute()
        if not announced:
            return "its history is still being read"
        return "its stream is still at what history has of open tiles" if history == WRITTEN.encode() else None

    def manifest(self, view: str, build: str) -> bytes | None:
        with reaching(self._client):
            found: bytes | None = self._client.get(self._names(view).manifest(build))
        return found

    def promote(self, standing: Standing, *, keep: int) -> Standing:
        """Move readers to the staged build, and keep the build that they leave for `keep` µs.

        Raises if the followed or the staged build is no longer the one in `standing`.
        """
        names, until = self._names(standing.view), clock.now_us() + keep
        keys = (names.active, names.staged, names.previous, names.held, names.left)
        with reaching(self._client):
            moved = self._client.eval(PROMOTE, len(keys), *keys, standing.staged or "", standing.followed or "", until)
        if not moved:
            raise _moved(standing.view)
        left = Previous(standing.followed, until) if standing.followed else None
        return Standing(standing.view, standing.staged, None, left)

    def roll_back(self, standing: Standing) -> Standing:
        """Move readers back to the build that they left last. The build that they leave now is staged again.

        Raises if the followed or the previous build is no longer the one in `standing`.
        """
        names = self._names(standing.view)
        keys = (names.active, names.staged, names.previous, names.held, names.left)
        assert standing.previous is not None
        with reaching(self._client):
            moved = self._client.eval(ROLL_BACK, len(keys), *keys, standing.previous.build, standing.followed or "")
        if not moved:
            raise _moved(standing.view)
        return Standing(standing.view, standing.previous.build, standing.followed, None)

    def _names(self, view: str) -> Names:
        return Names(self._namespace, view)


def _moved(view: str) -> StoreError:
    return StoreError(
        "builds-moved",
        f"the builds of {view} are no longer as they were a moment ago",
        why="somebody else staged, promoted or rolled back at the same time",
        state="readers follow what the other one decided",
        fix=f"leftfold status shows the builds of {view}",
        retriable=True,
    )
