"""Metrics of consumers for Prometheus, read from their progress."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from leftfold.consume.progress import ConsumerProgress

_Value = Callable[[ConsumerProgress], float | None]

_COUNTERS: tuple[tuple[str, str, _Value], ...] = (
    ("failures", "Calls of the handler that failed.", lambda p: p.failures),
    ("abandoned", "Calls of the handler that took longer than the timeout.", lambda p: p.abandoned),
    ("rebalances", "How often partitions were assigned to this member.", lambda p: p.rebalances),
    ("stale_commits", "Commits refused because another member owns the partition.", lambda p: p.stale),
    (
        "rejoined",
        "How often the member joined again because it had missed a change of its partitions.",
        lambda p: p.rejoined,
    ),
)
_GAUGES: tuple[tuple[str, str, _Value], ...] = (
    ("lag_records", "Records up to the end of the log that are not settled.", lambda p: p.lag),
    ("lag_seconds", "Age of the oldest record that was taken and is not settled; 0 if none is.", lambda p: p.lag_s),
    ("in_flight", "Records that were taken and are not settled.", lambda p: p.in_flight),
    ("assigned_partitions", "Partitions that this member has.", lambda p: p.partitions),
    ("idle", "1 if this member has no partition.", lambda p: p.state == "idle"),
    ("paused", "1 while the consumer is paused.", lambda p: p.paused),
    ("breaker_open", "1 while records wait because what the handler calls seems to be away.", lambda p: p.waiting),
    ("up", "1 unless the consumer has failed or was stopped.", lambda p: p.is_up),
)


def consumer_metrics(consumers: Sequence[ConsumerProgress]) -> Iterator[Metric]:
    """Yield the metrics of all consumers, as a scrape gets them. A value that is not known yet is left out."""
    records = CounterMetricFamily(
        "leftfold_consumer_records",
        "Records by what became of them, since this process started.",
        labels=("consumer", "outcome"),
    )
    for p in consumers:
        for outcome, number in (("handled", p.handled), ("skipped", p.skipped), ("dead", p.dead)):
            records.add_metric([p.consumer, outcome], number)
    yield records
    for kind, metrics in ((CounterMetricFamily, _COUNTERS), (GaugeMetricFamily, _GAUGES)):
        for name, text, value_of in metrics:
            family = kind(f"leftfold_consumer_{name}", text, labels=["consumer"])
            for p in consumers:
                if (value := value_of(p)) is not None:
                    family.add_metric([p.consumer], float(value))
            yield family
