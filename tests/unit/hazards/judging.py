"""Facts written down by hand, and what rules make of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from leftfold.declare.catalog import Catalog, DeclaredView
from leftfold.fold.definition import Definition
from leftfold.hazards.hazard import DOWNTIME, Facts, Rule
from leftfold.kafka.observed import ObservedGroup, ObservedTopic
from leftfold.observe.observation import Observed, ObservedBuild, ObservedStore, ObservedSubject
from leftfold.settings import Profile
from leftfold.sizing.catalog_size import Sizing
from tests import clusters

LOCAL = Profile(name="local")
CHECKED = Profile(name="prod", topics="checked")


def facts(
    *declared: Any,
    topics: Sequence[ObservedTopic] = (),
    subjects: Mapping[str, ObservedSubject] | None = None,
    builds: Sequence[ObservedBuild] = (),
    samples: Sequence[Any] = (),
    groups: Sequence[ObservedGroup] = (),
    profile: Profile = LOCAL,
    downtime: int = DOWNTIME,
    store: ObservedStore | None = None,
    sizing: Sizing | None = None,
    **brokers: Any,
) -> Facts:
    catalog, problems = Catalog.of(declared)
    assert problems == []
    cluster = clusters.seen_cluster(*topics, groups=tuple(groups), **brokers)
    observed = Observed(cluster, dict(subjects or {}), tuple(builds), {s.topic: s for s in samples}, store)
    return Facts(observed, catalog, profile, downtime, sizing)


def judged(rules: Sequence[Rule], known: Facts) -> list[str]:
    """Every hazard as a person reads it, but for the line of the declaration, which it must have."""
    found = [hazard for rule in rules for hazard in rule(known)]
    assert all(h.source is not None or h.subject.startswith("profile ") for h in found)
    return [str(replace(hazard, source=None)) for hazard in found]


def codes(rules: Sequence[Rule], known: Facts) -> list[str]:
    return [hazard.code for rule in rules for hazard in rule(known)]


def built(declared: Any, *, followed: bool = True, generation: str = "0d1f6c2e", **changed: Any) -> ObservedBuild:
    """As the store would tell of a build of this view; `changed` parts of its definition change no id."""
    definition = DeclaredView.of(declared).definition
    kind = "features" if isinstance(definition, Definition) else "latest"
    document = json.loads(json.dumps({**definition.as_json(), **changed}))  # type: ignore[union-attr] # no free view
    return ObservedBuild(
        definition.view,  # type: ignore[union-attr] # as above
        f"{definition.fingerprint}-{generation}",  # type: ignore[union-attr] # as above
        followed,
        batch=7,
        kind=kind,
        definition=document,
    )
