"""How many copies must have a record before it counts as written, of a topic that is there already.

A plan moves no replica, so what is declared may be more than a topic can do.
"""

from __future__ import annotations

from leftfold.kafka.observed import ObservedTopic

SETTING = "min.insync.replicas"


def in_sync_for(copies: int) -> int:
    """Of a topic with so many: survives the loss of any one broker."""
    return max(1, copies - 1)


def reachable(wanted: int, found: ObservedTopic) -> int:
    """`wanted`, or the most with which a broker that is down stops no writer.

    A topic that has it already, of which all copies must be in sync, is left alone: to lower it would lose more.
    """
    if found.configs.get(SETTING) == str(wanted) and wanted <= found.replication:
        return wanted
    return min(wanted, in_sync_for(found.replication))
