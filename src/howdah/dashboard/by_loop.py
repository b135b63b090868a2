"""The parts of a dashboard that belong to an event loop and to a database, opened when a request needs them.

A connection belongs to the loop that opened it, and the application may be connected to another database after the
dashboard was mounted, as tests do. So both are looked up at every request.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from howdah.app import Howdah
from howdah.dashboard.context import DashboardContext
from howdah.dashboard.pages.health import DoctorCache
from howdah.dashboard.pages.live import LiveUpdates
from howdah.dashboard.sign_in import Login, LoginLimiter, SignIn
from howdah.postgres.database import Database


class LoopDashboard:
    """The connections, sessions, live updates and examinations of one event loop, on one database."""

    def __init__(
        self,
        app: Howdah,
        database: Database,
        sign_in: SignIn | None,
        limiter: LoginLimiter,
        trace_url: str | None,
        secure: bool,
    ) -> None:
        self.database = database
        self.context = DashboardContext(app, database, trace_url)
        self.login = Login(sign_in, database, self.context.pool, limiter, secure) if sign_in is not None else None
        self.live = LiveUpdates(self.context.topics)
        self.doctor = DoctorCache(app, database)
        self._ending: AsyncGenerator[None, None] | None = None

    async def open(self) -> None:
        """Arrange that the connections are closed with the loop."""
        if self._ending is None:
            self._ending = self._until_loop_closes()
            await anext(self._ending)

    async def close(self) -> None:
        """End live streams, and close the connections."""
        self.live.stop()
        await self.doctor.close()
        await self.context.close()

    async def _until_loop_closes(self) -> AsyncGenerator[None, None]:
        # asyncio.run() closes remaining generators while the loop can still close connections
        try:
            yield
        finally:
            await self.close()


class DashboardsByLoop:
    """The parts of a dashboard by event loop; those of another database are closed and made anew."""

    def __init__(self, app: Howdah, sign_in: SignIn | None, trace_url: str | None, secure: bool) -> None:
        self._app = app
        self._sign_in = sign_in
        self._limiter = LoginLimiter()
        self._trace_url = trace_url
        self._secure = secure
        self._by_loop: dict[asyncio.AbstractEventLoop, LoopDashboard] = {}
        self._closing: set[asyncio.Task[None]] = set()

    async def here(self) -> LoopDashboard:
        """Return the parts of the running loop, on the database that the application has now."""
        loop, database = asyncio.get_running_loop(), self._app.database
        own = self._by_loop.get(loop)
        if own is not None and (own.database.dsn, own.database.schema) != (database.dsn, database.schema):
            self._close_soon(own)
            own = None
        if own is None:
            for closed in [each for each in list(self._by_loop) if each.is_closed()]:
                self._by_loop.pop(closed, None)
            own = LoopDashboard(self._app, database, self._sign_in, self._limiter, self._trace_url, self._secure)
            self._by_loop[loop] = own
        await own.open()
        return own

    def stop(self) -> None:
        """End the live streams of every loop."""
        for loop, own in list(self._by_loop.items()):
            if loop.is_running():
                loop.call_soon_threadsafe(own.live.stop)

    async def close(self) -> None:
        """End the live streams of every loop, and close the connections of this one."""
        self.stop()
        own = self._by_loop.pop(asyncio.get_running_loop(), None)
        if own is not None:
            await own.close()
        if self._closing:
            await asyncio.wait(self._closing)

    def _close_soon(self, own: LoopDashboard) -> None:
        closing = asyncio.create_task(own.close(), name="howdah dashboard close")
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)
