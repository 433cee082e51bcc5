"""What a person says to a plan beside the declarations: of the load, of outages, of the machines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from leftfold.plan.hazards.facts import DOWNTIME
from leftfold.plan.observe import Observed
from leftfold.plan.sizing.constants import Constants
from leftfold.plan.sizing.load import Given
from leftfold.plan.sizing.sizing import Known, Sizing, size_catalog
from leftfold.settings import Profile
from leftfold.spec.catalog import Catalog
from leftfold.spec.topic_options import RECORDS_PER_PARTITION


@dataclass(frozen=True)
class Asked:
    """`rates` and `sizes` (bytes of a record) are by topic, `keys` (active entities) by topic or view."""

    downtime: int = DOWNTIME  # µs: the longest outage of a reader that is to be survived
    rates: Mapping[str, float] = field(default_factory=dict)
    sizes: Mapping[str, float] = field(default_factory=dict)
    keys: Mapping[str, int] = field(default_factory=dict)
    consumer_rate: float = RECORDS_PER_PARTITION
    catch_up_s: float = 3_600
    constants: Constants = field(default_factory=Constants)

    def sizing(self, catalog: Catalog, profile: Profile, observed: Observed) -> Sizing:
        known = {}
        for declared, topic in catalog.topics.items():
            name = profile.topic_name(declared, external=topic.external)
            given = Given(
                rate=self.rates.get(declared),
                record_bytes=self.sizes.get(declared),
                keys=self.keys.get(declared),
                catch_up_s=self.catch_up_s,
                consumer_rate=self.consumer_rate,
                brokers=len(observed.cluster.brokers),
            )
            known[declared] = Known(observed.samples.get(name), observed.topics.get(name), given)
        return size_catalog(catalog, known, self.constants, keys=self.keys, namespace=profile.namespace)
