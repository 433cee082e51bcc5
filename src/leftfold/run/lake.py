"""The lake of one view: its changelog, appended to a Delta table by a query of its own, slower than the view."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leftfold.errors import LeftfoldError
from leftfold.run.running import Running
from leftfold.settings import Kafka
from leftfold.spark.lake import start_lake
from leftfold.spark.query import Query, Snapshot

if TYPE_CHECKING:
    from leftfold.spark.session import SparkSession


def lake_name(view: str) -> str:
    return f"{view}.lake"


class RunningLake(Running):
    kind = "lake"

    def __init__(
        self,
        view: str,
        kafka: Kafka,
        changelog: str,
        *,
        partitions: int,
        table: str,
        checkpoints: str,
        every_s: int,
        log_file: str,
    ) -> None:
        super().__init__(lake_name(view), partitions, log_file)
        self._kafka = kafka
        self._changelog = changelog
        self._view = view
        self._table = table
        self._every_s = every_s
        self.checkpoint = f"{checkpoints}/{self.name}"

    def prepare(self, session: SparkSession) -> None:
        """Nothing of it is a person's own code."""

    def _begin(self) -> Query:
        return start_lake(
            self._session,
            kafka=self._kafka,
            topic=self._changelog,
            view=self._view,
            table=self._table,
            checkpoint=self.checkpoint,
            every_s=self._every_s,
            until_caught_up=self._until_caught_up,
            refused=self._refuse,
        )

    def _refuse(self, refusal: LeftfoldError) -> None:
        self._refusal = refusal

    def _noticed(self, seen: Snapshot) -> None:
        super()._noticed(seen)
        self._went_well()
