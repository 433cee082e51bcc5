"""The interface of a store: what an engine must be able to do, and nothing about how it does it.

An engine keeps rows, each a small map from names to bytes, and a mark for each build. Six verbs carry a batch and a
read:

announce  publishes the manifest of a build
claim     is the look before a batch: how far the store is, and counted calls begin anew
rows      writes rows by the rule of the fence (docs/reference/protocol.md), and counts the call
move      moves the mark, if every call is counted and everything before is there
heads     are the followed build of a view and its mark
get       is the row of an entity

The last two are questions, which readers ask together in one round trip.

Each takes effect as a whole or not at all. A store may go back in time as a whole: then `move` finds it out. A store
whose parts may go back alone has a mark for each of its buckets (see `buckets`): they move first, one by one, and the
mark of the build last.
The other methods move readers between builds, remove builds, and hold leases.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, Self

from leftfold.fold.definition import Definition

STORE = "host and port in online.url of the profile, and that this machine may connect to them"

# A question that a client sends to its store, prepared by the same engine's `Questions`. Answers have one shape for all
# engines: bytes or None; of fields a list of them; of a row or a whole mark a list name, value, name, value, …
Question = Any


@dataclass(frozen=True)
class ViewPlace:
    """A view in a namespace."""

    namespace: str
    view: str

    def build(self, build: str) -> BuildPlace:
        return BuildPlace(self.namespace, self.view, build)


@dataclass(frozen=True)
class BuildPlace:
    """A build of a view in a namespace."""

    namespace: str
    view: str
    build: str

    @property
    def of(self) -> ViewPlace:
        return ViewPlace(self.namespace, self.view)


@dataclass(frozen=True)
class Calls:
    """The number of calls that one writer has sent to one bucket of the store.

    If the store has counted fewer calls of this writer, it has lost rows of it.
    """

    writer: str
    count: int
    bucket: int = 0


@dataclass(frozen=True)
class FramedRow:
    """A row of an entity, with its tiles in frames: field, value, field, value, …"""

    entity: str
    tiles: int
    frames: bytes | memoryview


@dataclass(frozen=True)
class StorePosition:
    """The position of a build in a store."""

    batch: int  # the last one applied everywhere, -1 if none
    redriven: int  # all records re-driven before this offset have taken effect
    buckets: tuple[int, ...] = ()  # the last batch of each bucket, if the store has several

    @property
    def furthest(self) -> int:
        """The last batch that any bucket has."""
        return max((self.batch, *self.buckets))

    def behind(self, batch: int) -> frozenset[int]:
        """Return the buckets that lack this batch."""
        batches = self.buckets or (self.batch,)
        return frozenset(bucket for bucket, last in enumerate(batches) if last < batch)


@dataclass(frozen=True)
class MoveMark:
    """A move of the mark from batch N-1 to N, with the ledger of that batch.

    After a repair, the mark is written again from any batch before N.
    """

    batch: int
    repaired: bool
    redriven: int  # how far records were re-driven: the store must have that too
    history: str | None  # the state of the scan of history; None if the build has none
    newest: int  # newest event time, µs
    entries: Mapping[str, str]  # the ledger: "TOPIC/PARTITION:OUTCOME" -> its entry
    buckets: frozenset[int] | None = None  # those that a repair has written; None: all of them


@dataclass(frozen=True)
class MoveRedriven:
    """A move of the offset up to which re-driven records have taken effect, at a batch."""

    batch: int
    since: int
    until: int


@dataclass(frozen=True)
class EndOfScan:
    """The end of a scan of history: all rows that it makes are written."""

    history: str


@dataclass(frozen=True)
class Moved:
    """The batch of a mark after a move, and what the store lacked, so that nothing has moved.

    It lacked "rows", "redriven", "history" or "manifest", or nothing. If it lacked nothing and the batch is another one
    than that of the move, the store is not where the move expected it, and nothing has moved either.
    """

    batch: int
    missing: str


@dataclass(frozen=True)
class Builds:
    """The builds of a view that a store knows, by what they are to readers."""

    active: str | None  # the build that readers follow
    staged: str | None  # waits for `promote`
    previous: tuple[str, int] | None  # readers left it at the last promote, and it is kept until then, µs
    left: Mapping[str, int]  # each build that readers were moved away from, and until when it is kept, µs
    held: frozenset[str]  # never take over readers by themselves
    known: frozenset[str]  # all builds of which the store holds some data


@dataclass(frozen=True)
class MemoryInUse:
    used: int  # bytes
    limit: int  # 0: as much as the machine has
    policy: str  # eviction policy: what the store does at the limit


@dataclass(frozen=True)
class Footprint:
    """The memory of a server that rows take in addition to their texts."""

    entity: float  # bytes of a row in addition to its name and tiles
    tile: float  # bytes of a tile in addition to its text, in a packed row
    loose_tile: float  # the same in a row that is not packed
    packed_tiles: int | None  # the server's limits of packing; None if it does not report them
    packed_value: int | None


Move = MoveMark | MoveRedriven | EndOfScan


class Store(Protocol):
    """One online store. Its methods may be called by several threads, and raise StoreError."""

    # The heart ---------------------------------------------------------------------------------------------------

    def announce(self, at: BuildPlace, manifest: str) -> None:
        """Publish the manifest. A view's first build is followed at once, unless it is held."""

    def claim(self, at: BuildPlace, batch: int | None) -> StorePosition:
        """Return how far the store is. Calls that were counted for an earlier attempt are forgotten.

        With a batch this happens only if the store has that batch or the one before it.
        """

    def rows(
        self, at: BuildPlace, rows: Iterable[FramedRow], ttl_s: int, *, packs: Definition | None, repairs: bool
    ) -> tuple[int, Sequence[Calls]]:
        """Write rows, and return how many tiles took effect, and the calls that each bucket has counted.

        A row without a write for `ttl_s` expires, with 0 never. Rows of the definition `packs` that have many tiles as
        fields are packed. Rows that `repairs` wrote have all tiles that a read reaches.
        """

    def move(self, at: BuildPlace, to: Move, calls: Sequence[Calls]) -> Moved:
        """Move the mark, if all these calls are counted."""

    def mark(self, at: BuildPlace) -> dict[bytes, bytes]:
        """Return the whole mark of a build, empty if it has none."""

    def position(self, at: BuildPlace) -> StorePosition: ...

    # Builds and readers ------------------------------------------------------------------------------------------

    def manifest(self, at: BuildPlace) -> bytes | None: ...

    def builds(self, at: ViewPlace) -> Builds:
        """Return the builds of a view, all from one moment."""

    def activate(self, at: BuildPlace, until: int) -> bool:
        """Make readers follow a build unless it is held, and keep the one that they leave until then.

        Returns whether they follow it.
        """

    def stage(self, at: BuildPlace, *, anew: bool) -> None:
        """Make a build wait for `promote`.

        A build that was held before keeps its state, unless it is staged `anew`. One that readers follow is never
        staged.
        """

    def hold(self, at: BuildPlace) -> None: ...

    def promote(self, at: ViewPlace, staged: str, followed: str, until: int) -> bool:
        """Move readers from the followed build ("" if none) to the staged one, if both are still that."""

    def roll_back(self, at: ViewPlace, previous: str, followed: str) -> bool:
        """Move readers from the followed build back to the previous one, if both are still that."""

    def beat(self, at: BuildPlace, seconds: int) -> None:
        """Record that a process runs the build, for so long."""

    def rest(self, at: BuildPlace) -> None:
        """Record that no process runs the build."""

    def is_running(self, at: BuildPlace) -> bool: ...

    def retire(self, at: BuildPlace, now: int) -> str:
        """Remove manifest and mark, so that nobody can follow the build any more.

        If it is needed, nothing happens, and the answer says why: followed, staged, running or kept. Else it is "".
        """

    def erase(self, at: BuildPlace) -> None:
        """Remove all rows of a retired build, in steps that are too short to be noticed."""

    def forget(self, at: BuildPlace) -> None:
        """Remove the build from the ones that are known."""

    def publish(self, namespace: str, vectors: Mapping[str, str]) -> None:
        """Publish documents of vectors, by name."""

    # Leases ------------------------------------------------------------------------------------------------------

    def take(self, namespace: str, what: str, holder: str, seconds: int, *, instead_of: str | None = None) -> bool:
        """Take a lease that nobody has, or that exactly this other holder has. Returns whether it was taken."""

    def holder(self, namespace: str, what: str) -> tuple[str, int]:
        """Return who has a lease, "" if nobody, and for how many seconds it is still valid."""

    def renew(self, namespace: str, what: str, holder: str, seconds: int) -> bool: ...

    def release(self, namespace: str, what: str, holder: str) -> None: ...

    # The server --------------------------------------------------------------------------------------------------

    def memory(self) -> MemoryInUse | None:
        """Return the server's memory in use and its limit; None if it does not tell, or keeps rows on disk."""

    def footprint(self, namespace: str) -> Footprint | None:
        """Write a few hundred rows and measure their cost in memory; None if the store keeps rows on disk.

        The caller must remove the namespace afterwards.
        """

    def writing_s(self) -> float | None:
        """Return for how many seconds the server has written rows since it started; None if it does not tell."""

    def remove_namespace(self, namespace: str) -> None: ...

    def close(self) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Questions(Protocol):
    """Prepares the questions of readers."""

    def followed(self, at: ViewPlace) -> Question:
        """Ask which build readers follow."""

    def manifest(self, at: BuildPlace) -> Question: ...

    def vector(self, namespace: str, name: str) -> Question: ...

    def mark(self, at: BuildPlace, fields: Sequence[str]) -> Question:
        """Ask for some fields of a mark."""

    def whole_mark(self, at: BuildPlace) -> Question: ...

    def row(self, at: BuildPlace) -> Callable[[str], Question]:
        """Return what prepares the question for the row of an entity."""


class Client(Protocol):
    """Sends questions in one round trip, from a thread. Answers may be newer than those before them, never older."""

    def execute(self, questions: Sequence[Question]) -> list[Any]: ...


class AsyncClient(Protocol):
    """Does the same from an event loop."""

    async def execute(self, questions: Sequence[Question]) -> list[Any]: ...
