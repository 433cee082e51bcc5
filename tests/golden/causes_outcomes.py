"""How to provoke errors of outcomes: of their declaration, and of the table that they are appended to."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest import mock

from leftfold.offsets import Ranges
from leftfold.quality import outcomes as quality
from leftfold.settings import Profile
from leftfold.spark import files
from leftfold.spark.quality.outcome_table import TablePosition
from tests.golden.causes import EVENT, HEAD, TOPIC, VIEW, Cause, declares, project, stand_in
from tests.golden.causes_scorers import INPUT, SCORE, SCORES

PURCHASE = (
    "class Purchase(lf.Event):\n    user_id: str\n    amount: float\n    notes: list[str] = []\n    at: datetime\n\n\n"
)
BOUGHT = 'purchases = lf.Topic("purchases", Purchase, key=Purchase.user_id, time=Purchase.at{options})\n\n\n'
OUTCOME = "class RankerOutcome(lf.Outcome, of={of}, by={by}, within='24h', on={on}{options}):\n    {label}\n"
ALL = HEAD + EVENT + TOPIC + VIEW + INPUT + SCORE + SCORES + PURCHASE
NOON = 1_767_614_400_000_000  # 2026-01-05


def text(
    label: str = "bought = lf.happened()",
    *,
    of: str = "scores",
    by: str = "purchases",
    on: str = '{"user_id": Purchase.user_id}',
    options: str = "",
    topic: str = "",
) -> str:
    return (
        ALL[len(HEAD + EVENT + TOPIC) :]
        + BOUGHT.format(options=topic)
        + OUTCOME.format(of=of, by=by, on=on, options=options, label=label)
    )


def outcome(label: str = "bought = lf.happened()", **given: str) -> Cause:
    return declares(text(label, **given))


def made(tmp: Path, *, start: int | None = None) -> Any:
    """An outcome as far as a refusal needs it: nothing is read."""
    app = project(tmp, HEAD + EVENT + TOPIC + text())
    admin = stand_in(
        partitions_of=lambda _: 1, end_offsets=lambda *_: {0: 7}, stable_offsets=lambda *_: {0: 7}, metadata=None
    )
    deployment: Any = stand_in(
        profile=Profile(name="prod"),
        engines=stand_in(admin=admin),
        lake="s3a://shop/lake",
        session=lambda *_, **__: None,
    )

    def replay(topic: str, *_: Any) -> Any:
        return stand_in(
            topic=app.catalog.topic(topic), ranges=Ranges(), source=stand_in(topics=(topic,), partitions=(1,))
        )

    definition = app.catalog.outcome("ranker_outcome")
    return quality.Outcomes(definition, deployment, replay, start=start, end=None, include_open=False)


def appended(before: TablePosition, *, start: int | None = None) -> Cause:
    def cause(tmp: Path) -> None:
        rows: Any = stand_in(closed_rows=lambda *_: None)
        with (
            mock.patch.object(quality, "position", return_value=before),
            mock.patch.object(quality, "session_for", return_value=None),
            mock.patch.object(quality, "append_once", return_value=False),
            mock.patch.object(quality.Outcomes, "_rows", rows),
        ):
            made(tmp, start=start).append()

    return cause


def directory_taken(tmp: Path) -> None:
    with (
        mock.patch.object(quality, "session_for", return_value=None),
        mock.patch.object(files, "absolute", side_effect=lambda _, location: location),
        mock.patch.object(files, "exists", return_value=True),
    ):
        made(tmp).write("rows/monday")


def not_an_outcome(tmp: Path) -> None:
    quality.definition_of(7, project(tmp).catalog)  # type: ignore[arg-type] # that is the mistake


def unknown_outcome(tmp: Path) -> None:
    project(tmp).catalog.outcome("ranker_outcome")


CAUSES: dict[str, Cause] = {
    "aggregate-kind/label": outcome("when = lf.sum(Purchase.user_id)"),
    "directory-taken/outcomes": directory_taken,
    "duplicate-outcome": declares(
        text()
        + "\n\n"
        + OUTCOME.format(
            of="scores", by="purchases", on="Purchase.user_id", options="", label="bought = lf.happened()"
        ).replace("class RankerOutcome(lf.Outcome", "class Again(lf.Outcome, name='ranker_outcome'")
    ),
    "label-in-view": declares(VIEW + "    spent = lf.sum(Click.price)\n"),
    "not-a-topic/outcome": outcome(by="Purchase"),
    "not-an-outcome": not_an_outcome,
    "outcome-changed": appended(TablePosition(3, NOON, "0123456789ab", "")),
    "outcome-credit": outcome(options=", credit='all'"),
    "outcome-labels": outcome("pass"),
    "outcome-labels/other": outcome('bought = "yes"'),
    "outcome-labels/taken": outcome("score = lf.happened()"),
    "outcome-of": outcome(of="clicks"),
    "outcome-on": outcome(on='{"user": Purchase.user_id}'),
    "outcome-on/kinds": outcome(on='{"user_id": Purchase.amount}'),
    "outcome-on/nothing": outcome(on="{}"),
    "outcome-time": outcome(topic=", log_time='producer'"),
    "outcome-time/compacted": outcome(topic=", compacted=True"),
    "outcomes-gap": appended(TablePosition(3, NOON, "", ""), start=NOON + 3_600_000_000),
    "outcomes-overtaken": appended(TablePosition(3, NOON, "", "")),
    "reserved-name/outcomes": declares(
        "class Outcomes(lf.Features, of=clicks, by=Click.user_id, to=[lf.Online(), lf.Lake()]):\n"
        '    clicks_1h = lf.count("1h")\n'
    ),
    "step-without-window/label": outcome('spent = lf.sum(Purchase.amount, step="1m")'),
    "unknown-outcome": unknown_outcome,
}
