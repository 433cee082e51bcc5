"""A project on a store of any engine: what a user does with it, until somebody empties the store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

import leftfold
from leftfold.errors import StoreError
from tests.engine import projects
from tests.engine.effects import VIEW, Project

EDITED = projects.PAYMENTS.replace(
    'points_24h = lf.sum(Payment.points, "24h")', 'points_24h = lf.max(Payment.points, "24h")'
)
MOVES_S = 5.0  # readers of a Redis Cluster move within a second, those of other stores at once


def use(project: Project, spark: Any, empty: Callable[[], None]) -> None:
    project.send(1_500)
    build = project.run(spark).build
    project.check(build)

    app = project.app
    one, other = app.get_many(VIEW, [{"account": "a1"}, {"account": "of nobody"}])
    assert one.provenance[0].found
    assert not other.provenance[0].found
    assert app.get(VIEW, account="a1").values == one.values

    async def both() -> list[Any]:
        return [await app.aget(VIEW, account="a1"), *await app.aget_many(VIEW, [{"account": "a1"}])]

    assert [row.values for row in asyncio.run(both())] == [one.values] * 2
    assert app.why(VIEW, account="a1").verdict == "same"
    (status,) = app.status()
    assert status.as_json()["build"] == build
    assert not app.plan().steps

    # An edit waits, takes readers over, and gives them back.
    (app.root / "streams.py").write_text(EDITED)
    edited = leftfold.open(app.root)
    for progress in edited.supervisor(until_caught_up=True, take_over=False).run(lambda _: None, session=spark):
        assert progress.error is None, progress.error
    standing = edited.standings.of(VIEW)
    assert standing.followed == build
    assert edited.promote(VIEW).followed == standing.staged != build

    def read_from(build: str | None) -> None:
        def reads() -> bool:
            return edited.get(VIEW, account="a1").provenance[0].build == build

        projects.await_true(reads, timeout=MOVES_S, what="readers to move")

    read_from(standing.staged)
    assert edited.rollback(VIEW).followed == build
    read_from(build)
    assert edited.get(VIEW, account="a1").values == one.values

    # Somebody empties the store, and the next run fills it again.
    empty()
    with pytest.raises(StoreError, match="view-not-built"):
        app.get(VIEW, account="a1")
    assert not app.plan().steps, "a look makes no tables"
    (app.root / "streams.py").write_text(projects.PAYMENTS)
    project.send(200)
    progress = project.run(spark)
    assert (progress.build, progress.repairs) == (build, 1)
    project.check(build)
