"""Builds that nobody can come to need: as steps that remove them. Pure.

A build that readers follow, that waits for `promote`, that is kept for a rollback or that a process runs is needed. So
is one of the definition that is declared and that was never staged or left: the next run goes on with it.
"""

from __future__ import annotations

from collections.abc import Iterator

from leftfold.plan.observe import Observed, StoredBuild
from leftfold.plan.steps import RemoveBuild
from leftfold.settings import Profile
from leftfold.spec.catalog import Catalog
from leftfold.spec.free import View


def abandoned(catalog: Catalog, profile: Profile, observed: Observed) -> Iterator[RemoveBuild]:
    place = profile.checkpoints
    elsewhere = place if place and "://" in place and not place.startswith("file:") else None
    for build in observed.stored:
        if _not_needed(build, catalog):
            yield RemoveBuild(build.view, build.id, elsewhere)


def _not_needed(build: StoredBuild, catalog: Catalog) -> bool:
    view = catalog.views.get(build.view)
    if build.role not in ("left", "other") or view is None:
        return False
    if build.role == "left":  # it takes no readers over, and a rebuild of its definition would be another build
        return True
    # Whether a function's build is of what is declared only Spark knows.
    return not isinstance(view.definition, View) and build.id.partition("-")[0] != view.fingerprint
