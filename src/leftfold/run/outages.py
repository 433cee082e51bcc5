"""Recognizes an engine that is away (the online store or Kafka) by the text of Spark's failure of a task or a batch.

When the driver itself asks an engine and fails, it raises one of our errors. Tasks on executors, and Spark's own
clients, leave only a text.
"""

from __future__ import annotations

import re

from leftfold.errors import LeftfoldError, LogError, StoreError, start_or_check
from leftfold.kafka.failures import BROKERS
from leftfold.store.engine import STORE

_STATE = "its last batch is not committed; it runs again, with the same records, at the next start"
# One of our errors, raised in a task: what happened, and why.
_STORE = re.compile(r"error\[store-unreachable\]: (.*)\n +why: +(.*)")
_KAFKA = (
    # Errors of the Java client that it calls retriable, after it has given up.
    re.compile(
        r"org\.apache\.kafka\.common\.errors\.(?:Timeout|Network|Disconnect|BrokerNotAvailable|LeaderNotAvailable|"
        r"NotLeaderOrFollower|CoordinatorNotAvailable|NotCoordinator|NotEnoughReplicas|NotEnoughReplicasAfterAppend)"
        r"Exception\b.*"
    ),
    re.compile(r"No resolvable bootstrap urls given in bootstrap.servers"),  # DNS is away too
    re.compile(r"Cannot fetch record for offset \d+ in \d+ milliseconds"),  # Spark's reader waited in vain for a leader
    re.compile(r"(?<=error\[changelog-not-written\]: ).*"),  # one of our errors, raised in a task
)


def outage(name: str, failure: str) -> LeftfoldError | None:
    """The error that a direct question to the engine would have raised; None if the failure names no engine."""
    if hit := _STORE.search(failure):
        return StoreError(
            "store-unreachable",
            f"{name}: {hit[1]}",
            why=hit[2][:300],
            state=_STATE,
            fix=start_or_check(STORE),
            retriable=True,
        )
    hit = next((match for words in _KAFKA if (match := words.search(failure))), None)
    if hit is None:
        return None
    return LogError(
        "kafka-unreachable",
        f"{name}: the brokers did not answer to a batch",
        why=hit[0][:300],
        state=_STATE,
        fix=start_or_check(BROKERS),
        retriable=True,
    )
