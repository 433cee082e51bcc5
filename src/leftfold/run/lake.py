"""The lake of one view: a separate query appends the view's changelog to a Delta table, less often than the view runs.

It also moves the view's older receipts to a second Delta table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leftfold.errors import LeftfoldError
from leftfold.run.receipt_lake import move_closed_days
from leftfold.run.running import Running
from leftfold.run.view import RunningView
from leftfold.settings import Kafka
from leftfold.spark.query import Query, Snapshot
from leftfold.spark.sinks.lake import start_lake

if TYPE_CHECKING:
    from leftfold.spark.session import SparkSession


def lake_name(view: str) -> str:
    return f"{view}.lake"


class RunningLake(Running):
    kind = "lake"

    def __init__(
        self,
        view: RunningView,
        kafka: Kafka,
        changelog: str,
        *,
        partitions: int,
        table: str,
        receipts: str,
        checkpoints: str,
        every_s: int,
        log_file: str,
    ) -> None:
        super().__init__(lake_name(view.name), partitions, log_file)
        self._kafka = kafka
        self._changelog = changelog
        self._view = view
        self._table = table
        self._receipts = receipts  # the table of older receipts
        self._every_s = every_s
        self.checkpoint = f"{checkpoints}/{self.name}"

    def prepare(self, session: SparkSession) -> None:
        """Do nothing: a lake contains no user code that would have to be compiled."""

    def _begin(self) -> Query:
        return start_lake(
            self._session,
            kafka=self._kafka,
            topic=self._changelog,
            view=self._view.name,
            table=self._table,
            checkpoint=self.checkpoint,
            every_s=self._every_s,
            until_caught_up=self._until_caught_up,
            refused=self._refuse,
            appended=self._move_receipts,
        )

    def _move_receipts(self) -> None:
        """Move receipts of closed days. It runs on the lake's thread: a commit to Delta must not delay the view."""
        if (receipts := self._view.receipts) is not None:
            move_closed_days(self._session, receipts, self._receipts, stopping=self._stopping.is_set)

    def _refuse(self, refusal: LeftfoldError) -> None:
        self._refusal = refusal

    def _noticed(self, seen: Snapshot) -> None:
        super()._noticed(seen)
        self._went_well()
