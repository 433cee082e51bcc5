"""All rules there are, in the order in which a person should read what they say."""

from __future__ import annotations

from leftfold.plan.hazards import cluster, online_store, sampled, schemas, sizes, topics, views
from leftfold.plan.hazards.facts import Facts, Rule
from leftfold.plan.hazards.hazard import Hazard

_ROOMS = (topics, views, schemas, cluster, online_store, sampled, sizes)
CODES: tuple[str, ...] = tuple(sorted(code for room in _ROOMS for code in room.CODES))
RULES: tuple[Rule, ...] = tuple(rule for room in _ROOMS for rule in room.RULES)


def hazards(facts: Facts) -> tuple[Hazard, ...]:
    """Dangers first."""
    found = [hazard for rule in RULES for hazard in rule(facts)]
    return tuple(sorted(found, key=lambda hazard: hazard.level))
