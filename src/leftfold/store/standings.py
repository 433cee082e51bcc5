"""Which builds of a view readers follow, could follow and did follow; and moving them, in one step or not at all."""

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
    until: int  # µs; it is kept as long


@dataclass(frozen=True)
class Standing:
    """The builds of one view."""

    view: str
    followed: str | None
    staged: str | None
    previous: Previous | None

    def as_json(self) -> dict[str, Any]:
        kept = self.previous and {"build": self.previous.build, "until": self.previous.until}
        return {"view": self.view, "followed": self.followed, "staged": self.staged, "previous": kept}


class Standings:
    """All views of one namespace."""

    def __init__(self, url: str, namespace: str) -> None:
        self._client = connect(url)
        self._namespace = namespace

    def of(self, view: str) -> Standing:
        names = self._names(view)
        with reaching(self._client):
            pipeline = self._client.pipeline(transaction=True)  # as they are at one moment
            pipeline.get(names.active)
            pipeline.get(names.staged)
            pipeline.hgetall(names.previous)
            active, staged, kept = pipeline.execute()
        previous = Previous(kept[b"build"].decode(), int(kept[b"until"])) if kept else None
        return Standing(view, active and active.decode(), staged and staged.decode(), previous)

    def position(self, view: str, build: str) -> tuple[int, list[LedgerRow]]:
        """The last batch of a build that the store has, -1 if none, and what became of its records."""
        with reaching(self._client):
            return ledger_in(self._client.hgetall(self._names(view).mark(build)))

    def waiting_for(self, view: str, build: str) -> str | None:
        """Why a build cannot be read yet, whatever its position; None if it can."""
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

    def promote(self, found: Standing, *, keep: int) -> Standing:
        """Readers move to the staged build; the one they leave is kept for `keep` µs. Refused if anything moved."""
        names, until = self._names(found.view), clock.now_us() + keep
        keys = (names.active, names.staged, names.previous, names.held, names.left)
        with reaching(self._client):
            moved = self._client.eval(PROMOTE, len(keys), *keys, found.staged or "", found.followed or "", until)
        if not moved:
            raise _moved(found.view)
        left = Previous(found.followed, until) if found.followed else None
        return Standing(found.view, found.staged, None, left)

    def roll_back(self, found: Standing) -> Standing:
        """Readers move back to the build they left last; the one they leave now is staged again."""
        names = self._names(found.view)
        keys = (names.active, names.staged, names.previous, names.held, names.left)
        assert found.previous is not None
        with reaching(self._client):
            moved = self._client.eval(ROLL_BACK, len(keys), *keys, found.previous.build, found.followed or "")
        if not moved:
            raise _moved(found.view)
        return Standing(found.view, found.previous.build, found.followed, None)

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
