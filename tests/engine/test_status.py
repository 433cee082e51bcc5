"""`leftfold status` of a profile: it sees what other machines run, without their directories."""

from __future__ import annotations

import json
import subprocess
import uuid
from pathlib import Path
from typing import Any

from leftfold.settings import group_id
from tests.engine import consumers, projects
from tests.engine.conftest import Cluster
from tests.engine.test_view import payment, send

CONSUMER = """

@lf.consumer(payments, start="beginning")
def notify(payment: Payment) -> None: ...
"""


def seen(root: Path) -> dict[str, Any]:
    shown = subprocess.run(
        [projects.LEFTFOLD, "status", "--profile", "prod", "--json"],
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    document: dict[str, Any] = json.loads(shown.stdout)
    return document


def test_a_run_and_a_consumer_of_another_directory_are_seen(cluster: Cluster, tmp_path: Path) -> None:
    """The run and the consumer have a directory of their own; `status` is asked in another one, as on a laptop."""
    namespace, streams = f"s{uuid.uuid4().hex[:8]}", projects.PAYMENTS + CONSUMER
    there = projects.make(tmp_path / "there", cluster.endpoints, namespace, streams)
    here = projects.make(tmp_path / "here", cluster.endpoints, namespace, streams, profile="prod")
    projects.apply(there)
    send(there, [payment(i, f"a{i % 7}") for i in range(300)])
    before = seen(here.root)
    assert {each["verdict"] for each in before["connections"]} == {"reachable"}
    assert [(view["build"], view["lag"]) for view in before["views"]] == [(None, 300)]
    assert [(one["state"], one["members"]) for one in before["consumers"]] == [(None, 0)]

    def is_seen() -> bool:
        (view,), (consumer,) = (after := seen(here.root))["views"], after["consumers"]
        applied = view["records"]["accepted"] == 300 and view["lag"] == 0
        return applied and (consumer["members"], consumer["lag"]) == (1, 0)

    with projects.running(there.root), consumers.consuming(there.root):
        projects.await_true(is_seen, timeout=240, what="the run and the consumer to be seen")
    assert seen(here.root)["consumers"][0]["group"] == group_id(namespace, "notify")
    assert not (here.root / ".leftfold" / "local").exists(), "nothing of the cluster is on this machine"
