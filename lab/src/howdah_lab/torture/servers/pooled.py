"""A server behind PgBouncer."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import ClassVar, Self

from howdah_lab.torture.servers.child_programs import in_thread
from howdah_lab.torture.servers.pooler import Mode, Pooler
from howdah_lab.torture.servers.ports import HOST
from howdah_lab.torture.servers.single import Single
from howdah_lab.torture.servers.writable import until_writable

SIZE = 200
"""Connections to the server: enough for all clients at once, because in session mode each client holds one."""


class Pooled:
    """A :class:`Single` that is reached through a pooler, in session mode."""

    mode: ClassVar[Mode] = "session"

    def __init__(self, settings: Mapping[str, str] | None = None, *, version: int | None = None) -> None:
        self.server = Single(settings, version=version)
        """The server itself, which can be hurt too."""
        self._pooler: Pooler
        self._stack = AsyncExitStack()

    @property
    def dsn(self) -> str:
        """Of the superuser, through the pooler."""
        return self._pooler.dsn_for("postgres")

    @property
    def direct(self) -> str:
        """Of the superuser, past the pooler."""
        return self.server.dsn

    @property
    def address(self) -> tuple[str, int]:
        """Where the pooler listens."""
        return HOST, self._pooler.port

    @staticmethod
    def missing() -> str | None:
        """Return what this machine lacks to run it, and how to install it."""
        return Pooler.missing() or Single.missing()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self.server)
            self._pooler = stack.enter_context(Pooler(self.server.dsn, mode=self.mode, size=SIZE))
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def writable(self, timeout: float) -> float:
        """Wait until it takes writes, at most ``timeout`` seconds; returns the monotonic moment."""
        return await until_writable(self.dsn, timeout)

    async def restart_pooler(self, down: float = 0.0) -> None:
        """Kill the pooler, and start another one on the same port ``down`` seconds later."""
        await in_thread(self._pooler.kill)
        await asyncio.sleep(down)
        await in_thread(self._pooler.start)


class PooledByTransaction(Pooled):
    """A :class:`Single` that is reached through a pooler, in transaction mode."""

    mode = "transaction"
