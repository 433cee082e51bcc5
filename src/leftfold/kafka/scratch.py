"""Removes what was made in a temporary namespace: topics, schemas and consumer groups."""

from __future__ import annotations

from contextlib import suppress

from leftfold.errors import LogError
from leftfold.kafka.admin import Admin
from leftfold.kafka.registry import SchemaRegistry, subject_of
from leftfold.settings import group_id


def remove_namespace(admin: Admin, registry: SchemaRegistry, namespace: str) -> None:
    """Remove a namespace's topics, their schemas, and its consumer groups.

    Topics are those whose name starts with the namespace and a dot. Groups are those that start with its group id and a
    dot.
    """
    assert namespace, "without a namespace this would be everything"
    topics = [name for name in admin.metadata().topics if name.startswith(f"{namespace}.")]
    for topic in topics:
        registry.forget(subject_of(topic))
    groups = [g.group_id for g in admin.answer(admin.client.list_consumer_groups()).valid]
    mine = [group for group in groups if group.startswith(f"{group_id(namespace)}.")]
    with suppress(LogError):  # a group without offsets may disappear by itself meanwhile
        if mine:
            admin.each(admin.client.delete_consumer_groups(mine))
    if topics:
        admin.each(admin.client.delete_topics(topics))
