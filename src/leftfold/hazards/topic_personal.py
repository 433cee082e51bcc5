"""Hazards of personal data: deleted or replaced data that stays on disk, and data that no deletion reaches.

The rules also check archives and Leftfold's own topics, which hold whole records or rows. They do not see what else
stores and lakes keep.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from leftfold.declare.companions import changelog_topic, has_changelog, of_topic, redrive_topic
from leftfold.declare.topic import Topic
from leftfold.errors import SourceLine
from leftfold.hazards.hazard import Facts, Hazard, Rule
from leftfold.hazards.retention import FOR_EVER, foreign
from leftfold.kafka.observed import ObservedTopic
from leftfold.observe.personal import COMPACTED_WITHIN_MS, compaction_lag_ms, marked, shown_by
from leftfold.observe.settings import number
from leftfold.units import counted, listed, spoken

CODES = ("personal-data-for-ever", "personal-data-lingers")

_MONTH_MS = 30 * 86_400_000  # a request for erasure must be answered within a month (GDPR, article 12)

Fields = tuple[str, ...]


# Data that compaction has not removed yet ----------------------------------------------------------------------------


def _lingers(facts: Facts) -> Iterator[Hazard]:
    """Find compacted topics whose deleted or replaced records may stay for more than a month.

    For topics that Leftfold manages, a plan limits that time, unless min.compaction.lag.ms forbids it.
    """
    for topic in facts.catalog.topics.values():
        fields, observed = marked(topic.event), facts.found(topic)
        if not topic.compacted or not fields or observed is None:
            continue
        if foreign(facts, topic):
            yield from _left_by_others(observed, fields, topic.source)
        else:
            yield from _left_by_us(observed, fields, topic.source, compaction_lag_ms(observed.name, facts.observed))
    if facts.profile.topics != "checked":
        return
    for view in facts.catalog.views.values():
        observed = facts.observed.topics.get(facts.profile.topic_name(changelog_topic(view.name)))
        if has_changelog(view) and observed is not None and (fields := shown_by(view)):
            yield from _left_by_others(observed, fields, view.source)


def _left_by_others(topic: ObservedTopic, fields: Fields, source: SourceLine) -> Iterator[Hazard]:
    lag_ms = number(topic.configs, "max.compaction.lag.ms")
    if lag_ms is None:
        return
    fix = f"ask the owner of {topic.name} for max.compaction.lag.ms={_spoken_ms(COMPACTED_WITHIN_MS)}"
    keeps_ms = number(topic.configs, "retention.ms")
    deletes = "delete" in topic.configs.get("cleanup.policy", "delete").split(",")
    if deletes and keeps_ms is not None and 0 <= keeps_ms < lag_ms:
        yield from _lingering(topic, fields, "retention.ms", keeps_ms, fix, source)
    else:
        yield from _lingering(topic, fields, "max.compaction.lag.ms", lag_ms, fix, source)


def _left_by_us(topic: ObservedTopic, fields: Fields, source: SourceLine, lag_ms: int) -> Iterator[Hazard]:
    fix = f"kafka-configs.sh --topic {topic.name} --alter --add-config min.compaction.lag.ms=0, then leftfold apply"
    yield from _lingering(topic, fields, "min.compaction.lag.ms", lag_ms, fix, source)


def _lingering(
    topic: ObservedTopic, fields: Fields, setting: str, ms: int, fix: str, source: SourceLine
) -> Iterator[Hazard]:
    if ms <= _MONTH_MS:
        return
    span = "for ever" if _endless(ms) else f"for {spoken(ms * 1_000)}"
    yield Hazard(
        "personal-data-lingers",
        "danger",
        f"topic {topic.name}",
        f"holds {listed(fields)}, and what is deleted or replaced may stay on disk {span} ({setting}={ms})",
        "Kafka compacts a partition once enough of it is out of date, and never the segment that is written to. Until "
        "then whoever may read the topic can read what was deleted.",
        fix,
        source,
    )


# Data that no deletion reaches ---------------------------------------------------------------------------------------


def _for_ever(facts: Facts) -> Iterator[Hazard]:
    for topic in facts.catalog.topics.values():
        if fields := marked(topic.event):
            yield from _declared(facts, topic, fields)
            yield from _archived(facts, topic, fields)
            yield from _beside(facts, topic, fields)


def _declared(facts: Facts, topic: Topic[Any], fields: Fields) -> Iterator[Hazard]:
    keeps_ms = _keeps_ms(facts, topic)
    if topic.compacted or not _endless(keeps_ms):
        return
    name = facts.name(topic)
    fix = (
        f"ask the owner of {name} for retention.ms={_spoken_ms(_MONTH_MS)}"
        if foreign(facts, topic)
        else f'declare retention="{spoken(_MONTH_MS * 1_000)}" for {topic.name}, or as long as its windows need'
    )
    yield Hazard(
        "personal-data-for-ever",
        "danger",
        f"topic {name}",
        f"holds {listed(fields)}, and keeps every record for ever (retention.ms={keeps_ms})",
        "No deletion reaches a record of a topic that is not compacted: only retention removes it. What a person asks "
        "to have erased stays in every copy.",
        f"{fix}; what is needed for longer belongs in a compacted topic, where producer.delete reaches it",
        topic.source,
    )


def _archived(facts: Facts, topic: Topic[Any], fields: Fields) -> Iterator[Hazard]:
    if topic.archive:
        yield Hazard(
            "personal-data-for-ever",
            "danger",
            f"topic {facts.name(topic)}",
            f"holds {listed(fields)}, and its archive keeps every record for ever (archive=True)",
            "Retention does not reach the archive. What a person asks to have erased has to be deleted from its table, "
            "in every version of it (DELETE, then VACUUM).",
            f"declare {topic.name} without archive=True, or erase there what is asked for",
            topic.source,
        )


def _beside(facts: Facts, topic: Topic[Any], fields: Fields) -> Iterator[Hazard]:
    """Check Leftfold's own topics of a declared topic.

    A plan keeps late and rejected records about as long as the topic keeps its own, and re-driven records for ever.
    """
    checked = facts.profile.topics == "checked"
    for name in of_topic(topic):
        observed = facts.observed.topics.get(facts.profile.topic_name(name))
        if observed is None or (checked and not _endless(number(observed.configs, "retention.ms"))):
            continue
        if name == redrive_topic(topic.name):
            yield from _redriven(facts, topic, observed, fields)
        elif checked:
            yield Hazard(
                "personal-data-for-ever",
                "danger",
                f"topic {observed.name}",
                f"holds whole records of {facts.name(topic)}, with {listed(fields)}, and keeps them for ever "
                f"(retention.ms={observed.configs['retention.ms']})",
                "Every record there has a key of its own, so only retention removes it. What is deleted from "
                f"{facts.name(topic)} stays here.",
                f"ask the owner of {observed.name} for retention.ms={_spoken_ms(_MONTH_MS)}",
                topic.source,
            )


def _redriven(facts: Facts, topic: Topic[Any], seen: ObservedTopic, fields: Fields) -> Iterator[Hazard]:
    """Report re-driven records that are kept after the log has lost the rest of their tiles: nothing needs them."""
    held = [
        {"topic": seen.name, "partition": place, "offset": partition.end}
        for place, partition in enumerate(seen.spread)
        if partition.end > partition.start
    ]
    if not held:
        return
    name, keeps_ms = facts.name(topic), _keeps_ms(facts, topic)
    note = "" if keeps_ms is None or _endless(keeps_ms) else f" (it keeps {spoken(keeps_ms * 1_000)})"
    yield Hazard(
        "personal-data-for-ever",
        "danger",
        f"topic {seen.name}",
        f"holds {counted(seen.records, 're-driven record')} of {name}, with {listed(fields)}, and keeps them for ever "
        "(retention.ms=-1)",
        "A build that computes a tile anew needs them for as long as the log has all of that tile. After that nothing "
        "does, and nothing deletes them.",
        f"once {name} has deleted the records that they stand for{note}, kafka-delete-records.sh --offset-json-file "
        f"FILE, with {json.dumps({'partitions': held, 'version': 1})} in it",
        topic.source,
    )


def _keeps_ms(facts: Facts, topic: Topic[Any]) -> int | None:
    """The topic's retention in ms; None if the topic is compacted, or if its retention is not known."""
    if not foreign(facts, topic):
        return None if topic.retention is None else topic.retention // 1_000
    observed = facts.found(topic)
    return None if observed is None else number(observed.configs, "retention.ms")


def _endless(ms: int | None) -> bool:
    return ms is not None and (ms < 0 or ms * 1_000 >= FOR_EVER)


def _spoken_ms(ms: int) -> str:
    return f"{ms} ({spoken(ms * 1_000)})"


RULES: tuple[Rule, ...] = (_lingers, _for_ever)
