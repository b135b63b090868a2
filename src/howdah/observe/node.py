"""Observes one node from start to end: metrics, health, queues and consumers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

from prometheus_client import REGISTRY
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from howdah import telemetry
from howdah.observe.health import Checks, Health, NodeStatus
from howdah.observe.prometheus import Metrics
from howdah.observe.sampler import ConsumerLag, QueueDepth
from howdah.postgres.database import Database, Session

STOP_TIMEOUT = 2.0
"""Seconds that samplers have to end; then they are cancelled."""
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
    database: Database | None, status: NodeStatus, *, host: str = "127.0.0.1", port: int | None = 0
) -> AsyncIterator[NodeObserver]:
    """Observe a node for as long as the block lasts; ``port=None`` serves nothing, 0 takes a free port.

    What the application itself keeps in Prometheus's default registry is served along. A node without a database
    counts no queues.
    """
    session = depth = lag = None
    if database is not None:
        session = Session(database, "depth")
        depth = QueueDepth(database, session=session, wanted=lambda: status.node() != 0, tables=status.tables)
        lag = ConsumerLag(database, session=session, wanted=lambda: status.node() != 0, dead=status.lease)
    metrics = Metrics(status, depth, lag)
    checks = Checks(status)
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
    unsubscribe = telemetry.subscribe(checks.on_event)
    stop = asyncio.Event()
    counting = [asyncio.create_task(each.run(stop), name=f"howdah {each.name}") for each in (depth, lag) if each]
    try:
        yield NodeObserver(metrics, depth, lag, health)
    finally:
        stop.set()
        if counting:
            await asyncio.wait(counting, timeout=STOP_TIMEOUT)
        for task in counting:
            task.cancel()  # A database that does not answer must not delay the end.
        await asyncio.gather(*counting, return_exceptions=True)
        if session is not None:
            await session.close()
        unsubscribe()
        metrics.stop()
        if health is not None:
            health.stop()  # takes a moment; a thread to wait in may not be had when handlers are stuck in all of them


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
