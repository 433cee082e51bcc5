"""The sinks of a view's rows and the promise of each sink. A promise is data, so that a plan can print it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from leftfold.errors import DeclarationError, SourceLine


@dataclass(frozen=True)
class Promise:
    """The guarantee that a store gives after any crash, the mechanism behind it, and its conditions."""

    guarantee: str
    mechanism: str
    conditions: tuple[str, ...]


@dataclass(frozen=True)
class Online:
    """The online store: rows that `get` reads."""

    name: ClassVar[str] = "online"
    promise: ClassVar[Promise] = Promise(
        guarantee="one effect per batch, in the order of batches",
        mechanism="absolute values with a batch number per tile, replaced only by newer ones; the tiles of an entity "
        "in one batch are one atomic write; a mark moves from batch N-1 to N or the batch is refused",
        conditions=(
            "as durable as Redis is configured: a store that went back to an older state, or is empty, is noticed at "
            "the next batch and computed again from the log, as far back as the log is kept",
            "Redis evicts nothing (maxmemory-policy noeviction): single rows that are gone are not noticed",
        ),
    )


@dataclass(frozen=True)
class Changelog:
    """A compacted topic, VIEW.changelog, that mirrors the online store for other readers."""

    name: ClassVar[str] = "changelog"
    promise: ClassVar[Promise] = Promise(
        guarantee="one effect per batch, in the order of batches",
        mechanism="one Kafka transaction per writer and batch, with the writer's batch number in it; a writer that was "
        "replaced is fenced, and one that starts checks that nothing later was written",
        conditions=(
            "readers read committed records only (isolation.level=read_committed)",
            "the brokers keep a group's offsets for as long as a view is ever stopped (Kafka's default is 7 days)",
        ),
    )


@dataclass(frozen=True)
class Lake:
    """A Delta table that a separate query fills from the changelog. A view with a Lake always has a changelog too."""

    every_s: int = 60
    name: ClassVar[str] = "lake"
    promise: ClassVar[Promise] = Promise(
        guarantee="every record of the changelog exactly once",
        mechanism="each commit of the table carries the query's batch number and the offsets at which it ends; a query "
        "starts at the offsets of the table's newest commit",
        conditions=(
            "it is never a day behind: compaction may then remove records that it has not read",
            "the table's file system has atomic commits, as Delta asks for",
        ),
    )


Sink = Online | Changelog | Lake
ARCHIVES = "archive"  # the directory in a lake that holds the archives of topics
OUTCOMES = "outcomes"  # the directory in a lake that holds the rows of outcomes
# Directories in a lake whose names no view's own table may have, and their tables.
RESERVED_TABLES = {ARCHIVES: "the archives of topics", OUTCOMES: "the rows of outcomes"}


def checked_sinks(view: str, to: Sequence[Sink], source: SourceLine) -> tuple[Sink, ...]:
    """Return the sinks in the order of writing, and check them.

    The online store is first, because it must be the freshest. A lake adds a changelog.
    """
    known = [sink for sink in to if isinstance(sink, Sink)]
    kinds = [type(sink) for sink in known]
    if len(known) < len(to) or Online not in kinds or len(set(kinds)) < len(kinds):
        raise DeclarationError(
            "no-sink",
            f"{view} goes to={list(to)!r}",
            why="a view goes to the online store, and from there to at most one changelog and one lake",
            fix="leave to= out, or write to=[lf.Online()], and add lf.Changelog() or lf.Lake()",
            source=source,
        )
    lakes = [sink for sink in known if isinstance(sink, Lake)]
    if any(lake.every_s < 1 for lake in lakes):
        raise DeclarationError(
            "lake-interval",
            f"{view} goes to lf.Lake(every_s={lakes[0].every_s})",
            why="it is how many seconds lie between two commits of the table, each of which costs about a second",
            fix="give a whole number of seconds, 60 for example",
            source=source,
        )
    wants_changelog = Changelog in kinds or lakes
    return (Online(), *((Changelog(),) if wants_changelog else ()), *lakes)
