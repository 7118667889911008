"""Families of metrics, made when somebody asks. Names are Prometheus's: base units, ``_total`` for what only grows."""

from collections.abc import Iterable, Mapping, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric

Labels = tuple[str, ...]


def gauge(name: str, meaning: str, value: float) -> Metric:
    """One number that goes up and down."""
    return GaugeMetricFamily(name, meaning, value=value)


def counter(name: str, meaning: str, value: float) -> Metric:
    """One number that only grows; ``name`` is without ``_total``."""
    return CounterMetricFamily(name, meaning, value=value)


def gauges(name: str, meaning: str, labels: Sequence[str], values: Mapping[Labels, float]) -> Metric:
    """A number for each value of the labels."""
    family = GaugeMetricFamily(name, meaning, labels=labels)
    for label_values, value in values.items():
        family.add_metric(label_values, value)
    return family


def counters(name: str, meaning: str, labels: Sequence[str], values: Mapping[Labels, float]) -> Metric:
    """As :func:`gauges`, of what only grows; ``name`` is without ``_total``."""
    family = CounterMetricFamily(name, meaning, labels=labels)
    for label_values, value in values.items():
        family.add_metric(label_values, value)
    return family


def one_of(name: str, meaning: str, label: str, states: Iterable[str], *, present: str) -> Metric:
    """1 for the present state, 0 for the others."""
    return gauges(name, meaning, [label], {(state,): float(state == present) for state in states})


def histogram(name: str, meaning: str, buckets: Sequence[tuple[float, int]], total: float) -> Metric:
    """Counts of what is less than each bound, the last of which is infinite."""
    told = [("+Inf" if bound == float("inf") else str(bound), float(count)) for bound, count in buckets]
    return HistogramMetricFamily(name, meaning, buckets=told, sum_value=total)
