"""Observes one node from start to end: metrics, health, queues and consumers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

from prometheus_client import REGISTRY
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from howdah import telemetry
from howdah.observe.health import Health
from howdah.observe.node_status import NodeStatus
from howdah.observe.prometheus import Metrics
from howdah.observe.sampler import ConsumerLag, QueueDepth
from howdah.postgres.database import Database, Session

BLOCKED_TOO_LONG = 60.0
PATIENCE = 2.0
MOST_NAMED = 10


class NodeObserver:
    """An observed node."""

    def __init__(
        self, metrics: Metrics, depth: QueueDepth | None, lag: ConsumerLag | None, health: Health | None
    ) -> None:
        self.metrics = metrics
        self.depth = depth
        self.lag = lag
        self.health = health

    @property
    def port(self) -> int | None:
        """The port of health and metrics; ``None``: not served."""
        return self.health.port if self.health else None


@asynccontextmanager
async def observe_node(
    database: Database | None, vitals: NodeStatus, *, host: str = "127.0.0.1", port: int | None = 0
) -> AsyncIterator[NodeObserver]:
    """Observe a node for as long as the block lasts; ``port=None`` serves nothing, 0 takes a free port.

    What the application itself keeps in Prometheus's default registry is served along. A node without a database
    counts no queues.
    """
    session = depth = lag = None
    if database is not None:
        session = Session(database, "depth")
        depth = QueueDepth(database, session=session, wanted=lambda: vitals.node() != 0, tables=vitals.tables)
        lag = ConsumerLag(database, session=session, wanted=lambda: vitals.node() != 0, dead=vitals.lease)
    metrics = Metrics(vitals, depth, lag)
    checks = Checks(vitals)
    health = None
    if port is not None:
        health = Health(
            _Both(metrics),
            alive=checks.alive,
            ready=checks.ready,
            note=lambda: _halted(lag) if lag else None,
            host=host,
            port=port,
        )
        health.start()
    metrics.start()
    unsubscribe = telemetry.subscribe(checks.hear)
    stop = asyncio.Event()
    counting = [asyncio.create_task(each.run(stop), name=f"howdah {each.name}") for each in (depth, lag) if each]
    try:
        yield NodeObserver(metrics, depth, lag, health)
    finally:
        stop.set()
        if counting:
            await asyncio.wait(counting, timeout=PATIENCE)
        for task in counting:
            task.cancel()  # A database that does not answer must not delay the end.
        await asyncio.gather(*counting, return_exceptions=True)
        if session is not None:
            await session.close()
        unsubscribe()
        metrics.stop()
        if health is not None:
            health.stop()  # takes a moment; a thread to wait in may not be had when handlers are stuck in all of them


class Checks:
    """Liveness and readiness checks of a node. They never query the database: the heartbeat already does."""

    def __init__(self, vitals: NodeStatus) -> None:
        self._vitals = vitals
        self._beat_at: float | None = None

    def hear(self, name: str, facts: dict[str, Any]) -> None:
        """Record the time of the node's last heartbeat."""
        if name == "node.beat" and facts["node"] == self._vitals.node():
            self._beat_at = time.monotonic()

    def alive(self) -> str | None:
        """Return a problem that only a restart fixes, or ``None``."""
        lag = self._vitals.loop_lag()
        return f"the event loop has been blocked for {lag:.0f} s" if lag > BLOCKED_TOO_LONG else None

    def ready(self) -> str | None:
        """Return why the node cannot take work now, or ``None``."""
        if not self._vitals.ready():
            return "the node takes no work: it is starting or draining"
        if self._beat_at is None:
            return "no heartbeat has succeeded yet"
        silent = time.monotonic() - self._beat_at
        lease = self._vitals.patience() if self._vitals.patience else self._vitals.lease
        if silent > lease:
            return f"no heartbeat has succeeded for {silent:.1f} s, and the lease is {lease:g} s"
        return None


def _halted(lag: ConsumerLag) -> str | None:
    """Return a note about halted consumers. They belong to the whole database, so a restart does not help."""
    log = lag.latest
    names = [each.name for each in log.consumers if each.halted] if log is not None else []
    return (
        f"halted consumers: {', '.join(names[:MOST_NAMED])}{', …' if len(names) > MOST_NAMED else ''}"
        if names
        else None
    )


class _Both(Collector):
    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        yield from self._metrics.collect()
        yield from REGISTRY.collect()
