"""Metrics of the views for Prometheus, read from the views' progress."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from leftfold import clock
from leftfold.run.progress import STATES, Progress

_OF_BUILD = ("view", "build")
_DOWN = ("failed", "stopped")


def view_metrics(views: Sequence[Progress]) -> Iterator[Metric]:
    """Yield the metrics of all views, as a scrape gets them."""
    yield from _counts(views)
    yield from _positions(views)
    yield from _states(views)


def _counts(views: Sequence[Progress]) -> Iterator[Metric]:
    records = CounterMetricFamily(
        "leftfold_records",
        "Records by what became of them, over the life of the build.",
        labels=(*_OF_BUILD, "outcome"),
    )
    batches = CounterMetricFamily("leftfold_batches", "Batches applied since this process started.", labels=_OF_BUILD)
    tiles = CounterMetricFamily(
        "leftfold_tiles_written", "Rows of the store written since this process started.", labels=_OF_BUILD
    )
    for p in views:
        for outcome, total in p.totals().items():
            records.add_metric([*_build(p), outcome], total)
        batches.add_metric(_build(p), p.batches)
        tiles.add_metric(_build(p), p.tiles)
    yield from (records, batches, tiles)


def _positions(views: Sequence[Progress]) -> Iterator[Metric]:
    """Yield the gauges of position and speed. A value that a view does not know yet is left out, not guessed."""
    gauges: list[tuple[str, str, Callable[[Progress], float | None]]] = [
        ("lag_records", "Offsets between what is applied and the end of the log.", lambda p: p.lag),
        ("lag_seconds", "Age of the newest applied record while others wait; 0 if none does.", lambda p: p.lag_s),
        ("freshness_seconds", "From the log into the store: the newest record of the last batch.", _freshness),
        ("rows_per_second", "Records a second in the last batch.", lambda p: p.rate),
        ("last_batch", "The number of the last batch that was applied.", _number),
        ("last_applied_timestamp_seconds", "When the last batch became visible.", _applied),
    ]
    for name, text, value_of in gauges:
        gauge = GaugeMetricFamily(f"leftfold_{name}", text, labels=_OF_BUILD)
        for p in views:
            value = value_of(p)
            if value is not None:
                gauge.add_metric(_build(p), value)
        yield gauge


def _states(views: Sequence[Progress]) -> Iterator[Metric]:
    state = GaugeMetricFamily("leftfold_view_state", "1 for the state that the view is in.", labels=["view", "state"])
    up = GaugeMetricFamily("leftfold_view_up", "1 unless the view has failed or was stopped.", labels=["view"])
    restarts = CounterMetricFamily(
        "leftfold_restarts", "How often the view was started again after a failure.", labels=["view"]
    )
    failing = GaugeMetricFamily(
        "leftfold_view_failing_seconds",
        "Since when it fails and is tried again; 0 while it goes well, and once it has failed for good.",
        labels=["view"],
    )
    for p in views:
        now = p.state  # read once: it may change during this loop
        for known in STATES if now in STATES else (*STATES, now):
            state.add_metric([p.view, known], float(known == now))
        up.add_metric([p.view], float(now not in _DOWN))
        restarts.add_metric([p.view], p.restarts)
        failing.add_metric([p.view], _failing(p) if now not in _DOWN else 0.0)
    yield from (state, up, restarts, failing)


def _build(p: Progress) -> tuple[str, str]:
    return p.view, p.build or ""  # Prometheus treats an empty label as a missing one


def _failing(p: Progress) -> float:
    failing = p.failing
    return 0.0 if failing is None else max(0.0, clock.now_us() / 1e6 - failing.since)


def _number(p: Progress) -> float | None:
    return None if p.last is None else p.last.number


def _freshness(p: Progress) -> float | None:
    return None if p.last is None else p.last.freshness_s


def _applied(p: Progress) -> float | None:
    return None if p.last is None else p.last.applied_at / 1e6
