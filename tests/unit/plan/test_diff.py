from __future__ import annotations

from dataclasses import replace

import pytest

import leftfold as lf
from leftfold.declare.catalog import Catalog
from leftfold.observe.observation import Observed
from leftfold.plan.diff import abandoned
from leftfold.plan.steps import Plan, RemoveBuild
from leftfold.settings import Profile
from leftfold.store.builds import StoredBuild
from tests import clusters
from tests.unit.rebuild.declared import Activity, clicks

ROLES = ("followed", "staged", "kept", "running", "left", "other")
LOCAL = Profile(name="local")


@lf.view(clicks, by="user_id", latest="at")
def newest(clicks):  # type: ignore[no-untyped-def] # a DataFrame, which nobody makes here
    return clicks


CATALOG, _ = Catalog.of([Activity, newest])
MINE = CATALOG.views["activity"].fingerprint


def seen(view: str = "activity", fingerprint: str = "000000000000") -> Observed:
    """A build in each role."""
    builds = [StoredBuild(view, f"{fingerprint}-{role}", role) for role in ROLES]
    return replace(clusters.seen(3, {}, {}), stored=tuple(builds))


def removed(observed: Observed, profile: Profile = LOCAL) -> list[str]:
    return [step.build.partition("-")[2] for step in abandoned(CATALOG, profile, observed)]


def test_what_nobody_needs() -> None:
    assert removed(seen()) == ["left", "other"]
    assert removed(seen(fingerprint=MINE)) == ["left"], "the next run goes on with the other"
    assert removed(seen("newest")) == ["left"], "of a function only Spark knows which build is the declared one"
    assert removed(seen("somebody_elses")) == []


def test_a_checkpoint_elsewhere_stays() -> None:
    (one, *_) = abandoned(CATALOG, Profile(name="p", checkpoints="s3a://lake/checkpoints"), seen())
    assert "its checkpoint stays in s3a://lake/checkpoints" in str(one)
    (one, *_) = abandoned(CATALOG, Profile(name="p", checkpoints="/checkpoints"), seen())
    assert str(one).endswith("rows, receipts and checkpoint")


@pytest.mark.parametrize("role", ["left", "staged"])
def test_a_saved_step_rests_on_the_role(role: str) -> None:
    step, observed = RemoveBuild("activity", f"000000000000-{role}", None), seen()
    assert step.basis(observed) == {"role": role}
    assert not step.done(observed)
    assert step.done(replace(observed, stored=()))


def test_apply_hands_it_to_who_can() -> None:
    done: list[tuple[str, str]] = []
    step = RemoveBuild("activity", "b-1", None)
    made = Plan((step,), ()).apply(None, None, remove=lambda *build: done.append(build))  # type: ignore[arg-type] # not used
    assert list(made) == [step]
    assert done == [("activity", "b-1")]
