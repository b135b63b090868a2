"""Building blocks of metrics: a limit on label values, and histograms with cheap updates."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from itertools import accumulate

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

Values = dict[tuple[str, ...], float]


def gauge(name: str, help: str, labels: tuple[str, ...], values: Values) -> Metric:
    """Make a gauge."""
    family = GaugeMetricFamily(f"howdah_{name}", help, labels=labels)
    for key, value in values.items():
        family.add_metric(key, value)
    return family


def counter(name: str, help: str, labels: tuple[str, ...], values: Mapping[tuple[str, ...], int]) -> Metric:
    """Make a counter."""
    family = CounterMetricFamily(f"howdah_{name}", help, labels=labels)
    for key, value in sorted(values.items()):
        family.add_metric(key, value)
    return family


def histogram(name: str, help: str, label: str, values: Mapping[str, Histogram]) -> Metric:
    """Make a histogram."""
    family = HistogramMetricFamily(f"howdah_{name}", help, None, None, [label])
    for key, value in sorted(values.items()):
        family.add_metric([key], value.cumulative(), value.total)
    return family


MOST_NAMES = 500
OTHER = "other"
BOUNDS = tuple(round(0.005 * 2.5**n, 9) for n in range(12))
"""Upper bounds of the buckets, in seconds: 5 ms to two minutes."""
_MICROSECONDS = tuple(round(bound * 1e6) for bound in BOUNDS)


class Names:
    """The first ``most`` names are themselves, all later ones together are ``other``.

    >>> names = Names(most=2)
    >>> [names.label(name) for name in ("mail", "push", "mail", "sms")]
    ['mail', 'push', 'mail', 'other']
    """

    def __init__(self, most: int = MOST_NAMES) -> None:
        self._most = most
        self._known: set[str] = set()

    def label(self, name: str) -> str:
        """The label value for ``name``."""
        if name in self._known:
            return name
        if len(self._known) >= self._most:
            return OTHER
        self._known.add(name)
        return name


class Histogram:
    """Histogram buckets and sum. Values are microseconds; the output is in seconds."""

    __slots__ = ("_counts", "_total")

    def __init__(self) -> None:
        self._counts = [0] * (len(BOUNDS) + 1)
        self._total = 0

    def add(self, values: list[int]) -> None:
        """Count these values; sorts them, since finding the bounds in a batch is cheaper than each value's bucket."""
        values.sort()
        self._total += sum(values)
        low, most = 0, len(values)
        for place, bound in enumerate(_MICROSECONDS):
            high = bisect_right(values, bound, low)
            self._counts[place] += high - low
            if high == most:
                return
            low = high
        self._counts[-1] += most - low

    def copy(self) -> Histogram:
        """The same numbers, which no longer change."""
        twin = Histogram()
        twin._counts, twin._total = self._counts.copy(), self._total
        return twin

    @property
    def total(self) -> float:
        """The sum of all values, in seconds."""
        return self._total / 1e6

    def cumulative(self) -> list[tuple[str, float]]:
        """Buckets as Prometheus wants them: each counts everything up to its bound.

        >>> histogram = Histogram()
        >>> histogram.add([1_000_000_000, 7_000, 12_500])
        >>> histogram.cumulative()[:2], histogram.cumulative()[-1], histogram.total
        ([('0.005', 0), ('0.0125', 2)], ('+Inf', 3), 1000.0195)
        """
        return list(zip((*map(str, BOUNDS), "+Inf"), accumulate(self._counts), strict=True))
