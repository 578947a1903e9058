"""The metrics of a node in the text form that Prometheus reads.

``prometheus_client`` is loaded at the first scrape: it takes 5 MB that a node which is never scraped can do without.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

from headwater.node.observe.metrics.catalogue import Sample, metrics, samples
from headwater.node.observe.metrics.counters import Histogram
from headwater.node.observe.metrics.observed import Observed

if TYPE_CHECKING:
    from prometheus_client.core import Metric as Family

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


class Exposition:
    """Answers scrapes: ``text()`` is the body of ``GET /metrics``, with CONTENT_TYPE."""

    def __init__(self, observed: Observed) -> None:
        self._observed = observed
        self._text: Callable[[], bytes] | None = None

    def text(self) -> bytes:
        if self._text is None:
            from prometheus_client import CollectorRegistry, ProcessCollector
            from prometheus_client.exposition import generate_latest

            registry = CollectorRegistry(auto_describe=False)
            registry.register(self)
            ProcessCollector(registry=registry)
            self._text = lambda: generate_latest(registry)
        return self._text()

    def describe(self) -> list[Any]:
        """Registering reads nothing yet."""
        return []

    def collect(self) -> Iterator[Family]:
        """The families of all metrics, also of those that have no value yet."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

        makers = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily, "histogram": HistogramMetricFamily}
        families: dict[str, Any] = {
            metric.name: makers[metric.kind](metric.name, metric.help, labels=metric.labels) for metric in metrics()
        }
        for sample in samples(self._observed):
            _add(families[sample.metric.name], sample)
        yield from families.values()


def _add(family: Any, sample: Sample) -> None:
    value = sample.value
    if isinstance(value, Histogram):
        bounds = [*(f"{bound / 1e6:g}" for bound in value.bounds_us), "+Inf"]
        buckets = list(zip(bounds, accumulate(value.counts), strict=True))
        family.add_metric(sample.labels, buckets, sum_value=value.sum_us / 1e6)
    else:
        family.add_metric(sample.labels, value)
