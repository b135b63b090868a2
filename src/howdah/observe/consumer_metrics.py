"""Metrics of the event log and its consumers: counts of this node, and positions in the database."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from prometheus_client.metrics_core import CounterMetricFamily, Metric

from howdah.observe.sampler import ConsumerLag, ConsumerPosition, LogPosition
from howdah.observe.series import Histogram, Names, Values, counter, gauge, histogram

CONSUMER = ("consumer",)


class ConsumerMetrics:
    """Counts events of this node's consumers; thread-safe."""

    def __init__(self, lag: ConsumerLag | None = None) -> None:
        self._lag = lag
        self._lock = threading.Lock()
        self._names = Names()
        self._appended = 0
        self._events: Counter[tuple[str, ...]] = Counter()
        self._failures: Counter[tuple[str, ...]] = Counter()
        self._batches: defaultdict[str, Histogram] = defaultdict(Histogram)
        self._handlers: dict[str, Callable[[dict[str, Any]], None]] = {
            "log.append": self._on_append,
            "consumer.start": self._on_start,
            "consumer.batch": self._on_batch,
            "consumer.fail": self._on_fail,
            "consumer.park": self._on_fail,  # emitted instead of the last failure
        }

    def on_event(self, name: str, facts: dict[str, Any]) -> None:
        """Count one telemetry event."""
        handler = self._handlers.get(name)
        if handler is not None:
            with self._lock:
                handler(facts)

    def collect(self) -> Iterator[Metric]:
        """Return all metrics as Prometheus's types."""
        with self._lock:
            appended, events, failures = self._appended, self._events.copy(), self._failures.copy()
            batches = {label: each.copy() for label, each in self._batches.items()}
        yield CounterMetricFamily("howdah_log_events_appended", "Events this process appended.", appended)
        yield counter("consumer_events", "Events consumed here, committed.", CONSUMER, events)
        yield counter("consumer_failures", "Failures of consumers here.", CONSUMER, failures)
        about = "How long batches took here, from begin to commit."
        yield histogram("consumer_batch_duration_seconds", about, "consumer", batches)
        standing = self._lag.latest if self._lag is not None else None
        if standing is not None:
            yield from _log(standing)
            yield from _consumers(self._merge(standing.consumers))

    def _on_append(self, facts: dict[str, Any]) -> None:
        self._appended += facts["events"]

    def _on_start(self, facts: dict[str, Any]) -> None:
        """Start the counters at zero, so that the first failure is an increase."""
        label = self._names.label(facts["consumer"])
        self._events[label,] += 0
        self._failures[label,] += 0

    def _on_batch(self, facts: dict[str, Any]) -> None:
        label = self._names.label(facts["consumer"])
        self._events[label,] += facts["events"]
        self._batches[label].add([int(facts["seconds"] * 1e6)])

    def _on_fail(self, facts: dict[str, Any]) -> None:
        self._failures[self._names.label(facts["consumer"]),] += 1

    def _merge(self, consumers: Iterable[ConsumerPosition]) -> list[ConsumerPosition]:
        """Merge consumers beyond the label limit into one, with the worst values of them."""
        merged: dict[str, ConsumerPosition] = {}
        with self._lock:
            labelled = [each._replace(name=self._names.label(each.name)) for each in consumers]
        for each in labelled:
            other = merged.get(each.name, each)
            merged[each.name] = ConsumerPosition(
                each.name,
                max(each.events, other.events),
                max(each.seconds, other.seconds),
                each.halted or other.halted,
                each.paused or other.paused,
                each.unassigned or other.unassigned,
                each.parked if other is each else each.parked + other.parked,
            )
        return list(merged.values())


def _log(log: LogPosition) -> Iterator[Metric]:
    yield gauge("log_head", "The last position that was drawn.", (), {(): log.head})
    yield gauge("log_frontier", "How far the log can be read.", (), {(): log.frontier})
    about = "How long the oldest transaction with an open append has lasted; 0: there is none."
    yield gauge("log_frontier_age_seconds", about, (), {(): log.age})


def _consumers(consumers: list[ConsumerPosition]) -> Iterator[Metric]:
    for name, field, about in (
        ("lag_events", "events", "Positions it is behind the head; every node says the same."),
        ("lag_seconds", "seconds", "Age of the oldest event it has not seen."),
        ("halted", "halted", "1 while it is halted after failures, until it is resumed."),
        ("paused", "paused", "1 while it is paused."),
        ("unassigned", "unassigned", "1 while it, or a part of it, is at no live node."),
        ("parked_events", "parked", "Events that were set aside because it failed on them."),
    ):
        values: Values = {(each.name,): float(getattr(each, field)) for each in consumers}
        yield gauge(f"consumer_{name}", about, CONSUMER, values)
