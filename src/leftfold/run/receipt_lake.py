"""Moves the receipts of closed days from their topic to the lake: it appends them there, then removes them here.

A process that dies in between leaves them in both places. The next move finds them in the table, and only removes them
from the topic.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from leftfold.errors import RunError
from leftfold.run.receipt_store import ReceiptStore
from leftfold.spark.sinks import receipts as receipt_table
from leftfold.spark.sinks.receipts import ReceiptRow

if TYPE_CHECKING:
    from leftfold.spark.session import SparkSession


def move_closed_days(
    session: SparkSession, receipts: ReceiptStore, table: str, *, stopping: Callable[[], bool]
) -> None:
    """Move all closed days, one day at a time: no more than one day is in memory."""
    build = receipts.scope.partition("/")[2]
    while (day := receipts.oldest_day()) and not stopping():
        receipt_table.make(session, table)
        end = receipt_table.end_of(session, table, build)
        if missing := [detail for detail in day if detail.last > end]:
            documents = receipts.documents(missing)
            rows = [(ReceiptRow(d.first, d.last, d.online), documents[d.key]) for d in missing if d.key in documents]
            if rows:
                receipt_table.add(session, table, build, rows)
                check_added(table, receipts.scope, rows[-1][0].last, receipt_table.end_of(session, table, build))
        receipts.remove(detail.key for detail in day)


def check_added(table: str, scope: str, last: int, end: int) -> None:
    """Refuse to continue if the appended receipts are not in the table.

    Delta silently skips an append that it believes to have already.
    """
    if end < last:
        raise RunError(
            "receipts-not-moved",
            f"receipts of {scope} up to batch {last} were appended to {table}, and it ends with batch {end}",
            why="the table was restored to an older version: Delta still counts what was appended since as done",
            state="they are still in the topic of receipts; nothing was removed",
            fix=f"rename {table}: a new one is made, and what the topic still holds goes there",
        )
