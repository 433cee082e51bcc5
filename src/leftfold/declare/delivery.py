"""The options of a consumer's delivery: retries, batches, a budget of dead letters; what each delivery promises."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from leftfold.declare.sinks import Promise
from leftfold.errors import DeclarationError, SourceLine, caller
from leftfold.fold.durations import SECOND, Duration, micros

Delivery = Literal["at_most_once", "at_least_once", "exactly_once"]
Order = Literal["key", "partition", "none"]
Failure = Literal["dead", "park", "stop"]

# A record that fails for longer than this belongs into the dead letters: its key waits for it all the time.
LONGEST_RETRY = 300 * SECOND

PROMISES: dict[Delivery, Promise] = {
    "at_most_once": Promise(
        guarantee="each record at most once",
        mechanism="the position is committed before the handler is called",
        conditions=("after a crash the records that were in flight are lost, at most in_flight of each process",),
    ),
    "at_least_once": Promise(
        guarantee="each record at least once",
        mechanism="the position is committed after the handler has returned; a record that fails for ever is "
        "acknowledged in the dead letters before its position is passed",
        conditions=(
            "after a crash the handler is called again for records that it has handled: at most those since the last "
            "commit, and those in flight",
            "what the handler does elsewhere happens once only if the other side takes record.id as idempotency key",
        ),
    ),
    "exactly_once": Promise(
        guarantee="each record has one effect: its returned events, its dead letter and its position are one",
        mechanism="one Kafka transaction for a slice of records; a process that was overtaken is fenced by the epoch "
        "that its group had when it took the slice",
        conditions=(
            "readers of what it writes are read-committed (isolation.level=read_committed)",
            "what the handler does elsewhere is at least once",
        ),
    ),
}
INTO_DATABASE = Promise(
    guarantee="each record has one effect: its rows and its position are one, or its dead letter is there",
    mechanism="one transaction of the database for a slice of records of a partition; the position is a row of the "
    "same database, and a process that was overtaken no longer owns that row",
    conditions=(
        "rows and position are in that one database, and its commits are durable (fsync, synchronous_commit)",
        "the handler leaves commits to Leftfold; what it does elsewhere is at least once",
        "a record may be booked although it is a dead letter: after a crash between that letter and the commit",
    ),
)


@dataclass(frozen=True)
class Retry:
    """The number of attempts for a record, and how long its key waits between two of them.

    The wait doubles after each failure, from `first` up to `most`, and varies by a fifth.
    """

    attempts: int = 8
    first: Duration = "200ms"
    most: Duration = "30s"

    def __post_init__(self) -> None:
        source = caller()
        if self.attempts < 1:
            raise _bad(
                "retry-attempts", f"lf.Retry(attempts={self.attempts})", "a record is handed over at least once", source
            )
        longest = sum(self._wait_us(failures) for failures in range(1, self.attempts))
        if longest > LONGEST_RETRY:
            raise DeclarationError(
                "retry-too-long",
                f"lf.Retry(attempts={self.attempts}, first={self.first!r}, most={self.most!r}) takes "
                f"{longest // SECOND:,} s",
                why=f"later records of the same key wait for it; more than {LONGEST_RETRY // SECOND} s is what dead "
                "letters are for",
                fix="take fewer attempts, or shorter waits; leftfold dead redrive tries again later",
                source=source,
            )

    def wait_s(self, failures: int, spread: float) -> float:
        """The wait after so many failures of a record. `spread` is from -1 to 1."""
        return self._wait_us(failures) / SECOND * (1 + 0.2 * spread)

    def _wait_us(self, failures: int) -> int:
        first, most = micros(self.first, option="first"), micros(self.most, option="most")
        return min(first << min(failures - 1, 40), most)


@dataclass(frozen=True)
class Batch:
    """Several records in one call of the handler: at most `most`, of one partition, in order.

    A batch that is not full is handed over once its first record has waited for `within`; with None, at once.
    """

    most: int
    within: Duration | None = "100ms"

    def __post_init__(self) -> None:
        source = caller()
        if self.most < 1:
            raise _bad("batch-size", f"lf.Batch({self.most})", "a batch holds at least one record", source)
        if self.within is not None:
            micros(self.within, option="within", source=source)

    @property
    def within_s(self) -> float:
        return 0.0 if self.within is None else micros(self.within, option="within") / SECOND


@dataclass(frozen=True)
class MostDead:
    """The budget of dead letters. Beyond it the consumer stops: then the fault is rarely in single records.

    It stops if more than `share` of the last 10,000 records, or `run` records in a row, went into the dead letters.
    """

    share: float = 0.01
    run: int = 100

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1 or self.run < 1:
            why = "share is from 0 to 1, and run is at least 1"
            raise _bad("most-dead", f"lf.MostDead(share={self.share}, run={self.run})", why, caller())


def _bad(code: str, what: str, why: str, source: SourceLine) -> DeclarationError:
    return DeclarationError(code, f"{what} has no meaning", why=why, fix="correct the numbers", source=source)
