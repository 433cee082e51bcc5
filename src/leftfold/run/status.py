"""The status of each view: what it has applied, and its lag. It is read from the store and the log, without Spark."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any

from leftfold.declare.acceptance import OUTCOMES
from leftfold.declare.catalog import Catalog, DeclaredView
from leftfold.fold.expressions import from_micros
from leftfold.kafka.admin import Admin
from leftfold.settings import Profile
from leftfold.store.reader import Reader
from leftfold.store.standings import Standings


@dataclass(frozen=True)
class ViewStatus:
    view: str
    build: str | None  # None if no run has written the view yet
    batch: int | None
    records: dict[str, int]  # by outcome, over the life of the build
    lag: int | None  # offsets between what is applied and the end of the log; None without its topic
    staged: str | None = None  # a build that waits for `promote`
    previous: str | None = None  # the build that readers left at the last promote
    kept_until: datetime | None = None  # until then readers can go back to `previous`

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def view_statuses(
    catalog: Catalog, profile: Profile, admin: Admin, reader: Reader, standings: Standings
) -> list[ViewStatus]:
    return [view_status(view, profile, admin, reader, standings) for view in catalog.views.values()]


def view_status(view: DeclaredView, profile: Profile, admin: Admin, reader: Reader, standings: Standings) -> ViewStatus:
    status, builds = _status(view, profile, admin, reader), standings.of(view.name)
    if (previous := builds.previous) is not None:
        status = replace(status, previous=previous.build, kept_until=from_micros(previous.until))
    return replace(status, staged=builds.staged)


def _status(view: DeclaredView, profile: Profile, admin: Admin, reader: Reader) -> ViewStatus:
    build, batch, ledger = reader.ledger(view.name) or (None, None, [])
    applied: dict[tuple[str, int], int] = {}
    records = dict.fromkeys(OUTCOMES, 0)
    for row in ledger:
        records[row.outcome] += row.records
        place = (row.topic, row.partition)
        applied[place] = max(applied.get(place, 0), row.newest_offset + 1)
    lag: int | None = 0
    for topic in view.reading.topics:
        physical = profile.topic_name(topic.name, external=topic.external)
        partitions = admin.partitions([physical]).get(physical)
        if partitions is None or lag is None:
            lag = None
            continue
        ends = admin.end_offsets(physical, partitions)
        lag += sum(max(0, end - applied.get((topic.name, p), 0)) for p, end in ends.items())
    return ViewStatus(view.name, build, batch, records, lag)
