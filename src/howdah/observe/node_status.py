"""Status of a running node, for metrics and health checks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from howdah.observe.sampler import Counting


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStatus:
    """Status of a node. Every property returns at once, in any thread, also before the node has started."""

    node: Callable[[], int]
    """Its id; 0 until it is registered."""

    ready: Callable[[], bool]
    """True if it takes work."""

    running: Callable[[], Sequence[str]]
    """The kind of every job running now, one entry per job."""

    loop_lag: Callable[[], float]
    """Seconds for which its event loop has been blocked, else 0."""

    slots: int
    """Jobs it runs at once."""

    lease: float
    """Seconds its leases last without a heartbeat."""

    patience: Callable[[], float] | None = None
    """Seconds without a heartbeat after which it is not ready; without, its lease."""

    tables: Callable[[], Sequence[Counting]] = tuple
    """Statements that count the node's tables."""

    leads: Callable[[], bool | None] = lambda: None
    """True if it leads the consumers; ``None``: it has no consumers."""
