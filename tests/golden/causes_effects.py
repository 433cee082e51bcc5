"""How to provoke errors of receipts, of a start that finds them in disagreement, and of a repair."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest import mock

from leftfold.settings import Kafka
from leftfold.store.layout import LedgerRow
from tests.golden.causes import DEAD, EVENT, HEAD, TOPIC, VIEW, Cause, declares, project, stand_in

BUILD = "user_activity"


def receipt(first: int, last: int, end: int) -> Any:
    from leftfold.run.receipts import Receipt

    return Receipt(
        first=first,
        last=last,
        topics={"clicks": "yXo1pGmJQyK3xkqfXSjWvA"},
        ranges={"clicks": {0: (first * 10, end)}},
        records={"accepted": 10, "late": 0, "future": 0, "rejected": 0},
        rows=4,
        digest=7,
        ledger=(LedgerRow("clicks", 0, "accepted", end, 0, 0, end - 1),),
        applied={"online": 0},
        stores={},
        redriven=0,
    )


def disagreement(receipts: list[tuple[int, int, int]], committed: int, planned: int) -> Cause:
    def cause(_: Path) -> None:
        from leftfold.run.reconcile import check_receipts
        from leftfold.spark.checkpoint import CheckpointState

        check_receipts(BUILD, CheckpointState("id", committed, planned), [receipt(*r) for r in receipts], None)

    return cause


def topic_recreated(_: Path) -> None:
    from leftfold.run.reconcile import check_topics

    check_topics(BUILD, receipt(0, 0, 10), {"clicks": "q2m9Zy0PT5mYBm0UqGxYzg"})


def log_overtaken(_: Path) -> None:
    from leftfold.run.reconcile import check_history

    check_history(BUILD, {"clicks": {0: 120, 1: 80, 2: 5}}, {"clicks": {0: 150, 1: 80, 2: 6}})


def log_rewritten(ends: int) -> Cause:
    def cause(_: Path) -> None:
        from leftfold.run.reconcile import check_log

        check_log(BUILD, "clicks", {0: (119, 7), 1: (80, 8)}, {0: 200, 1: ends}, {0: 7, 1: 9})

    return cause


def receipt_not_written(_: Path) -> None:
    from leftfold.kafka import document_log, receipt_log

    log = receipt_log.ReceiptLog(Kafka(bootstrap=DEAD), "leftfold.receipts")
    log.__dict__["_partitions"] = 4
    with mock.patch.object(document_log, "TIMEOUT_S", 0.1):
        log.append("user_activity/b1", [("000000000041", {})])


def receipts_not_moved(_: Path) -> None:
    from leftfold.run.receipt_lake import check_added

    check_added(f"lake/leftfold.receipts/{BUILD}", f"{BUILD}/0123456789ab-01234567", last=86_399, end=3_599)


def receipts_topic_missing(_: Path) -> None:
    from confluent_kafka import KafkaError

    from leftfold.kafka.receipt_log import ReceiptLog

    log = ReceiptLog(Kafka(bootstrap=DEAD), "leftfold.receipts")
    unknown = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
    nothing = stand_in(topics={"leftfold.receipts": stand_in(error=unknown, partitions={})})
    log.__dict__["_producer"] = stand_in(list_topics=lambda topic, timeout: nothing)
    log.read("user_activity/b1")


def repair_failed(said: str) -> Cause:
    def cause(_: Path) -> None:
        from pyspark.errors import PySparkException

        from leftfold.spark.history.recompute import recomputing

        with recomputing(BUILD):
            raise PySparkException(said)

    return cause


def repair_needs_history(tmp: Path) -> None:
    from leftfold.run.reconcile import history

    (view,) = project(tmp, HEAD + EVENT + TOPIC + VIEW).catalog.views.values()
    admin = stand_in(
        start_offsets=lambda topic, partitions: {0: 500, 1: 0},
        end_offsets=lambda topic, partitions: {0: 900, 1: 900},
        offsets_at=lambda topic, partitions, moment: {0: 500, 1: 120},
    )
    job = stand_in(definition=view.definition, sweeps=True)
    source = stand_in(topics=("clicks",), partitions=(2,), archives=())
    history(stand_in(), BUILD, job, source, admin, newest_event=1_768_000_000_000_000, begins={})


CAUSES: dict[str, Cause] = {
    "checkpoint-restored": disagreement([(0, 0, 10), (1, 41, 420)], committed=30, planned=31),
    "receipts-missing": disagreement([(0, 0, 10)], committed=30, planned=31),
    "receipts-missing/between": disagreement([(0, 0, 10), (5, 5, 60)], committed=5, planned=5),
    "topic-recreated": topic_recreated,
    "log-overtaken": log_overtaken,
    "log-rewritten": log_rewritten(200),
    "log-rewritten/shorter": log_rewritten(50),
    "receipt-not-written": receipt_not_written,
    "not-applied/receipts": receipts_topic_missing,
    "receipts-not-moved": receipts_not_moved,
    "repair-failed": repair_failed("[FAILED_READ_FILE] the log could not be read"),
    "repair-failed/unclear": repair_failed("leftfold-rows-not-unique:i7 SQLSTATE: P0001"),
    "lake-interval": declares(VIEW.replace("user_id)", "user_id, to=[lf.Online(), lf.Lake(every_s=0)])")),
    "repair-needs-history": repair_needs_history,
}
