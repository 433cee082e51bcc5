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

In a Redis Cluster, `{TAG}:` follows `lf:` in each of them (see `cluster.buckets`).
"""

from __future__ import annotations

from dataclasses import dataclass

from leftfold.store.engine import BuildPlace, ViewPlace


@dataclass(frozen=True)
class Names:
    """The key names of one view in one namespace."""

    namespace: str
    view: str
    tag: str = ""

    @property
    def active(self) -> str:
        return self._name(f"active:{self.view}")

    @property
    def staged(self) -> str:
        return self._name(f"staged:{self.view}")

    @property
    def previous(self) -> str:
        return self._name(f"previous:{self.view}")

    @property
    def left(self) -> str:
        return self._name(f"left:{self.view}")

    @property
    def held(self) -> str:
        return self._name(f"held:{self.view}")

    @property
    def builds(self) -> str:
        return self._name(f"builds:{self.view}")

    def running(self, build: str) -> str:
        return self._name(f"running:{self.view}:{build}")

    def manifest(self, build: str) -> str:
        return self._name(f"build:{self.view}:{build}")

    def mark(self, build: str) -> str:
        return self._name(f"mark:{self.view}:{build}")

    def calls(self, build: str) -> str:
        return self._name(f"calls:{self.view}:{build}")

    def row_prefix(self, build: str) -> str:
        return self._name(f"row:{self.view}:{build}:")

    def _name(self, rest: str) -> str:
        return _beginning(self.namespace, self.tag) + rest


def names_of(at: ViewPlace | BuildPlace, tag: str = "") -> Names:
    return Names(at.namespace, at.view, tag)


def row_key(at: BuildPlace, entity: str, tag: str = "") -> str:
    """Return the key of an entity's row."""
    return names_of(at, tag).row_prefix(at.build) + entity


def vector_name(namespace: str, vector: str, tag: str = "") -> str:
    return f"{_beginning(namespace, tag)}vector:{vector}"


def lease_name(namespace: str, what: str, tag: str = "") -> str:
    return f"{_beginning(namespace, tag)}lease:{what}"


def _beginning(namespace: str, tag: str) -> str:
    return f"lf:{{{tag}}}:{namespace}:" if tag else f"lf:{namespace}:"
