"""The values in a store: manifests, marks and rows (docs/reference/protocol.md says the same in full).

A row is a map from names to bytes:

"STEP:SLOT"     [tile index, batch, partial, partial, …]
"packed"        more tiles, in binary columns (see `packed`)
"packed_batch"  BATCH:CHECKSUM, the newest batch of these tiles, and crc32 of "packed"
"life"          [newest event time, batch, partial, partial, …]
"row"           [position, batch, value, value, …], or [position, batch] if deleted

A mark is such a map too:

"batch"         the last batch that was applied
"newest"        reads are made after this event time, µs
"history"       only in a rebuilt build: "written", and "passed" once its stream is past that
"redriven"      how far re-driven records have taken effect; absent if none has
"TOPIC/PARTITION:OUTCOME"
                records:newest log time:newest event time:newest offset:hashes of all records, twice:hash of the newest
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

from leftfold.declare.acceptance import ACCEPTED
from leftfold.declare.features import FUTURE_TOLERANCE
from leftfold.errors import StoreError
from leftfold.fold.build_id import BuildId
from leftfold.fold.definition import LAYOUT, LAYOUTS_READ, Definition, Origin
from leftfold.fold.durations import SECOND
from leftfold.fold.latest import Latest


@dataclass(frozen=True)
class Build:
    """A definition under one checkpoint. Batch numbers of different checkpoints are never compared."""

    definition: Definition | Latest
    generation: str  # the id of the checkpoint

    @property
    def id(self) -> str:
        return str(BuildId.of(self.definition.fingerprint, self.generation))


LIFETIME_FIELD = "life"
ROW_FIELD = "row"
PACKED_FIELD, PACKED_BATCH_FIELD = "packed", "packed_batch"
# A field in the mark of a rebuilt build. "written": the rows that the scan of history made are written. "passed": the
# stream is past what the scan has read, so all rows are correct for the same position.
HISTORY, WRITTEN, PASSED = "history", "written", "passed"
REDRIVEN = "redriven"  # a field of the mark: all records re-driven before this offset have taken effect
DIGESTS = 1 << 64  # the digests of rows are added up to the digest of a batch, modulo this number


@dataclass(frozen=True)
class LedgerRow:
    """The number of one partition's records with one outcome, and the newest of them.

    It is cumulative over the build. Times are in microseconds.
    """

    topic: str
    partition: int
    outcome: str
    records: int
    newest_log: int
    newest_event: int
    newest_offset: int
    # Two hashes of every record, each combined over all records by exclusive or; then the first hash of the newest
    # record.
    content: tuple[int, int] = (0, 0)
    newest_hash: int | None = None  # None: counted by a release that did not keep hashes yet

    @property
    def name(self) -> str:
        return f"{self.topic}/{self.partition}:{self.outcome}"

    @property
    def entry(self) -> str:
        counts = (self.records, self.newest_log, self.newest_event, self.newest_offset)
        hashes = () if self.newest_hash is None else (*self.content, self.newest_hash)
        return ":".join(map(str, (*counts, *hashes)))

    @classmethod
    def parse(cls, name: str, entry: str) -> LedgerRow:
        place, outcome = name.rsplit(":", 1)
        topic, partition = place.rsplit("/", 1)
        records, log, event, offset, *hashes = map(int, entry.split(":"))
        counted = cls(topic, int(partition), outcome, records, log, event, offset)
        return replace(counted, content=(hashes[0], hashes[1]), newest_hash=hashes[2]) if hashes else counted

    def after(self, before: LedgerRow | None) -> LedgerRow:
        """Add this row of one batch to the row of the batches before it."""
        if before is None:
            return self
        return replace(
            self,
            records=self.records + before.records,
            newest_log=max(self.newest_log, before.newest_log),
            newest_event=max(self.newest_event, before.newest_event),
            newest_offset=max(self.newest_offset, before.newest_offset),
            content=(self.content[0] ^ before.content[0], self.content[1] ^ before.content[1]),
            newest_hash=max(self, before, key=attrgetter("newest_offset")).newest_hash,
        )


def ledger_in(mark: Mapping[bytes, bytes]) -> tuple[int, list[LedgerRow]]:
    """Return the last applied batch (-1 if none) and the ledger that a mark holds."""
    entries = {name.decode(): entry.decode() for name, entry in mark.items()}
    rows = [LedgerRow.parse(name, entry) for name, entry in entries.items() if ":" in name]
    return int(entries.get("batch", "-1")), rows


def reached(ledger: Iterable[LedgerRow], origins: Iterable[Origin], now: int) -> int:
    """Return the newest accepted event time, 0 if there is none. Reads of a view are made after this time.

    For most topics the broker's clock bounds it. If a topic's producers stamp its log, a producer whose clock is ahead
    would move every read of the view. So the event times of such a topic count only up to `now` (this machine's clock)
    plus the tolerance for a clock that is ahead.
    """
    stamped = {origin.topic for origin in origins if origin.log_time == "producer"}
    accepted = [row for row in ledger if row.outcome == ACCEPTED]
    most = now + FUTURE_TOLERANCE
    return max((min(r.newest_event, most) if r.topic in stamped else r.newest_event for r in accepted), default=0)


def field(step: int, index: int, ring: int) -> str:
    return f"{step // SECOND}:{index % ring}"


def manifest(build: Build) -> str:
    """Return the manifest of a build: everything that a reader must know about it."""
    return json.dumps({**definition_document(build.definition), "build": build.id}, sort_keys=True)


def definition_document(definition: Definition | Latest) -> dict[str, Any]:
    """Return a definition as a document that `definition_in` reads, once it has the name of a build as `build`."""
    kind = "features" if isinstance(definition, Definition) else "latest"
    return {"layout": LAYOUT, "kind": kind, "definition": definition.as_json()}


def definition_in(document: Mapping[str, Any]) -> Definition | Latest:
    if document["layout"] not in LAYOUTS_READ:
        raise StoreError(
            "unknown-layout",
            f"build {document['build']} has store layout {document['layout']}, this release reads "
            + " and ".join(map(str, LAYOUTS_READ)),
            why="rows of another layout would be read wrongly",
            fix="use the release of Leftfold that runs the view, or run the view with this one",
        )
    kind = Definition if document["kind"] == "features" else Latest
    return kind.from_json(document["definition"])


def row_ttl_s(definition: Definition | Latest) -> int:
    """Return the seconds without a write after which a row holds nothing that a read can see; 0 keeps it for ever.

    For windowed features it is the longest window or ttl, plus the allowed lateness and the tolerance for future
    events, plus the longest step (a day).
    """
    if isinstance(definition, Latest):
        return 0 if definition.ttl is None else -(-definition.ttl // SECOND)
    ttls = [f.ttl for f in definition.windowed if f.window is None]
    if None in ttls:
        return 0
    longest = max([definition.longest_window, *(ttl for ttl in ttls if ttl is not None)])
    return -(-(longest + definition.lateness + definition.future) // SECOND) + 86_400
