"""The client that asks brokers about topics, on real brokers."""

from __future__ import annotations

import time
import uuid

from leftfold.kafka.admin import Admin
from leftfold.settings import Kafka
from tests.engine.conftest import Cluster

# Without the leaders' names, a fifth of new clients wait for one or three seconds.
STALLED_S = 0.9


def test_the_first_question_of_a_new_client_does_not_stall(cluster: Cluster) -> None:
    kafka = Kafka(bootstrap=cluster.endpoints.bootstrap)
    topic = f"admin.{uuid.uuid4().hex[:8]}"
    Admin(kafka).create(topic, partitions=6, replication=3, configs={})
    took = []
    for number in range(40):
        Admin(kafka).metadata()  # other clients come and go, as in a verb
        began, admin = time.monotonic(), Admin(kafka)
        assert (admin.end_offsets if number % 2 else admin.start_offsets)(topic, 6) == dict.fromkeys(range(6), 0)
        took.append(time.monotonic() - began)
    stalled = [f"{seconds:.1f} s" for seconds in took if seconds > STALLED_S]
    assert len(stalled) <= 1, stalled
