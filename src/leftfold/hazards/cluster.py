"""Hazards of the cluster alone. They hold for any cluster, whoever made it, even if nothing is declared."""

from __future__ import annotations

from leftfold.hazards import cluster_brokers, cluster_copies, cluster_readers, cluster_topics
from leftfold.hazards.hazard import Rule

CODES: tuple[str, ...] = (
    "auto-create",
    "disk-low",
    "few-brokers",
    "group-stalled",
    "group-without-members",
    "idle-members",
    "internal-replication",
    "leaders-skewed",
    "message-size",
    "min-in-sync-above",
    "min-in-sync-low",
    "min-in-sync-tight",
    "no-leader",
    "one-rack",
    "partitions-per-broker",
    "partitions-per-cluster",
    "position-lost",
    "positions-below-downtime",
    "replication-low",
    "retention-below-downtime",
    "tombstones-below-downtime",
    "unclean-election",
    "under-replicated",
    "unread-topic",
)

RULES: tuple[Rule, ...] = (
    *cluster_copies.RULES,
    *cluster_brokers.RULES,
    *cluster_topics.RULES,
    *cluster_readers.RULES,
)
