"""The rights of the project's user in Kafka, as ACLs of Strimzi: those that docs/reference/project.md lists by verb."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from leftfold.declare.catalog import Catalog
from leftfold.settings import Profile, group_id

_OF_TOPICS = ("Describe", "Create", "AlterConfigs", "Write", "Read")
_OF_EXTERNAL = ("DescribeConfigs", "Write", "Read")


def acls(catalog: Catalog, profile: Profile) -> Iterator[dict[str, Any]]:
    """Yield the ACLs of a user that deploys and runs the project.

    All topics of a namespace begin with its name, and so do groups and transactional ids. Without a namespace, topics
    may have any name. External topics keep their names, so each has rights of its own.
    """
    prefix = profile.topic_name("")
    topics = {"name": prefix, "patternType": "prefix"} if prefix else {"name": "*", "patternType": "literal"}
    ours = {"name": f"{group_id(profile.namespace)}.", "patternType": "prefix"}
    yield {"resource": {"type": "topic", **topics}, "operations": list(_OF_TOPICS)}
    yield {"resource": {"type": "group", **ours}, "operations": ["Read"]}
    yield {"resource": {"type": "transactionalId", **ours}, "operations": ["Write"]}
    yield {"resource": {"type": "cluster"}, "operations": ["DescribeConfigs"]}
    for topic in catalog.topics.values():
        if topic.external and prefix:
            external = {"type": "topic", "name": topic.name, "patternType": "literal"}
            yield {"resource": external, "operations": list(_OF_EXTERNAL)}
