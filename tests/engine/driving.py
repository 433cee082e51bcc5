"""Views driven inside one warm JVM: a start of Spark costs more than most tests."""

from __future__ import annotations

from typing import Any

import leftfold
from leftfold.run.progress import Progress


def run_all(app: leftfold.App, spark: Any) -> list[Progress]:
    """Views, intakes and lakes, until they have caught up; none may fail."""
    done = app.supervisor(until_caught_up=True).run(lambda _: None, session=spark)
    for one in done:
        assert one.error is None, one.error
    return done


def run_until_caught_up(app: leftfold.App, spark: Any, *views: str) -> list[Progress]:
    """What `leftfold run --until-caught-up` does, in the session at hand."""
    supervisor = app.supervisor(views=views, until_caught_up=True)
    for view in supervisor.views:
        view.start(spark, until_caught_up=True)
    for view in supervisor.views:
        view.wait()
    return [view.progress for view in supervisor.views]
