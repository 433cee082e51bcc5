"""Metrics of a server of scorers, for Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from leftfold.infer.coalescing import Coalescing


def _skipped(one: Coalescing) -> int:
    return 0 if one.scoring.shadows is None else one.scoring.shadows.skipped


_COUNTERS: tuple[tuple[str, str, Callable[[Coalescing], int]], ...] = (
    ("rows", "Rows that were scored, or tried.", lambda c: c.rows),
    ("batches", "Calls of the model.", lambda c: c.batches),
    ("refused", "Requests that were refused because too many waited.", lambda c: c.refused),
    ("fallbacks", "Rows that were answered by the fallback.", lambda c: c.scoring.fallbacks),
    ("late_calls", "Calls that went on after their deadline.", lambda c: c.scoring.late_calls),
    ("unlogged", "Predictions that brokers did not acknowledge.", lambda c: c.scoring.log.unlogged),
    ("failed_shadows", "Calls of shadow models that failed.", lambda c: c.scoring.scoring.failed_shadows),
    ("skipped_shadows", "Rows that shadow models were too slow for.", _skipped),
    ("model_swaps", "How often another version of a model was taken.", lambda c: c.scoring.scoring.models.swaps),
)


def exposition(scorers: Mapping[str, Coalescing], lost: Mapping[str, int]) -> str:
    """Return the metrics in the text format of Prometheus.

    `lost` has by scorer the number of answers of processes that died, which are not in the log.
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_ServingCollector(scorers, lost))
    return generate_latest(registry).decode()


class _ServingCollector(Collector):
    def __init__(self, scorers: Mapping[str, Coalescing], lost: Mapping[str, int]) -> None:
        self._scorers = scorers
        self._lost = lost

    def collect(self) -> Iterable[Metric]:
        return self._metrics()

    def _metrics(self) -> Iterator[Metric]:
        for name, text, value_of in _COUNTERS:
            family = CounterMetricFamily(f"leftfold_scorer_{name}", text, labels=["scorer"])
            for scorer, one in self._scorers.items():
                family.add_metric([scorer], value_of(one))
            yield family
        text = "Predictions that were answered and are not in the log: here, and by processes before that died."
        unlogged = CounterMetricFamily("leftfold_predictions_unlogged", text, labels=["scorer"])
        for scorer in sorted({*self._scorers, *self._lost}):
            here = self._scorers[scorer].scoring.log.unlogged if scorer in self._scorers else 0
            unlogged.add_metric([scorer], here + self._lost.get(scorer, 0))
        yield unlogged
        models = InfoMetricFamily("leftfold_scorer_model", "The models in use.", labels=["scorer", "role"])
        for scorer, one in self._scorers.items():
            for role, model in one.scoring.scoring.models.now.by_role:
                models.add_metric([scorer, role], {"model": model.name, "version": model.version})
        yield models
