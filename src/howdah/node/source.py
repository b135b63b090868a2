"""Sources of work: the job queue and the tables of an application. A node runs one worker for each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from howdah.handler import Handler
from howdah.node.heartbeat import LeaseHolder, NodeState, Renewal
from howdah.node.registry import Registration
from howdah.postgres.database import Database
from howdah.store import Store
from howdah.worker.options import WorkerOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeContext:
    """Shared by a node with all its sources."""

    database: Database
    registration: Registration
    pool: Any
    options: WorkerOptions
    state: Callable[[], NodeState]
    drain: Callable[[], None]
    """Called when the node has been asked to drain; can be called more than once."""

    @property
    def node(self) -> int:
        """The id of the node."""
        return self.registration.node


class OpenSource(Protocol):
    """A source that is open on one node."""

    @property
    def store(self) -> Store:
        """The store of its jobs."""
        ...

    @property
    def wakeups_lost(self) -> bool:
        """True if notifications are enabled and do not arrive."""
        ...

    def renewal(self, holder: LeaseHolder) -> Renewal:
        """Return the function with which the heartbeat thread renews the leases of this source."""
        ...

    async def listen(self, stop: asyncio.Event) -> None:
        """Receive notifications until ``stop``."""
        ...

    async def reset(self) -> None:
        """Release the leases of dead nodes. Safe on every node at once."""
        ...

    async def close(self) -> None:
        """Close its connections."""
        ...


class Source(Protocol):
    """A source of work."""

    name: str
    handlers: Mapping[str, Handler]
    shares_slots: bool
    """True if its jobs count against the node's slots, not against their own."""

    def options(self, node: WorkerOptions) -> WorkerOptions:
        """Return the options of its worker on a node with these options."""
        ...

    async def open(self, context: NodeContext) -> OpenSource:
        """Open the source; raises :class:`ConfigError` if it cannot be used."""
        ...
