"""Place: the pool and the clients an application has in one event loop; and a loop of its own for synchronous code."""

from __future__ import annotations

import asyncio
import atexit
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

import asyncpg

from howdah.jobs.admin import Admin
from howdah.jobs.client import Client
from howdah.jobs.foreign import Foreign
from howdah.log.append import ForeignAppender
from howdah.log.log import Clients, clients
from howdah.log.types import Types
from howdah.pg.database import Database
from howdah.why.why import Why

T = TypeVar("T")
POOL_SIZE = 10


class Owner(Protocol):
    """The application, as far as it matters here."""

    @property
    def database(self) -> Database: ...

    @property
    def foreign(self) -> Foreign: ...

    @property
    def foreign_appender(self) -> ForeignAppender: ...

    @property
    def types(self) -> Types: ...


class Place:
    """The pool and the clients of one event loop; made anew when the loop changes."""

    def __init__(self, app: Owner) -> None:
        self._app = app
        self._loop: asyncio.AbstractEventLoop | None = None
        self._opening: asyncio.Task[asyncpg.Pool] | None = None
        self._client: Client | None = None
        self._admin: Admin | None = None
        self._log: Clients | None = None

    def client(self) -> Client:
        self._settle()
        if self._client is None:
            self._client = Client(self._app.database, self._pool, self._app.foreign)
        return self._client

    def admin(self) -> Admin:
        self._settle()
        if self._admin is None:
            self._admin = Admin(self._app.database, self._pool)
        return self._admin

    def why(self) -> Why:
        self._settle()
        return Why(self._app.database, self._pool)

    def log(self) -> Clients:
        self._settle()
        if self._log is None:
            app = self._app
            self._log = clients(app.database, self._pool, app.types, app.foreign_appender)
        return self._log

    async def close(self) -> None:
        opening, self._opening = self._opening, None
        self._client = self._admin = self._log = None
        if opening is None or self._loop is not asyncio.get_running_loop():
            return
        await asyncio.wait([opening])
        if not opening.cancelled() and opening.exception() is None:
            opening.result().terminate()

    def _settle(self) -> None:
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._loop, self._opening, self._client, self._admin, self._log = loop, None, None, None, None

    async def _pool(self) -> asyncpg.Pool:
        if self._opening is None or (self._opening.done() and self._opening.exception()):
            self._opening = asyncio.create_task(self._app.database.pool(POOL_SIZE))
        return await asyncio.shield(self._opening)


class Portal:
    """An event loop in a thread, through which synchronous code enqueues."""

    def __init__(self, app: Owner) -> None:
        self._loop = asyncio.new_event_loop()
        self._place = Place(app)
        threading.Thread(target=self._loop.run_forever, name="howdah-portal", daemon=True).start()
        atexit.register(self._loop.call_soon_threadsafe, self._loop.stop)

    def call(self, function: Callable[[Place], Coroutine[Any, Any, T]]) -> T:
        async def run() -> T:
            return await function(self._place)

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result()
