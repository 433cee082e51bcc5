"""All rules, in the order in which a user should read their hazards."""

from __future__ import annotations

from leftfold.hazards import cluster, consumers, online_store, sampled, schemas, sizes, topics, views
from leftfold.hazards.hazard import Facts, Hazard, Rule

_ROOMS = (topics, views, consumers, schemas, cluster, online_store, sampled, sizes)
CODES: tuple[str, ...] = tuple(sorted(code for room in _ROOMS for code in room.CODES))
RULES: tuple[Rule, ...] = tuple(rule for room in _ROOMS for rule in room.RULES)


def hazards(facts: Facts) -> tuple[Hazard, ...]:
    """Find all hazards: dangers first, then warnings, then notes."""
    findings = [hazard for rule in RULES for hazard in rule(facts)]
    return tuple(sorted(findings, key=lambda hazard: hazard.rank))
