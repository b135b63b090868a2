"""Metrics for Prometheus, counted from telemetry.

Hot events carry a whole batch and are counted with plain numbers; Prometheus's own types are made at scrape time only.
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from prometheus_client.metrics_core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from howdah import telemetry
from howdah.job import Job
from howdah.observe.consumer_metrics import ConsumerMetrics
from howdah.observe.health import NodeStatus
from howdah.observe.sampler import ConsumerLag, Queue, QueueDepth
from howdah.observe.series import Histogram, Names, Values, counter, gauge, histogram
from howdah.outcome import Acks, Outcome
from howdah.version import __version__

COUNTED = tuple(outcome for outcome in Outcome if outcome is not Outcome.RELEASED)
BY_LABEL = (
    ("db_reconnects", ("role",), "Connections opened again, by their role."),
    ("table_resets", ("table",), "Rows of silent workers that this node put back."),
    ("table_reset_failures", ("table",), "Rows this node failed, for their workers went silent too often."),
    ("hook_failures", ("kind", "hook"), "Hooks of the application that raised."),
    ("remote_outcomes", ("store", "outcome"), "Outcomes that workers reported over HTTP to this control plane."),
)


class KindMetrics:
    """Counters of the jobs of one kind."""

    __slots__ = ("durations", "outcomes")

    def __init__(self) -> None:
        self.outcomes: dict[Outcome, int] = dict.fromkeys(COUNTED, 0)
        self.durations = Histogram()

    def copy(self) -> KindMetrics:
        """Return a snapshot of the numbers."""
        twin = KindMetrics()
        twin.outcomes, twin.durations = self.outcomes.copy(), self.durations.copy()
        return twin


class Metrics(Collector):
    """A collector: counts from :meth:`start` to :meth:`stop`, and may be scraped from any thread.

    Without a node status it exports the metrics of a process that only enqueues.
    """

    def __init__(
        self, status: NodeStatus | None = None, depth: QueueDepth | None = None, lag: ConsumerLag | None = None
    ) -> None:
        self._status = status
        self._depth = depth
        self._consumers = ConsumerMetrics(lag)
        # Events come from several threads: the node's loop, its heartbeat, the bridge of synchronous code.
        self._lock = threading.Lock()
        self._kind_names = Names()
        self._queue_names = Names()
        self._kinds: defaultdict[str, KindMetrics] = defaultdict(KindMetrics)
        self._waits: defaultdict[str, Histogram] = defaultdict(Histogram)
        self._totals: Counter[str] = Counter()
        self._by_label: dict[str, Counter[tuple[str, ...]]] = {name: Counter() for name, _, _ in BY_LABEL}
        self._lost_tokens: deque[int] = deque(maxlen=1000)
        self._deaf = False
        self._unsubscribe: Callable[[], None] | None = None
        self._handlers: dict[str, Callable[[dict[str, Any]], None]] = {
            "job.ack": self._on_ack,
            "job.claim": self._on_claim,
            "job.lost": self._on_lost,
            "job.reset": lambda facts: self._add("leases_reset", facts["leases"]),
            "job.repair": self._on_repair,
            "table.reset": self._on_table_reset,
            "hook.fail": self._on_hook_fail,
            "remote.ack": self._on_remote_ack,
            "job.enqueue": lambda facts: self._add("jobs_enqueued", facts["jobs"]),
            "loop.fail": self._on_fail,
            "loop.heal": self._on_heal,
            "pg.connect": self._on_connect,
            "listen.deaf": lambda _facts: self._set_deaf(True),
            "listen.heard": lambda _facts: self._set_deaf(False),
        }

    def start(self) -> None:
        """Count from now on."""
        if self._unsubscribe is None:
            self._unsubscribe = telemetry.subscribe(self.on_event)

    def stop(self) -> None:
        """Stop counting; the counts are kept."""
        if self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None

    def on_event(self, name: str, facts: dict[str, Any]) -> None:
        """Count one telemetry event."""
        handler = self._handlers.get(name)
        if handler is not None:
            with self._lock:
                handler(facts)
        else:
            self._consumers.on_event(name, facts)

    def collect(self) -> Iterator[Metric]:
        """Return all metrics as Prometheus's types."""
        with self._lock:
            kinds = {label: kind.copy() for label, kind in self._kinds.items()}
            waits = {queue: each.copy() for queue, each in self._waits.items()}
            by_label = {name: counts.copy() for name, counts in self._by_label.items()}
            totals, deaf = self._totals.copy(), self._deaf
        yield gauge("build_info", "Which Howdah this is.", ("version",), {(__version__,): 1})
        yield from _jobs(kinds, waits)
        for name, help in (
            ("leases_lost", "Leases this node lost before it could finish their jobs."),
            ("leases_reset", "Expired leases, of any node, that this node took back."),
            (
                "jobs_repaired",
                "Jobs in no place that this node queued again or failed; a defect of ours.",
            ),
            ("leases_repaired", "Leases that this node ended because nothing was left of them; a defect of ours."),
            ("jobs_enqueued", "Jobs this process enqueued."),
            ("heartbeat_failures", "Heartbeats that failed; those of an outage are added when it ends."),
        ):
            yield CounterMetricFamily(f"howdah_{name}", help, totals[name])
        for name, labels, help in BY_LABEL:
            yield counter(name, help, labels, by_label[name])
        yield gauge("listen_deaf", "1 while wake-ups do not arrive and the node polls.", (), {(): int(deaf)})
        if self._status is not None:
            yield from self._worker(self._status, kinds)
        if self._depth is not None:
            yield from _queues(self._merge(self._depth.queues))
            nodes: Values = {(state,): count for state, count in self._depth.nodes.items()}
            yield gauge("nodes", "Nodes of the whole database, workers over HTTP included.", ("state",), nodes)
        yield from self._consumers.collect()

    # ---------------------------------------------------------------- telemetry events, under the lock

    def _on_ack(self, facts: dict[str, Any]) -> None:
        for (_, name, outcome), each in Acks.of(facts["acks"]).took.items():
            if outcome is not Outcome.RELEASED:
                kind = self._open(name)
                kind.outcomes[outcome] += len(each)
                kind.durations.add(each)

    def _on_claim(self, facts: dict[str, Any]) -> None:
        jobs: list[Job] = facts["jobs"]
        waits: defaultdict[str, list[int]] = defaultdict(list)
        for job in jobs:
            if job.waited is not None:
                waits[job.queue].append(max(0, int(job.waited * 1e6)))
        for queue, each in waits.items():
            self._waits[self._queue_names.label(queue)].add(each)

    def _on_lost(self, facts: dict[str, Any]) -> None:
        jobs: list[Job] = facts["jobs"]
        for job in jobs:
            self._open(job.kind).outcomes[Outcome.LOST] += 1
        fresh = {job.token for job in jobs}.difference(self._lost_tokens)  # one lease may be lost in several parts
        self._lost_tokens.extend(fresh)
        self._add("leases_lost", len(fresh))

    def _on_table_reset(self, facts: dict[str, Any]) -> None:
        table = self._kind_names.label(facts["table"])
        self._by_label["table_resets"][table,] += facts["reset"]
        self._by_label["table_reset_failures"][table,] += facts["failed"]

    def _on_repair(self, facts: dict[str, Any]) -> None:
        self._add("jobs_repaired", facts["requeued"] + facts["ended"])
        self._add("leases_repaired", facts["leases"])

    def _on_hook_fail(self, facts: dict[str, Any]) -> None:
        self._by_label["hook_failures"][self._kind_names.label(facts["kind"]), facts["hook"]] += 1

    def _on_remote_ack(self, facts: dict[str, Any]) -> None:
        store = self._kind_names.label(facts["store"])
        for outcome in facts["outcomes"]:
            self._by_label["remote_outcomes"][store, outcome] += 1

    def _on_fail(self, facts: dict[str, Any]) -> None:
        if facts["loop"] == "heartbeat":
            self._add("heartbeat_failures", 1)

    def _on_heal(self, facts: dict[str, Any]) -> None:
        if facts["loop"] == "heartbeat":
            self._add("heartbeat_failures", facts["failures"] - 1)  # the first was counted when the outage began

    def _on_connect(self, facts: dict[str, Any]) -> None:
        if facts["again"]:
            self._by_label["db_reconnects"][facts["role"],] += 1

    def _set_deaf(self, deaf: bool) -> None:
        self._deaf = deaf

    def _add(self, name: str, count: int) -> None:
        self._totals[name] += count

    def _open(self, name: str) -> KindMetrics:
        return self._kinds[self._kind_names.label(name)]

    # ---------------------------------------------------------------- at scrape time

    def _worker(self, status: NodeStatus, kinds: Mapping[str, KindMetrics]) -> Iterator[Metric]:
        running = status.running()
        with self._lock:
            in_flight = Counter(self._kind_names.label(kind) for kind in running)
        by_kind: Values = {(kind,): in_flight[kind] for kind in sorted({*kinds, *in_flight})}
        yield gauge("worker_in_flight", "Jobs running now.", ("kind",), by_kind)
        busy = status.busy()
        slots: Values = {("busy",): busy, ("free",): max(0, status.slots - busy)}
        yield gauge("worker_slots", "Jobs this node may run at once.", ("state",), slots)
        lag = status.loop_lag()
        yield gauge("event_loop_blocked_seconds", "Seconds the event loop has not answered.", (), {(): lag})
        leads = status.leads()
        if leads is not None:
            yield gauge("leader", "1 on the node that says who consumes what.", (), {(): int(leads)})

    def _merge(self, queues: list[Queue]) -> list[Queue]:
        """Merge queues beyond the label limit into one."""
        merged: dict[str, Queue] = {}
        with self._lock:
            labelled = [queue._replace(name=self._queue_names.label(queue.name)) for queue in queues]
        for queue in labelled:
            other = merged.get(queue.name)
            if other is None:
                merged[queue.name] = queue
            else:
                merged[queue.name] = Queue(
                    queue.name,
                    queue.queued + other.queued,
                    queue.scheduled + other.scheduled,
                    queue.running + other.running,
                    max(queue.oldest or 0.0, other.oldest or 0.0),
                )
        return list(merged.values())


def _jobs(kinds: Mapping[str, KindMetrics], waits: Mapping[str, Histogram]) -> Iterator[Metric]:
    processed = CounterMetricFamily(
        "howdah_worker_jobs_processed", "Attempts that ended here, by outcome.", None, ["kind", "outcome"]
    )
    for label in sorted(kinds):
        for outcome, count in kinds[label].outcomes.items():
            processed.add_metric([label, outcome.value], count)
    yield processed
    durations = {label: kind.durations for label, kind in kinds.items()}
    yield histogram("worker_job_duration_seconds", "How long attempts took.", "kind", durations)
    about = "How long jobs that were due waited for their first claim; the first job of every run is measured."
    yield histogram("worker_job_wait_seconds", about, "queue", waits)


def _queues(queues: list[Queue]) -> Iterator[Metric]:
    jobs: Values = {}
    for queue in queues:
        for state in ("queued", "scheduled", "running"):
            jobs[queue.name, state] = getattr(queue, state)
    yield gauge("queue_jobs", "Jobs of the whole database; every node says the same.", ("queue", "state"), jobs)
    oldest: Values = {(queue.name,): max(0.0, queue.oldest or 0.0) for queue in queues}
    yield gauge("queue_oldest_seconds", "How long the oldest job that may run waits.", ("queue",), oldest)
