"""Parts of a node: where it registers, the sources of its jobs, its other services, its loops.

A node runs one worker for each source: the job queue and the tables of an application.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

from howdah.handler import Handler
from howdah.loops import every
from howdah.node.heartbeat import Connection, LeaseHolder, NodeState, Renewal
from howdah.store import Store
from howdah.worker.drain import DrainGroup
from howdah.worker.options import WorkerOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeContext:
    """Shared by a node with all its parts."""

    options: WorkerOptions
    kinds: Sequence[str]
    """The kinds of job and the tables that its handlers are for."""
    stopping: asyncio.Event
    """Set when the node has been asked to stop."""
    state: Callable[[], NodeState]
    drain: Callable[[], None]
    """Called when the node has been asked to drain; can be called more than once."""
    drain_group: DrainGroup


Context = TypeVar("Context", bound=NodeContext)
ContextOut = TypeVar("ContextOut", bound=NodeContext, covariant=True)
ContextIn = TypeVar("ContextIn", bound=NodeContext, contravariant=True)


class Registry(Protocol[ContextOut]):
    """Where a node registers: the table of nodes, or a control plane."""

    drain_together: bool
    """True if with ``--drain`` no worker exits before all are idle."""
    heartbeat_timeout: float
    """Seconds to wait at the stop for a heartbeat that is being sent."""

    @property
    def node(self) -> int:
        """The id of the node; 0: not registered."""
        ...

    @property
    def activity(self) -> str:
        """The verb of the log line at the start, such as "starts"."""
        ...

    async def register(self, context: NodeContext) -> ContextOut | None:
        """Register the node and return what its parts share; ``None`` if it was stopped before that."""
        ...

    def connect(self) -> Connection:
        """Return a connection for the heartbeat thread; called in that thread."""
        ...

    async def deregister(self) -> None:
        """Deregister the node; an error is logged, not raised."""
        ...

    async def close(self) -> None:
        """Close what it opened; called last, also after a failed start."""
        ...


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
        """Return the function that renews the leases of this source in the heartbeat thread; sources may share it."""
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


class Source(Protocol[ContextIn]):
    """A source of work."""

    name: str
    handlers: Mapping[str, Handler]
    shares_slots: bool
    """True if its jobs count against the node's slots, not against their own."""

    def options(self, node: WorkerOptions) -> WorkerOptions:
        """Return the options of its worker on a node with these options."""
        ...

    async def open(self, context: ContextIn) -> OpenSource:
        """Open the source; raises :class:`ConfigError` if it cannot be used."""
        ...


class Loop(NamedTuple):
    """A background loop, which runs until the event is set."""

    name: str
    run: Callable[[asyncio.Event], Coroutine[Any, Any, None]]


class NodeService(Protocol):
    """Work of a node besides its sources: consumers of the event log, the HTTP server of a control plane."""

    @property
    def wakeups_lost(self) -> bool:
        """True if notifications are enabled and do not arrive."""
        ...

    async def open(self) -> None:
        """Prepare the work; called again if the connection broke."""
        ...

    async def run(self) -> None:
        """Work until :meth:`stop`."""
        ...

    def stop(self, *, now: bool = False) -> None:
        """End the work; ``now``: without waiting for what runs."""
        ...

    async def close(self) -> None:
        """Close its connections; the loops of the node have ended."""
        ...


def periodic(seconds: float, tick: Callable[[], Awaitable[object]], *, name: str) -> Loop:
    """Return a loop that calls ``tick`` every ``seconds``."""
    return Loop(name=f"howdah {name}", run=lambda stop: every(seconds, tick, name=name, stop=stop))
