"""When Kafka, or Leftfold, is the wrong tool: each with its number."""

from __future__ import annotations

from collections.abc import Iterator

from leftfold.plan.sizing.constants import Constants
from leftfold.plan.sizing.line import Advice, amount, number
from leftfold.plan.sizing.load import Load

# One Postgres on one machine inserts that many rows a second without anybody tuning it.
FEW_RECORDS = 1_000
# Brokers, consumers and Spark are all set up for records of up to 1 MiB (max.message.bytes); ten times that is a file.
LARGE_RECORD = 1_048_588
# What a record is worth waiting for at a prompt, and less than any batch of Spark takes.
FASTEST_S = 0.1


def wrong_tool(load: Load, constants: Constants | None = None) -> tuple[Advice, ...]:
    """Reasons not to do it with Kafka, or with Leftfold; empty if there is none."""
    return tuple(_reasons(load, constants or Constants()))


def _reasons(load: Load, constants: Constants) -> Iterator[Advice]:
    needs = load.needs
    if load.rate < FEW_RECORDS and not needs.replay and load.readers <= 1:
        yield Advice(
            "wrong-tool-small",
            f"{number(load.rate)} records/s, one reader, and nothing is read again",
            f"below about {number(FEW_RECORDS)} records/s one database does it: a log earns its brokers by replay and "
            "by its second reader",
            "use a Postgres table as a work queue (select … for update skip locked)",
        )
    largest = max(needs.largest_bytes, load.record_bytes)
    if largest > LARGE_RECORD:
        yield Advice(
            "wrong-tool-large",
            f"records of {amount(largest, 'B')}; brokers take {amount(LARGE_RECORD, 'B')} unless every limit on the "
            "way is raised",
            "a large record holds up all others of its partition, in the memory of every producer, broker and reader",
            "put the bytes into object storage, and their address into the record",
        )
    if needs.answers:
        yield Advice(
            "wrong-tool-answers",
            f"the sender waits for an answer to each of {number(load.rate)} records/s",
            "a log has no way back: an answer is a second topic, and a view gives it after its batch, about "
            f"{amount(1.5 * constants.batch_s, 's')} later",
            "call a service; log what it decided",
        )
    if needs.transactions:
        yield Advice(
            "wrong-tool-transactions",
            "one record changes several keys, all or none",
            "a partition orders, and a batch writes at once, 1 key: between keys a reader may see half of it",
            "keep that in a database with transactions, and log its changes (outbox, Debezium)",
        )
    if needs.freshness_s is not None and needs.freshness_s < max(FASTEST_S, 2 * constants.batch_s):
        yield Advice(
            "wrong-tool-fresh",
            f"a record must be seen within {amount(needs.freshness_s, 's')}; a batch of Spark has a fixed cost of "
            f"{amount(constants.batch_s, 's')}, and a record may wait for two",
            f"a batch plans, reads, writes state and commits, however few its records: below about "
            f"{amount(max(FASTEST_S, 2 * constants.batch_s), 's')} no number of cores helps",
            "compute it where the record is made or read: a Kafka consumer of one's own, or Flink",
        )
