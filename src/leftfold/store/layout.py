"""Every key and byte in the store (docs/reference/protocol.md says the same for readers in other languages).

lf:NS:active:VIEW            the build that readers follow
lf:NS:staged:VIEW            a build that waits for `promote`
lf:NS:previous:VIEW          hash: build (that readers left at the last promote), until (it is kept, µs)
lf:NS:left:VIEW              hash: builds that readers were moved away from, each until when it is kept, µs
lf:NS:held:VIEW              set of builds that never take readers over by themselves: staged ones, and those left
lf:NS:builds:VIEW            set of all builds that the store has something of
lf:NS:running:VIEW:BUILD     is there while a process runs the build
lf:NS:build:VIEW:BUILD       its manifest
lf:NS:mark:VIEW:BUILD        hash: batch (the last one applied), newest (accepted event time, µs),
                             history (of a rebuilt build: "written", and "passed" once its stream is past that),
                             "TOPIC/PARTITION:OUTCOME" -> "records:newest log time:newest event time:newest offset"
lf:NS:row:VIEW:BUILD:ENTITY  hash: "STEP:SLOT" -> [tile index, batch, partial, partial, …]
                             "life"      -> [newest event time, batch, partial, partial, …]
                             "row"       -> [position, batch, value, value, …], or [position, batch] if deleted
lf:NS:vector:NAME            what a vector gathers
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from leftfold.errors import StoreError
from leftfold.fold.definition import LAYOUT, Definition
from leftfold.fold.durations import SECOND
from leftfold.fold.latest import Latest


@dataclass(frozen=True)
class Build:
    """A definition under one checkpoint: batch numbers of different checkpoints never meet."""

    definition: Definition | Latest
    generation: str  # the id of the checkpoint

    @property
    def id(self) -> str:
        return f"{self.definition.fingerprint}-{self.generation[:8]}"


ACCEPTED = "accepted"
OUTCOMES = (ACCEPTED, "late", "future", "rejected")
LIFETIME_FIELD = "life"
ROW_FIELD = "row"
# A field of the mark of a rebuilt build: the rows that a scan of history made are written; and, once the stream is past
# what the scan has read, all of them are true to the same position.
HISTORY, WRITTEN, PASSED = "history", "written", "passed"
DIGESTS = 1 << 64  # digests of rows add up to that of a batch, and wrap around here


@dataclass(frozen=True)
class LedgerRow:
    """What became of the records of one partition so far: cumulative over the build, times in microseconds."""

    topic: str
    partition: int
    outcome: str
    records: int
    newest_log: int
    newest_event: int
    newest_offset: int

    @property
    def name(self) -> str:
        return f"{self.topic}/{self.partition}:{self.outcome}"

    @property
    def entry(self) -> str:
        return f"{self.records}:{self.newest_log}:{self.newest_event}:{self.newest_offset}"

    @classmethod
    def parse(cls, name: str, entry: str) -> LedgerRow:
        place, outcome = name.rsplit(":", 1)
        topic, partition = place.rsplit("/", 1)
        return cls(topic, int(partition), outcome, *map(int, entry.split(":")))

    def after(self, before: LedgerRow | None) -> LedgerRow:
        """This row of one batch, on top of the batches before it."""
        if before is None:
            return self
        return replace(
            self,
            records=self.records + before.records,
            newest_log=max(self.newest_log, before.newest_log),
            newest_event=max(self.newest_event, before.newest_event),
            newest_offset=max(self.newest_offset, before.newest_offset),
        )


def ledger_in(mark: Mapping[bytes, bytes]) -> tuple[int, list[LedgerRow]]:
    """The last applied batch (-1 if none) and the ledger, of what a mark holds."""
    entries = {name.decode(): entry.decode() for name, entry in mark.items()}
    rows = [LedgerRow.parse(name, entry) for name, entry in entries.items() if ":" in name]
    return int(entries.get("batch", "-1")), rows


@dataclass(frozen=True)
class Names:
    """Key names of one view in one namespace."""

    namespace: str
    view: str

    @property
    def active(self) -> str:
        return f"lf:{self.namespace}:active:{self.view}"

    @property
    def staged(self) -> str:
        return f"lf:{self.namespace}:staged:{self.view}"

    @property
    def previous(self) -> str:
        return f"lf:{self.namespace}:previous:{self.view}"

    @property
    def left(self) -> str:
        return f"lf:{self.namespace}:left:{self.view}"

    @property
    def held(self) -> str:
        return f"lf:{self.namespace}:held:{self.view}"

    @property
    def builds(self) -> str:
        return f"lf:{self.namespace}:builds:{self.view}"

    def running(self, build: str) -> str:
        return f"lf:{self.namespace}:running:{self.view}:{build}"

    def manifest(self, build: str) -> str:
        return f"lf:{self.namespace}:build:{self.view}:{build}"

    def mark(self, build: str) -> str:
        return f"lf:{self.namespace}:mark:{self.view}:{build}"

    def row_prefix(self, build: str) -> str:
        return f"lf:{self.namespace}:row:{self.view}:{build}:"


def field(step: int, index: int, ring: int) -> str:
    return f"{step // SECOND}:{index % ring}"


def vector_name(namespace: str, vector: str) -> str:
    return f"lf:{namespace}:vector:{vector}"


def manifest(build: Build) -> str:
    """All that a reader needs to know of a build."""
    kind = "features" if isinstance(build.definition, Definition) else "latest"
    document = {"layout": LAYOUT, "build": build.id, "kind": kind, "definition": build.definition.as_json()}
    return json.dumps(document, sort_keys=True)


def definition_in(document: Mapping[str, Any]) -> Definition | Latest:
    if document["layout"] != LAYOUT:
        raise StoreError(
            "unknown-layout",
            f"build {document['build']} has store layout {document['layout']}, this release reads {LAYOUT}",
            why="rows of another layout would be read wrongly",
            fix="use the release of Leftfold that runs the view, or run the view with this one",
        )
    kind = Definition if document["kind"] == "features" else Latest
    return kind.from_json(document["definition"])


def row_ttl_s(definition: Definition | Latest) -> int:
    """After so long without a write a row holds nothing that a read would see; 0 keeps it for ever.

    An entity without events for the longest window, and the longest step (a day), holds nothing a window reaches.
    """
    if isinstance(definition, Latest):
        return 0 if definition.ttl is None else -(-definition.ttl // SECOND)
    kept = [f.ttl for f in definition.windowed if f.window is None]
    if None in kept:
        return 0
    longest = max([definition.longest_window, *(ttl for ttl in kept if ttl is not None)])
    return -(-(longest + definition.lateness + definition.future) // SECOND) + 86_400
