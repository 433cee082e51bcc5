"""All keys in Redis (docs/reference/protocol.md says the same for readers in other languages).

lf:NS:active:VIEW            the build that readers follow
lf:NS:staged:VIEW            a build that waits for `promote`
lf:NS:previous:VIEW          hash: build (readers left it at the last promote), until (it is kept until then, µs)
lf:NS:left:VIEW              hash: each build that readers were moved away from -> until when it is kept, µs
lf:NS:held:VIEW              set of builds that never take over readers by themselves: staged builds, and left ones
lf:NS:builds:VIEW            set of all builds of which the store holds some data
lf:NS:running:VIEW:BUILD     exists while a process runs the build
lf:NS:build:VIEW:BUILD       the manifest of the build
lf:NS:mark:VIEW:BUILD        hash: the mark (see `leftfold.store.layout`)
lf:NS:calls:VIEW:BUILD       hash, while a batch is written: each of its writers -> number of calls that it has made
lf:NS:row:VIEW:BUILD:ENTITY  hash: the row of an entity (see `leftfold.store.layout`)
lf:NS:vector:NAME            the definition of a vector
lf:NS:lease:WHAT             the process that does this at the moment
"""

from __future__ import annotations

from dataclasses import dataclass

from leftfold.store.engine import BuildPlace, ViewPlace


@dataclass(frozen=True)
class Names:
    """The key names of one view in one namespace."""

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

    def calls(self, build: str) -> str:
        return f"lf:{self.namespace}:calls:{self.view}:{build}"

    def row_prefix(self, build: str) -> str:
        return f"lf:{self.namespace}:row:{self.view}:{build}:"


def names_of(at: ViewPlace | BuildPlace) -> Names:
    return Names(at.namespace, at.view)


def row_key(at: BuildPlace, entity: str) -> str:
    """Return the key of an entity's row."""
    return names_of(at).row_prefix(at.build) + entity


def vector_name(namespace: str, vector: str) -> str:
    return f"lf:{namespace}:vector:{vector}"


def lease_name(namespace: str, what: str) -> str:
    return f"lf:{namespace}:lease:{what}"
