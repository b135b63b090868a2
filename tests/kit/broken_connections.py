"""A wire that breaks: connections that fail at a chosen statement, before it is sent or after it was carried out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Literal

import asyncpg

from howdah.postgres.database import SESSION_SETTINGS, Database
from howdah.postgres.pool import DirectConnection
from howdah.postgres.settings import prepare

When = Literal["before", "after"]


class Faults:
    """When the next one happens: at the so-manieth statement from now on."""

    def __init__(self) -> None:
        self._left = 0
        self._when: When = "before"
        self._about = ""
        self.struck: int | None = None
        """The backend it happened to."""

    def arm(self, statement: int, when: When, *, about: str = "") -> None:
        """At the so-manieth statement that has these words in it."""
        self._left, self._when, self._about, self.struck = statement, when, about, None

    def disarm(self) -> None:
        self._left, self.struck = 0, None

    async def strike(self, conn: Any, statement: str, send: Callable[[], Awaitable[Any]]) -> Any:
        """Send a statement, unless this is the one."""
        self._left -= self._about in statement
        if self._left != 0 or self._about not in statement:
            return await send()
        self.struck = conn.get_server_pid()
        if self._when == "after":
            await send()
        conn.terminate()
        raise ConnectionResetError("the wire broke, on purpose")


class Wire(DirectConnection):
    """A connection whose statements pass by the faults."""

    __slots__ = ("faults",)

    async def _execute(self, query: str, *args: Any, **options: Any) -> Any:
        return await self._pass(query, lambda: super(Wire, self)._execute(query, *args, **options))

    async def _copy_in(self, statement: str, *args: Any, **options: Any) -> Any:
        return await self._pass(statement, lambda: super(Wire, self)._copy_in(statement, *args, **options))

    async def execute(self, query: str, *args: Any, timeout: float | None = None) -> Any:
        if args:  # it comes by _execute
            return await super().execute(query, *args, timeout=timeout)
        return await self._pass(query, lambda: super(Wire, self).execute(query, timeout=timeout))

    async def _pass(self, statement: str, send: Callable[[], Awaitable[Any]]) -> Any:
        faults = getattr(self, "faults", None)  # none while it is being made ready
        return await (faults.strike(self, statement, send) if faults else send())


class WiredDatabase(Database):
    """A database behind such a wire."""

    def __init__(self, dsn: str, faults: Faults) -> None:
        super().__init__(dsn)
        self._faults = faults

    async def _connect(self, **options: Any) -> Any:
        limit = self.command_timeout
        conn = await asyncpg.connect(self.dsn, timeout=limit, command_timeout=limit, connection_class=Wire, **options)
        await self._ready(conn)
        return conn

    async def wired_pool(self, size: int) -> Any:
        """A pool of such connections."""
        return await asyncpg.create_pool(
            self.dsn,
            min_size=0,
            max_size=size,
            init=self._ready,
            reset=_leave,
            server_settings=SESSION_SETTINGS,
            connection_class=Wire,
        )

    async def _ready(self, conn: Any) -> None:
        await prepare(conn)
        conn.faults = self._faults


async def _leave(_conn: Any) -> None: ...
