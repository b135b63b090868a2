"""Servers to be tortured: each a real PostgreSQL with something that can be done to it."""

from __future__ import annotations

from typing import Protocol, Self


class Place(Protocol):
    """A PostgreSQL, and what can be done to it. It runs while its block lasts, and leaves nothing behind."""

    @property
    def dsn(self) -> str:
        """Of its superuser, over TCP; the same for the whole run, whoever is primary."""
        ...

    @property
    def direct(self) -> str:
        """The same, past any pooler: for those who only look."""
        ...

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens."""
        ...

    async def writable(self, patience: float) -> float:
        """Wait until it takes writes, at most ``patience`` seconds; returns the monotonic moment."""
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *_: object) -> None: ...
