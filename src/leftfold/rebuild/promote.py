"""Moving readers: to a staged build that has caught up, and back, as long as the previous build is kept.

It needs no Spark.
"""

from __future__ import annotations

from collections.abc import Iterable

from leftfold import clock
from leftfold.errors import RunError
from leftfold.fold.expressions import from_micros
from leftfold.store.layout import LedgerRow
from leftfold.store.standings import Standing, Standings

# A live view lags by this much at any moment: a batch or two at a modest rate.
BEHIND = 1_000


def behind(staged: Iterable[LedgerRow], followed: Iterable[LedgerRow]) -> int:
    """Return the number of offsets that the followed build has applied and the staged one has not."""
    mine, theirs = _reached(staged), _reached(followed)
    return sum(max(0, offset - mine.get(place, -1)) for place, offset in theirs.items())


def promote(view: str, standings: Standings, *, keep: int, most_behind: int = BEHIND) -> Standing:
    """Move readers to the staged build. It may lag the build that they follow by at most `most_behind` records."""
    builds = standings.of(view)
    if builds.staged is None:
        raise RunError(
            "nothing-staged",
            f"{view} has no build that waits to be promoted",
            why=f"readers follow {builds.followed}" if builds.followed else "it has no build at all",
            fix=f"leftfold rebuild {view} makes one of the definition as it is declared now",
        )
    waiting = standings.waiting_for(view, builds.staged)
    if waiting is None:
        lacks = behind(
            standings.position(view, builds.staged)[1],
            standings.position(view, builds.followed)[1] if builds.followed else (),
        )
        waiting = f"it is {lacks:,} records behind {builds.followed}" if lacks > most_behind else None
    if waiting is not None:
        raise RunError(
            "not-caught-up",
            f"{builds.staged}, which is staged for {view}, has not caught up",
            why=f"{waiting}: readers would go back in time",
            state=f"readers follow {builds.followed}" if builds.followed else "readers follow no build",
            fix=f"leftfold rebuild {view} continues with it; leftfold promote {view} --behind RECORDS takes it now",
        )
    return standings.promote(builds, keep=keep)


def roll_back(view: str, standings: Standings) -> Standing:
    """Move readers back to the build that they left at the last promote, if it is still kept."""
    builds = standings.of(view)
    previous = builds.previous
    if previous is None or previous.until < clock.now_us():
        why = (
            f"{previous.build} was kept until {from_micros(previous.until):%Y-%m-%d %H:%M} UTC"
            if previous
            else "no promote has moved readers since, or they went back already"
        )
        raise RunError(
            "nothing-kept",
            f"{view} has no build to go back to",
            why=why,
            state=f"readers follow {builds.followed}" if builds.followed else "readers follow no build",
            fix=f"declare the view as it was, and leftfold rebuild {view}",
        )
    return standings.roll_back(builds)


def _reached(ledger: Iterable[LedgerRow]) -> dict[tuple[str, int], int]:
    reached: dict[tuple[str, int], int] = {}
    for row in ledger:
        place = (row.topic, row.partition)
        reached[place] = max(row.newest_offset, reached.get(place, -1))
    return reached
