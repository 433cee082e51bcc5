"""Hazards of a declared topic's key. The key decides a record's partition, and so which records have an order."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from typing import Any

from leftfold.declare.event import Event
from leftfold.declare.topic import Topic
from leftfold.hazards.hazard import Facts, Hazard, Rule
from leftfold.hazards.retention import managed

CODES = ("growing-moves-keys", "key-changed", "keys-not-as-declared")

_HASHES = 1 << 31  # Java's partitioner takes 31 bits of murmur2, modulo the number of partitions
_INT = re.compile(r"0|-?[1-9][0-9]*")


def moved_share(before: int, after: int) -> float:
    """The share of all keys that change partition if a partition is the key's hash modulo the number of partitions."""
    period, staying = math.lcm(before, after), min(before, after)  # h % a == h % b only if h % period < staying
    periods, rest = divmod(_HASHES, period)
    return 1 - (periods * staying + min(rest, staying)) / _HASHES


def _growing(facts: Facts) -> Iterator[Hazard]:
    for topic, observed in managed(facts):
        held = any(part.end for part in observed.spread)
        if not held or topic.partitions <= observed.partitions:
            continue
        share = moved_share(observed.partitions, topic.partitions)
        new = f"{topic.name}_v2"
        keep = (
            f"declare {new} with partitions={topic.partitions} and log_time='header'; copy {topic.name} there: "
            f"leftfold replay {topic.name} --into {new} --follow; let the views read {new}; stop the producers, let "
            f"the copy reach the end, start them on {new}"
        )
        yield Hazard(
            "growing-moves-keys",
            "danger",
            f"topic {facts.name(topic)}",
            f"from {observed.partitions} to {topic.partitions} partitions {100 * share:.4g}% of all keys would change "
            "their partition",
            "A key's partition is its hash modulo the number of partitions, and records that are there stay where they "
            + (
                "are. Compaction then keeps an old record of a key beside the newest, and a deletion does not reach it."
                if topic.compacted
                else "are. Old and new records of a moved key would have no order between them."
            ),
            keep,
            topic.source,
        )


def _key_changed(facts: Facts) -> Iterator[Hazard]:
    """Judge the topics of tables. A table's build stores the key that was declared when the build was made."""
    for build in facts.observed.builds:
        read = [origin[0] for origin in build.definition.get("origins", ())]
        topic = facts.catalog.topics.get(read[0]) if read else None
        if not build.followed or build.kind != "latest" or build.definition.get("code") or topic is None:
            continue
        before = [key[0] for key in build.definition.get("keys", ())]
        now = [key.name for key in topic.key]
        if before == now or not topic.compacted:
            continue
        yield Hazard(
            "key-changed",
            "danger",
            f"topic {facts.name(topic)}",
            f"is keyed by {', '.join(now)}, and by {', '.join(before)} when {build.view} {build.id} was built",
            "Kafka keeps the newest record of each key it was given: records under the old key are never replaced, nor "
            "deleted, by records under the new one.",
            f"declare {topic.name}_v2 with the new key and copy the newest record of each thing into it, or keep "
            f"key={_fields_text(topic.event, before)}",
            topic.source,
        )


def _keys_differ(facts: Facts) -> Iterator[Hazard]:
    """Find sampled keys whose text the declared key can never have."""
    for topic in facts.catalog.topics.values():
        sample = facts.observed.samples.get(facts.name(topic))
        wrong = [] if sample is None else [top for top in sample.top_keys if not _may_be_key(topic, top[0])]
        if sample is None or not wrong:
            continue
        some = ", ".join(repr(key) for key, _ in wrong[:3])
        yield Hazard(
            "keys-not-as-declared",
            "danger",
            f"topic {facts.name(topic)}",
            f"{sum(number for _, number in wrong):,} of {sample.records:,} sampled records have keys such as {some}, "
            f"which are no ({', '.join(f'{key.name}: {key.kind}' for key in topic.key)})",
            "Records that do not carry the declared key are spread over the partitions by something else, so those of "
            "one entity have no order between them. `leftfold why` looks for them only where their key belongs.",
            "let every producer key its records by the text of the declared fields, or declare the key that they use",
            topic.source,
        )


def _may_be_key(topic: Topic[Any], text: str) -> bool:
    if len(topic.key) == 1:
        return topic.key[0].kind == "string" or _INT.fullmatch(text) is not None
    rest = text.encode()
    for key in topic.key:  # each part is LENGTH:TEXT
        length, colon, after = rest.partition(b":")
        if not colon or not length.isdigit() or len(after) < int(length):
            return False
        part, rest = after[: int(length)], after[int(length) :]
        if key.kind == "int" and not _INT.fullmatch(part.decode(errors="replace")):
            return False
    return not rest


def _fields_text(event: type[Event], names: Iterable[str]) -> str:
    known = [f"{event.__name__}.{name}" for name in names]
    return known[0] if len(known) == 1 else f"({', '.join(known)})"


RULES: tuple[Rule, ...] = (_growing, _key_changed, _keys_differ)
