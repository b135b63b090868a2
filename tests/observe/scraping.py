"""Observed nodes, and what a scrape of them shows."""

from __future__ import annotations

import asyncio
import http.client
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from howdah import Howdah
from howdah.node.node import Node
from howdah.observe.health import NodeStatus
from howdah.observe.node import NodeObserver, observe_node
from howdah.postgres.database import Database
from howdah.worker.attempt import slots_used
from kit.node import node, quick

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def status(**changed: Any) -> NodeStatus:
    """A node at rest."""
    rest: dict[str, Any] = {
        "node": lambda: 7,
        "ready": lambda: True,
        "running": list,
        "busy": lambda: 0,
        "loop_lag": lambda: 0.0,
        "slots": 10,
        "lease": 30.0,
    }
    return NodeStatus(**{**rest, **changed})


def status_of(running_node: Node[Any], **options: Any) -> NodeStatus:
    """Return the status of a running node."""
    return NodeStatus(
        node=lambda: running_node.node,
        ready=lambda: running_node.ready,
        running=lambda: [attempt.job.kind for attempt in running_node.running],
        busy=lambda: slots_used(running_node.running),
        loop_lag=lambda: running_node.heartbeat_thread.loop_lag if running_node.heartbeat_thread else 0.0,
        slots=quick(**options).slots,
        lease=quick(**options).lease,
    )


@asynccontextmanager
async def observed_node(
    app: Howdah, database: Database, **options: Any
) -> AsyncIterator[tuple[Node[Any], NodeObserver]]:
    """A node that works, with its health and metrics on a free port."""
    async with (
        node(app, **options) as running_node,
        observe_node(database, status_of(running_node, **options)) as observed,
    ):
        yield running_node, observed


def get(port: int | None, path: str, accept: str = "", method: str = "GET") -> tuple[int, str]:
    """Status and body of one request."""
    conn = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        conn.request(method, path, headers={"Accept": accept} if accept else {})
        reply = conn.getresponse()
        return reply.status, reply.read().decode()
    finally:
        conn.close()


async def scrape(observed: NodeObserver) -> Samples:
    """Every sample of Howdah's that ``/metrics`` shows."""
    status, text = await asyncio.to_thread(get, observed.port, "/metrics")
    assert status == 200
    return samples(text)


def samples(text: str) -> Samples:
    """Every sample of Howdah's in an exposition."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name.startswith("howdah_")
    }


def value(found: Samples, name: str, **labels: str) -> float | None:
    """One sample, or ``None``."""
    return found.get((f"howdah_{name}", tuple(sorted(labels.items()))))
