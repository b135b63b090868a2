"""Vitals: what a running node can be asked about itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from howdah.observe.depth import Counting


@dataclass(frozen=True, slots=True, kw_only=True)
class Vitals:
    """Questions to a node. Each is answered at once, from any thread, also before the node has started."""

    node: Callable[[], int]
    """Its id; 0 until it is registered."""

    ready: Callable[[], bool]
    """Whether it takes work."""

    running: Callable[[], Sequence[str]]
    """The kind of every job running now, one entry per job."""

    loop_lag: Callable[[], float]
    """Seconds its event loop has not answered, 0 when it does."""

    slots: int
    """Jobs it runs at once."""

    lease: float
    """Seconds its work stays its own without a heartbeat."""

    patience: Callable[[], float] | None = None
    """Seconds without a heartbeat after which it is not ready; without, its lease."""

    tables: Callable[[], Sequence[Counting]] = tuple
    """How the tables it works on are counted."""

    leads: Callable[[], bool | None] = lambda: None
    """Whether it says which node consumes what; ``None``: it has no consumers."""
