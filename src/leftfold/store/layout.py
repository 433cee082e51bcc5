"""Every key and byte in the store (docs/reference/protocol.md says the same for readers in other languages).

lf:NS:active:VIEW            the build that readers follow
lf:NS:build:VIEW:BUILD       its manifest
lf:NS:mark:VIEW:BUILD        hash: batch (the last one applied), newest (accepted event time, µs),
                             "PARTITION:OUTCOME" -> "records:newest log time:newest event time:newest offset"
lf:NS:row:VIEW:BUILD:ENTITY  hash: "STEP:SLOT" -> [tile index, batch, partial, partial, …]
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from leftfold.errors import StoreError
from leftfold.fold.definition import LAYOUT, Definition
from leftfold.fold.durations import SECOND


@dataclass(frozen=True)
class Build:
    """A definition under one checkpoint: batch numbers of different checkpoints never meet."""

    definition: Definition
    generation: str  # the id of the checkpoint

    @property
    def id(self) -> str:
        return f"{self.definition.fingerprint}-{self.generation[:8]}"


ACCEPTED = "accepted"
OUTCOMES = (ACCEPTED, "late", "future", "rejected")


@dataclass(frozen=True)
class LedgerRow:
    """What became of the records of one partition so far: cumulative over the build, times in microseconds."""

    partition: int
    outcome: str
    records: int
    newest_log: int
    newest_event: int
    newest_offset: int

    @property
    def name(self) -> str:
        return f"{self.partition}:{self.outcome}"

    @property
    def entry(self) -> str:
        return f"{self.records}:{self.newest_log}:{self.newest_event}:{self.newest_offset}"

    @classmethod
    def parse(cls, name: str, entry: str) -> LedgerRow:
        partition, outcome = name.split(":")
        return cls(int(partition), outcome, *map(int, entry.split(":")))


@dataclass(frozen=True)
class Names:
    """Key names of one view in one namespace."""

    namespace: str
    view: str

    @property
    def active(self) -> str:
        return f"lf:{self.namespace}:active:{self.view}"

    def manifest(self, build: str) -> str:
        return f"lf:{self.namespace}:build:{self.view}:{build}"

    def mark(self, build: str) -> str:
        return f"lf:{self.namespace}:mark:{self.view}:{build}"

    def row_prefix(self, build: str) -> str:
        return f"lf:{self.namespace}:row:{self.view}:{build}:"


def field(step: int, index: int, ring: int) -> str:
    return f"{step // SECOND}:{index % ring}"


def manifest(build: Build) -> str:
    """All that a reader needs to know of a build."""
    return json.dumps({"layout": LAYOUT, "build": build.id, "definition": build.definition.as_json()}, sort_keys=True)


def definition_in(document: Mapping[str, Any]) -> Definition:
    if document["layout"] != LAYOUT:
        raise StoreError(
            "unknown-layout",
            f"build {document['build']} has store layout {document['layout']}, this release reads {LAYOUT}",
            why="rows of another layout would be read wrongly",
            fix="use the release of Leftfold that runs the view, or run the view with this one",
        )
    return Definition.from_json(document["definition"])


def row_ttl_s(definition: Definition) -> int:
    """An entity without events for the longest window, and the longest step (a day), holds nothing a window reaches."""
    return -(-(definition.longest_window + definition.lateness + definition.future) // SECOND) + 86_400
