"""A review of any Kafka cluster, also one of which nothing is declared. Read-only; it takes seconds."""

from __future__ import annotations

from dataclasses import dataclass

from leftfold.declare.catalog import Catalog
from leftfold.hazards.hazard import DOWNTIME, Facts, Hazard
from leftfold.hazards.rules import hazards
from leftfold.kafka.admin import Admin
from leftfold.kafka.observe import observe_cluster, watch_groups
from leftfold.kafka.observed import ObservedCluster
from leftfold.observe.observation import Observed
from leftfold.observe.sampling import take_samples, worth_a_sample
from leftfold.settings import Kafka, Profile


@dataclass(frozen=True)
class ClusterReview:
    """A cluster, the topics whose newest records were sampled, and the hazards that were found."""

    cluster: ObservedCluster
    sampled: tuple[str, ...]
    hazards: tuple[Hazard, ...]


def review_cluster(kafka: Kafka, *, downtime: int = DOWNTIME) -> ClusterReview:
    """Review a cluster. `downtime` is the longest outage of a consumer that is to be survived, µs."""
    admin = Admin(kafka)
    seen = observe_cluster(admin, kafka)
    samples = take_samples(admin, kafka, worth_a_sample(seen))
    seen = watch_groups(admin, kafka, seen)  # last: the time that the samples took counts toward its waiting
    observed = Observed(seen, {}, samples=samples)
    findings = hazards(Facts(observed, Catalog({}, {}, {}), Profile(name="cluster"), downtime))
    return ClusterReview(seen, tuple(samples), findings)
