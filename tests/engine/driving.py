"""Running views inside one warm JVM: starting Spark takes longer than most tests."""

from __future__ import annotations

from typing import Any

import leftfold
from leftfold.run.progress import Progress


def run_all(app: leftfold.App, spark: Any) -> list[Progress]:
    """Run views, intakes and lakes until they have caught up. None may fail."""
    done = app.supervisor(until_caught_up=True).run(lambda _: None, session=spark)
    for one in done:
        assert one.error is None, one.error
    return done


def run_until_caught_up(app: leftfold.App, spark: Any, *views: str) -> list[Progress]:
    """Run the views as `leftfold run --until-caught-up` does, in the given session, without intakes and lakes."""
    supervisor = app.supervisor(views=views, until_caught_up=True)
    for view in supervisor.views:
        view.start(spark, until_caught_up=True)
    for view in supervisor.views:
        view.wait()
        view.close()
    return [view.progress for view in supervisor.views]
