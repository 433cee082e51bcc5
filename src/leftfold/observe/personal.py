"""Personal data: the rows that may hold it, and the time until compaction must remove deleted or replaced data."""

from __future__ import annotations

from leftfold.declare.catalog import DeclaredView
from leftfold.declare.event import Event, fields_of
from leftfold.declare.free import View
from leftfold.observe.observation import Observed

# A request for erasure must be answered within a month (GDPR, article 12). One week leaves three weeks for the work.
# By Kafka's default (segment.ms) a segment is also open for a week, so this limit makes no additional segments.
COMPACTED_WITHIN_MS = 7 * 86_400_000


def marked(event: type[Event]) -> tuple[str, ...]:
    """The fields of an event that are personal data, each with the event's name: Customer.email."""
    return tuple(f"{event.__name__}.{field.name}" for field in fields_of(event).values() if field.personal)


def shown_by(view: DeclaredView) -> tuple[str, ...]:
    """The personal fields that rows of a view may hold.

    It is not known what a function makes of its records, so its rows may hold any of them.
    """
    read, definition = view.reading, view.definition
    if isinstance(definition, View) or read.stream is not None:
        return tuple(dict.fromkeys((*marked(read.topics[0].event), *marked(read.event))))
    held = {key.name for key in definition.keys} | {column.field for column in definition.columns}
    return tuple(name for name in marked(read.event) if name.partition(".")[2] in held)


def compaction_lag_ms(name: str, observed: Observed) -> int:
    """The max.compaction.lag.ms that a managed topic must have. `name` is its name in the cluster.

    A lower value that is already set stays. The result is at least min.compaction.lag.ms, which a user may have set,
    because Kafka refuses less.
    """
    existing = observed.topics.get(name)
    config_sets = [broker.configs for broker in observed.cluster.brokers] if existing is None else [existing.configs]
    prefix = "log.cleaner." if existing is None else ""

    def values(setting: str) -> list[int]:
        return [int(configs[prefix + setting]) for configs in config_sets if prefix + setting in configs]

    most = min([*values("max.compaction.lag.ms"), COMPACTED_WITHIN_MS])
    return max([*values("min.compaction.lag.ms"), most])
