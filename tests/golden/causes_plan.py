"""How to provoke errors of plans: saved ones, two at once, topics that are to go."""

from __future__ import annotations

import json
from pathlib import Path
from unittest import mock

from leftfold.kafka.admin import Admin
from leftfold.plan import saved
from leftfold.plan.diff import plan
from leftfold.settings import Kafka, Profile
from leftfold.store import lease
from tests import clusters
from tests.golden.causes import DEAD, EVENT, HEAD, REGISTERED, TOPIC, Cause, project, stand_in

LOCAL = Profile(name="local")
SUBJECTS = {"clicks-value": REGISTERED}


def saved_plan(tmp: Path) -> Path:
    """To create clicks and what goes with it."""
    file = tmp / "monday.json"
    nothing = clusters.seen(3, {}, SUBJECTS)
    made = plan(project(tmp, HEAD + EVENT + TOPIC).catalog, LOCAL, nothing)
    saved.save(file, made, nothing, project="shop", profile="local")
    return file


def file_exists(tmp: Path) -> None:
    saved_plan(tmp)
    saved_plan(tmp)


def unreadable(tmp: Path) -> None:
    file = tmp / "monday.json"
    file.write_text(json.dumps({"version": 9}))
    saved.load(file, clusters.seen(3, {}, {}), project="shop", profile="local")


def drifted(tmp: Path) -> None:
    there = clusters.seen(3, {"clicks": clusters.seen_topic("clicks", 12)}, SUBJECTS)
    saved.load(saved_plan(tmp), there, project="shop", profile="local")


def cannot_delete(tmp: Path) -> None:
    there = clusters.seen(3, {"clicks": clusters.seen_topic("clicks")}, SUBJECTS)
    made = plan(project(tmp, HEAD + EVENT + TOPIC).catalog, LOCAL, there, delete=["clicks"])
    raise next(problem for problem in made.problems if problem.code == "cannot-delete")


def another_topic(_: Path) -> None:
    admin = Admin(Kafka(bootstrap=DEAD))
    with mock.patch.object(admin, "topic_ids", return_value={"clicks": "xkqfXSjWvAyXo1pGmJQyK3"}):
        admin.delete("clicks", "yXo1pGmJQyK3xkqfXSjWvA")


def apply_running(_: Path) -> None:
    raise lease._held("apply", "build-7/4711/12345", 42)


def lease_lost(_: Path) -> None:
    lease.Lease(stand_in(renew=lambda *_: False), "", "apply", "build-7/4711/12345").check()


CAUSES: dict[str, Cause] = {
    "plan-file-exists": file_exists,
    "plan-unreadable": unreadable,
    "plan-drifted": drifted,
    "cannot-delete": cannot_delete,
    "another-topic": another_topic,
    "apply-running": apply_running,
    "lease-lost": lease_lost,
}
