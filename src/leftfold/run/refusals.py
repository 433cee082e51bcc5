"""The errors with which a view stops: they explain what was found in its stores, and what Spark's failures mean."""

from __future__ import annotations

from leftfold.errors import RunError, SourceLine, StoreError
from leftfold.kafka.changelog import StaleWriterError
from leftfold.spark.cutover import NOT_CLOSED
from leftfold.spark.views.free import NOT_UNIQUE
from leftfold.store.writer import OLDER_CHECKPOINT, newer_checkpoint


def swept(view: str, rows: int, batch: int) -> RunError:
    return RunError(
        "accepted-records-swept",
        f"{view}: Spark's watermark dropped {rows} rows of accepted records",
        why="a partition was read far behind another, and the check before the commit did not see it",
        state=f"batch {batch} is committed without them: this build is no longer true to the log",
        fix=f"leftfold run --fresh {view}",
    )


def stale(view: str, error: StaleWriterError) -> StoreError:
    return StoreError(
        "store-ahead",
        f"{view}: the changelog has batches up to {error.found}, and this run's next one is {error.batch}",
        why=OLDER_CHECKPOINT,
        state="the batch was not written; readers see the store as it is",
        fix=newer_checkpoint(view),
    )


def explained(view: str, failure: str, *, staged: bool, source: SourceLine) -> RunError | None:
    """Explain a failure of Spark to the user; None if the failure has no special meaning."""
    if NOT_CLOSED in failure:
        return RunError(
            "history-not-closed",
            f"{view}: a record came for a tile that the rebuild had closed",
            why="a broker's clock went back by more than a minute, or log times were changed",
            state="the batch is not committed; this build cannot continue, and readers see it as it is",
            fix=f"leftfold rebuild {view} --restart reads history once more"
            if staged
            else f"leftfold run --fresh {view} reads the log again from its start into a new build",
        )
    if NOT_UNIQUE in failure:
        key = failure.split(NOT_UNIQUE, 1)[1].split("\n", 1)[0].split(" SQLSTATE", maxsplit=1)[0]
        return RunError(
            "view-rows-not-unique",
            f"{view} gave several rows for the key {key!r} in one batch",
            why="a key has one row, and nothing says which of these it is",
            state="the batch is not committed; readers see the rows before it",
            fix='name the column that decides: @lf.view(..., latest="window_end")',
            source=source,
        )
    if "CANNOT_LOAD_STATE_STORE" in failure:
        return RunError(
            "state-unreadable",
            f"the state of {view} cannot be read from its checkpoint",
            why="files of it are missing or damaged: somebody removed them, or two runs used it at once",
            state="nothing was written; readers see the rows before it",
            fix=f"leftfold run --fresh {view} reads the log again from its start into a new build",
            retriable="does not exist" not in failure,  # else the file system may be away for a moment
        )
    if "CONCURRENT_STREAM_LOG_UPDATE" in failure:
        return RunError(
            "overtaken",
            f"another run of {view} has gone on with its checkpoint",
            why="this one was considered dead, or two were started on different machines",
            state="its last batch is the other's: nothing of it was written twice",
            fix="leave it to the other one, or end that first to run the view here",
        )
    return None
