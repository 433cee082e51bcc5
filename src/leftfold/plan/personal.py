"""Personal data: which rows may hold it, and how soon compaction is to remove what was deleted or replaced."""

from __future__ import annotations

from leftfold.plan.observe import Observed
from leftfold.spec.catalog import DeclaredView
from leftfold.spec.event import Event, fields_of
from leftfold.spec.free import View

# A person can ask for erasure, and has a month for an answer (GDPR, article 12). A week leaves three for the work, and
# is how long a segment is open by Kafka's own default (segment.ms): no more segments than without it.
COMPACTED_WITHIN_MS = 7 * 86_400_000


def marked(event: type[Event]) -> tuple[str, ...]:
    """Its fields that are personal data, as people write them: Customer.email."""
    return tuple(f"{event.__name__}.{field.name}" for field in fields_of(event).values() if field.personal)


def shown_by(view: DeclaredView) -> tuple[str, ...]:
    """Marked fields that rows of a view may hold. What a function makes of its records is not known: any of them."""
    read, definition = view.reading, view.definition
    if isinstance(definition, View) or read.stream is not None:
        return tuple(dict.fromkeys((*marked(read.topics[0].event), *marked(read.event))))
    held = {key.name for key in definition.keys} | {column.field for column in definition.columns}
    return tuple(name for name in marked(read.event) if name.partition(".")[2] in held)


def compaction_lag_ms(name: str, observed: Observed) -> int:
    """What max.compaction.lag.ms a topic of ours is to have, by its name in the cluster.

    Less is left as it is. Kafka refuses less than min.compaction.lag.ms, which a person may have set.
    """
    found = observed.topics.get(name)
    told = [broker.configs for broker in observed.cluster.brokers] if found is None else [found.configs]
    prefix = "log.cleaner." if found is None else ""

    def values(setting: str) -> list[int]:
        return [int(configs[prefix + setting]) for configs in told if prefix + setting in configs]

    most = min([*values("max.compaction.lag.ms"), COMPACTED_WITHIN_MS])
    return max([*values("min.compaction.lag.ms"), most])
