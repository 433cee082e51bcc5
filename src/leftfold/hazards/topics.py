"""Hazards of a declared topic: its replicas, clock, largest record and readers.

CODES and RULES also include the hazards of its key, its retention and its personal data.
"""

from __future__ import annotations

from collections.abc import Iterator

from leftfold.declare.event import Event, fields_of
from leftfold.errors import SourceLine
from leftfold.fold.expressions import Length
from leftfold.hazards import topic_keys, topic_personal, topic_retention
from leftfold.hazards.hazard import Facts, Hazard, Rule
from leftfold.hazards.retention import foreign, managed
from leftfold.observe import settings as in_force

CODES = (
    *topic_keys.CODES,
    *topic_personal.CODES,
    *topic_retention.CODES,
    "copies-below-declared",
    "few-copies-declared",
    "producers-clock",
    "record-beyond-limit",
    "topic-without-reader",
)

_MOST_BYTES_PER_CHARACTER = 4  # of UTF-8


def _few_copies(facts: Facts) -> Iterator[Hazard]:
    """Judge only topics that do not exist yet. Other rules judge existing topics by the replicas that they have."""
    profile, capped = facts.profile, []
    for topic in facts.catalog.topics.values():
        if foreign(facts, topic) or facts.found(topic) is not None:
            continue
        if profile.replication is not None and profile.replication < min(3, topic.replication):
            capped.append(topic)
        elif topic.replication < 3:
            yield _declared(
                f"topic {facts.name(topic)}",
                f"is to have {_copies(topic.replication)} (replication={topic.replication})",
                topic.replication,
                "leave replication= out: three copies, two of which have every acknowledged record",
                topic.source,
            )
    if capped and profile.replication is not None:
        names = ", ".join(facts.name(topic) for topic in capped)
        yield _declared(
            f"profile {profile.name}",
            f"topics are to have {_copies(profile.replication)} (replication = {profile.replication}): {names}",
            profile.replication,
            f"take replication out of [profile.{profile.name}], unless its records may be lost",
        )


def _declared(subject: str, what: str, copies: int, fix: str, source: SourceLine | None = None) -> Hazard:
    why = (
        "The records are lost with the disk that holds them, and cannot be read or written while its broker is down."
        if copies == 1
        else "With two copies min.insync.replicas is 1: while one broker is down, an acknowledged record is on one "
        "disk only, and lost with it."
    )
    return Hazard("few-copies-declared", "danger", subject, what, why, fix, source)


def _copies_below(facts: Facts) -> Iterator[Hazard]:
    """Find topics with fewer replicas than declared.

    A plan moves no replica. It sets min.insync.replicas no higher than the existing replicas allow.
    """
    for topic, existing in managed(facts):
        wanted = min(topic.replication, facts.profile.replication or topic.replication)
        if existing.replication >= wanted:
            continue
        meant = in_force.in_sync_for(wanted)
        possible = in_force.reachable(meant, existing)
        then = f", then leftfold apply sets min.insync.replicas={meant}" if possible < meant else ""
        yield Hazard(
            "copies-below-declared",
            "danger",
            f"topic {facts.name(topic)}",
            f"has {_copies(existing.replication)}, the declaration says {wanted}; a record counts as written when "
            f"{possible} of them {'has' if possible == 1 else 'have'} it (min.insync.replicas)",
            f"apply moves no replica. {_at_risk(existing.replication, possible)}",
            f"name {wanted} brokers for each partition in a file and give it to kafka-reassign-partitions.sh "
            f"--reassignment-json-file FILE --execute{then}; or declare replication={existing.replication}",
            topic.source,
        )


def _at_risk(copies: int, needed: int) -> str:
    if copies == 1:
        return "The records are lost with the disk that holds them, and its broker stops writers while it is down."
    if needed == copies:
        return "One broker that is down stops writers."
    disks = "one disk only, and lost with it" if needed == 1 else f"{needed} disks only, and lost with them"
    return f"While a broker is down, an acknowledged record may be on {disks}."


def _clock(facts: Facts) -> Iterator[Hazard]:
    for topic in facts.catalog.topics.values():
        if topic.log_time != "producer" or topic.compacted:  # in a table no record is late
            continue
        yield Hazard(
            "producers-clock",
            "danger",
            f"topic {facts.name(topic)}",
            "its log time is the producers' (log_time='producer')",
            "The clocks of producers decide what is late and what retention deletes, and move the watermark: clocks "
            "an hour apart can stop a view (accepted-records-swept). A store that lost its data is computed anew only "
            "while the log still has all of its records.",
            "let the brokers stamp records (message.timestamp.type=LogAppendTime, log_time='broker'), or keep the "
            "producers' clocks together and never send old records with new ones",
            topic.source,
        )


def _limit(facts: Facts) -> Iterator[Hazard]:
    for topic in facts.catalog.topics.values():
        existing = facts.found(topic)
        limits = (
            [broker.configs.get("message.max.bytes") for broker in facts.observed.cluster.brokers]
            if existing is None
            else [existing.configs.get("max.message.bytes")]
        )
        known = [int(limit) for limit in limits if limit is not None]
        largest = _largest(topic.event)
        if topic.format != "avro" or not known or largest <= min(known):
            continue
        yield Hazard(
            "record-beyond-limit",
            "warning",
            f"topic {facts.name(topic)}",
            f"the max_length rules of {topic.event.__name__} allow {largest:,} bytes, the topic takes {min(known):,}",
            "A record that obeys its event's rules can be too large, unless it compresses well: the broker refuses it, "
            "and the producer gives it back to its caller as not delivered.",
            "lower max_length to what is really sent",
            topic.source,
        )


def _largest(event: type[Event]) -> int:
    """The most bytes that the texts with a max_length can take in one record."""
    rules = [rule for field in fields_of(event).values() for rule in field.rules]
    return sum(r.bound * _MOST_BYTES_PER_CHARACTER for r in rules if isinstance(r, Length) and r.op == "<=")


def _unread(facts: Facts) -> Iterator[Hazard]:
    read = {topic.name for view in facts.catalog.views.values() for topic in view.reading.topics}
    read |= {topic.name for consumer in facts.catalog.consumers.values() for topic in consumer.topics}
    # Predictions of a scorer, and the events of an outcome, are for jobs that read them when somebody asks.
    read |= {scorer.to.name for scorer in facts.catalog.scorers.values()}
    read |= {outcome.topic.name for outcome in facts.catalog.outcomes.values()}
    for topic in facts.catalog.topics.values():
        name = facts.name(topic)
        groups = facts.observed.cluster.groups.values()
        if topic.name in read or any(name in group.positions or name in group.owners for group in groups):
            continue
        yield Hazard(
            "topic-without-reader",
            "warning",
            f"topic {name}",
            "no view or consumer reads it, and no other consumer group does",
            "It costs disk and network, and what is wrong with its records is noticed by nobody. A reader that commits "
            "no offsets is not seen here.",
            "declare a view or a consumer of it, or take the declaration out",
            topic.source,
        )


def _copies(number: int) -> str:
    return "1 copy" if number == 1 else f"{number} copies"


RULES: tuple[Rule, ...] = (
    *topic_keys.RULES,
    *topic_retention.RULES,
    *topic_personal.RULES,
    _few_copies,
    _copies_below,
    _clock,
    _limit,
    _unread,
)
