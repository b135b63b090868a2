"""Front: one way work comes in. A node opens every front of its app and puts a worker on each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from howdah.handler import Handler
from howdah.node.beat import Holder, Pulse
from howdah.node.heart import Beat
from howdah.node.registry import Registration
from howdah.pg.database import Database
from howdah.store import Store
from howdah.work.options import WorkerOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Where a front is opened: what a node shares with all of them."""

    database: Database
    registration: Registration
    pool: Any
    options: WorkerOptions
    pulse: Callable[[], Pulse]
    drain: Callable[[], None]
    """Called when somebody asked the node to drain, maybe more than once."""

    @property
    def node(self) -> int:
        """The id of the node."""
        return self.registration.node


class OpenFront(Protocol):
    """A front at work on one node."""

    @property
    def store(self) -> Store:
        """Where its work comes from."""
        ...

    @property
    def troubled(self) -> bool:
        """Whether wake-ups were wanted and do not arrive."""
        ...

    def beat(self, holder: Holder) -> Beat:
        """What the heart does for this front."""
        ...

    async def listen(self, stop: asyncio.Event) -> None:
        """Hear wake-ups until ``stop``."""
        ...

    async def reset(self) -> None:
        """Take back what silent nodes held. Safe on every node at once."""
        ...

    async def close(self) -> None:
        """Close its connections."""
        ...


class Front(Protocol):
    """One way work comes in."""

    name: str
    handlers: Mapping[str, Handler]
    shares_slots: bool
    """Whether its jobs count against the node's slots rather than slots of their own."""

    def options(self, node: WorkerOptions) -> WorkerOptions:
        """How its worker behaves on a node that behaves so."""
        ...

    async def open(self, site: Site) -> OpenFront:
        """Get ready to work; raises :class:`ConfigError` when it cannot."""
        ...
