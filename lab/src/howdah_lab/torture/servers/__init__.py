"""Servers under test: each a real PostgreSQL with the faults it supports."""

from __future__ import annotations

from typing import Protocol, Self


class TortureServer(Protocol):
    """A PostgreSQL, and what can be done to it. It runs while its block lasts, and leaves nothing behind."""

    @property
    def dsn(self) -> str:
        """Of its superuser, over TCP; the same for the whole run, also after a failover."""
        ...

    @property
    def direct(self) -> str:
        """The same, past any pooler: for connections that only read."""
        ...

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens."""
        ...

    async def writable(self, timeout: float) -> float:
        """Wait until it takes writes, at most ``timeout`` seconds; returns the monotonic moment."""
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *_: object) -> None: ...
