"""Families: plain numbers as Prometheus's own types."""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from howdah.observe.series import Histogram

Values = dict[tuple[str, ...], float]


def gauge(name: str, help: str, labels: tuple[str, ...], values: Values) -> Metric:
    """What can go up and down."""
    family = GaugeMetricFamily(f"howdah_{name}", help, labels=labels)
    for key, value in values.items():
        family.add_metric(key, value)
    return family


def counter(name: str, help: str, labels: tuple[str, ...], values: Mapping[tuple[str, ...], int]) -> Metric:
    """What only goes up."""
    family = CounterMetricFamily(f"howdah_{name}", help, labels=labels)
    for key, value in sorted(values.items()):
        family.add_metric(key, value)
    return family


def histogram(name: str, help: str, label: str, values: Mapping[str, Histogram]) -> Metric:
    """How values spread."""
    family = HistogramMetricFamily(f"howdah_{name}", help, None, None, [label])
    for key, value in sorted(values.items()):
        family.add_metric([key], value.cumulative(), value.total)
    return family
