"""Takes away what somebody made in a namespace of its own: topics, schemas and consumer groups."""

from __future__ import annotations

from contextlib import suppress

from leftfold.errors import LogError
from leftfold.kafka.admin import Admin
from leftfold.kafka.registry import SchemaRegistry, subject_of


def remove_namespace(admin: Admin, registry: SchemaRegistry, namespace: str) -> None:
    """All topics whose name starts with it and a dot, their schemas, and the groups that show where views are."""
    assert namespace, "without a namespace this would be everything"
    topics = [name for name in admin.metadata().topics if name.startswith(f"{namespace}.")]
    for topic in topics:
        registry.forget(subject_of(topic))
    groups = [g.group_id for g in admin.answer(admin.client.list_consumer_groups()).valid]
    mine = [group for group in groups if group.startswith(f"leftfold.{namespace}.")]
    with suppress(LogError):  # a group of deleted offsets may go by itself meanwhile
        if mine:
            admin.each(admin.client.delete_consumer_groups(mine))
    if topics:
        admin.each(admin.client.delete_topics(topics))
