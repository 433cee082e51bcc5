"""The outcomes that only consumers with a database have, and that are no failure of a record. Loads no driver."""

from __future__ import annotations

# How many records of a partition are in one transaction at most.
SLICE = 500


class DatabaseAway(Exception):  # noqa: N818 # it says what is away, and is never shown
    """The database does not answer, or refuses all work at the moment: no reason to blame a record."""


class PartitionOvertaken(Exception):  # noqa: N818 # the same
    """Another process has claimed the partition: nothing was booked."""


class RecordAtFault(Exception):  # noqa: N818 # the same
    """The error of a record after which the handler has worked for another: so it is no outage."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(str(error))
        self.error = error


class RejectedRecord(Exception):  # noqa: N818 # the same
    """A record that is no event. It stands in its lane, so that no position passes it before its dead letter exists."""
