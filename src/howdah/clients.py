"""Clients of an application, one set per event loop, and a bridge to them for synchronous code.

A connection belongs to the event loop and to the process that opened it. Every loop has its own pool, which is closed
with the loop. A forked child starts without connections: it closes its copies of the sockets and sends nothing.
"""

from __future__ import annotations

import asyncio
import os
import socket
import threading
import weakref
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import suppress
from contextvars import Context
from typing import Any, Protocol, TypeVar

from howdah import sync_bridge as bridge
from howdah.diagnose.why import Why
from howdah.events.append import ForeignAppender
from howdah.events.event import EventTypes
from howdah.events.log import Clients, clients
from howdah.jobs.admin import Admin
from howdah.jobs.enqueue import EnqueueClient, ForeignEnqueue
from howdah.postgres.database import Database
from howdah.postgres.pool import Pool

T = TypeVar("T")
POOL_SIZE = 10
MOST_STOPPED = 16
"""Stopped event loops that keep their connections; beyond that number, the oldest lose theirs."""
CLOSE_TIMEOUT = 10.0
"""Seconds for running calls to end before their connections are closed."""
CLOSE_POLL = 0.02
"""Seconds between two checks whether they have ended."""
NEVER = 10.0**9
"""Seconds until a timer that must not fire."""

_guard = threading.Lock()
"""Held while the clients of a loop are created; a forked child gets a new lock."""
_all: weakref.WeakSet[ClientsByLoop] = weakref.WeakSet()
_inherited: list[object] = []
"""A fork's copies of its parent's loops; kept, because their finalizers would act on sockets that the parent uses."""


class ClientOwner(Protocol):
    """The part of the application that clients need."""

    @property
    def database(self) -> Database: ...

    @property
    def foreign(self) -> ForeignEnqueue: ...

    @property
    def foreign_appender(self) -> ForeignAppender: ...

    @property
    def types(self) -> EventTypes: ...


class ClientsByLoop:
    """The clients of an application, by event loop."""

    def __init__(self, app: ClientOwner) -> None:
        self._app = app
        self._by_loop: dict[asyncio.AbstractEventLoop, LoopClients] = {}
        self._database: Database | None = None
        _all.add(self)

    def client(self) -> EnqueueClient:
        """The enqueue client of the running loop; concurrent calls are sent as one batch."""
        return self._here().client

    def admin(self) -> Admin:
        """The running loop's admin."""
        return self._here().admin

    def why(self) -> Why:
        """The running loop's diagnosis."""
        return self._here().why

    def log(self) -> Clients:
        """The running loop's clients of the event log."""
        return self._here().log

    def call(self, function: Callable[[ClientsByLoop], Coroutine[Any, Any, T]]) -> T:
        """Run ``function`` in the loop of the sync bridge, for synchronous code."""
        return bridge.call(lambda: function(self))

    async def close(self) -> None:
        """Close the connections of the running loop."""
        own = self._by_loop.pop(asyncio.get_running_loop(), None)
        if own is not None:
            await own.close()

    def close_all(self) -> None:
        """Close the connections of every loop; those of loops that run in other threads close a moment later."""
        all_clients, self._by_loop, self._database = self._by_loop, {}, None
        for each in list(all_clients.values()):
            each.close_soon()

    @property
    def stopped(self) -> list[asyncio.AbstractEventLoop]:
        """Loops that have connections, and are neither running nor closed."""
        return [loop for loop in list(self._by_loop) if not loop.is_running() and not loop.is_closed()]

    def database(self) -> Database:
        """The database of the application; the same object while the DSN stays the same, so that it is checked once."""
        found = self._app.database
        known = self._database
        if known is None or (known.dsn, known.schema) != (found.dsn, found.schema):
            self._database = known = found
        return known

    def forget(self, clients: LoopClients) -> None:
        """Remove the clients of a loop that was closed."""
        if self._by_loop.get(clients.loop) is clients:
            self._by_loop.pop(clients.loop, None)

    def _here(self) -> LoopClients:
        loop = asyncio.get_running_loop()
        own = self._by_loop.get(loop)
        if own is None:
            with _guard:  # a loop runs in one thread, so this happens once per loop; the lock keeps the count right
                own = self._by_loop[loop] = LoopClients(self, self._app, self.database(), loop)
                spare = [each for each in list(self._by_loop) if each.is_closed()] + self.stopped[:-MOST_STOPPED]
            for loop in spare:
                if shed := self._by_loop.pop(loop, None):
                    shed.close_sockets()
        return own


class LoopClients:
    """The pool and the clients of one event loop."""

    def __init__(
        self, owner: ClientsByLoop, app: ClientOwner, database: Database, loop: asyncio.AbstractEventLoop
    ) -> None:
        self.loop = loop
        self._owner = weakref.ref(owner)
        self._database = database
        self._opening: asyncio.Task[Pool] | None = None
        self._ending: AsyncGenerator[None, None] | None = None
        self._timer: weakref.ref[asyncio.TimerHandle] | None = None
        self.client = EnqueueClient(database, self._pool, app.foreign)
        self.admin = Admin(database, self._pool)
        self.why = Why(database, self._pool)
        self.log = clients(database, self._pool, app.types, app.foreign_appender)

    async def close(self, timeout: float = 0) -> None:
        """Close the connections after running calls have ended, or after ``timeout`` seconds."""
        until = self.loop.time() + timeout
        while self._busy() and self.loop.time() < until:  # noqa: ASYNC110 - there is no event for a returned connection
            await asyncio.sleep(CLOSE_POLL)
        opening, self._opening = self._opening, None
        ending, self._ending = self._ending, None
        self._disarm()
        if opening is not None:
            await asyncio.wait([opening])
            if pool := _opened(opening):
                pool.terminate()
        if ending is not None:
            await ending.aclose()

    def _busy(self) -> bool:
        pool = _opened(self._opening) if self._opening else None
        return not self.client.idle or (pool is not None and pool.get_size() != pool.get_idle_size())

    def close_soon(self) -> None:
        """Close the connections, from any thread."""
        loop = self.loop
        if loop.is_closed() or not loop.is_running():
            self.close_sockets()
        elif loop is _running():
            closing = loop.create_task(self.close(CLOSE_TIMEOUT), name="howdah close")
            _closing.add(closing)
            closing.add_done_callback(_closing.discard)
        else:
            with suppress(RuntimeError):  # the loop was closed meanwhile, and its connections with it
                waiting = asyncio.run_coroutine_threadsafe(self.close(CLOSE_TIMEOUT), loop)
                if bridge.is_of(loop):
                    with suppress(Exception):
                        waiting.result(CLOSE_TIMEOUT + 1)

    def close_sockets(self) -> None:
        """Close the sockets of a loop that does not run."""
        for info in self._sockets():
            with suppress(OSError, ValueError), socket.socket(fileno=os.dup(info.fileno())) as copy:
                copy.shutdown(socket.SHUT_RDWR)  # also for uvloop, which does not expose its socket
            if self.loop.is_closed():  # a loop that runs again closes it when it reads the end of the stream
                _close(info)
        self._opening = self._ending = self._timer = None

    def loop_closed(self) -> None:
        """Called when the loop is closed without having been shut down in an orderly way."""
        if self._timer is None:
            return
        if owner := self._owner():
            owner.forget(self)
        self.close_sockets()

    def inherited(self) -> None:
        """Called in a forked child: close the copies of the sockets. The parent's connections stay open."""
        _inherited.extend([self.loop, self._opening, self._ending])
        for info in self._sockets():
            _close(info)
        self._opening = self._ending = self._timer = None

    async def _pool(self) -> Pool:
        if self._opening is None or (self._opening.done() and _opened(self._opening) is None):
            self._opening = asyncio.create_task(self._database.pool(POOL_SIZE))
            if self._ending is None:
                self._ending = self._until_loop_closes()
                await anext(self._ending)
        return await asyncio.shield(self._opening)

    async def _until_loop_closes(self) -> AsyncGenerator[None, None]:
        # asyncio.run() closes remaining generators while the loop can still close connections
        self._timer = weakref.ref(self.loop.call_later(NEVER, _never, _AtClose(self), context=Context()))
        try:
            yield
        finally:
            self._disarm()
            if owner := self._owner():
                owner.forget(self)
            opening, self._opening = self._opening, None
            if opening and (pool := _opened(opening)):
                pool.terminate()
                await asyncio.sleep(0)

    def _disarm(self) -> None:
        armed, self._timer = self._timer, None
        timer = armed() if armed else None
        if timer is not None:
            timer.cancel()

    def _sockets(self) -> list[Any]:
        pool = _opened(self._opening) if self._opening else None
        holders = getattr(pool, "_holders", None) or []
        transports = [getattr(getattr(holder, "_con", None), "_transport", None) for holder in holders]
        infos = [transport.get_extra_info("socket") for transport in transports if transport is not None]
        return [info for info in infos if info is not None]


class _AtClose:
    """Detects ``loop.close()``: only a timer of the loop refers to this object, and closing drops the timers."""

    def __init__(self, own: LoopClients) -> None:
        self._clients = weakref.ref(own)
        self._process = os.getpid()

    def __del__(self) -> None:
        own = self._clients()
        if own is not None and self._process == os.getpid():
            own.loop_closed()


_closing: set[asyncio.Task[None]] = set()


def _forked() -> None:
    global _guard
    _guard = threading.Lock()  # a thread that does not exist in this process may hold the old lock
    for owner in list(_all):
        for own in list(owner._by_loop.values()):
            own.inherited()
        owner._by_loop = {}


def _opened(opening: asyncio.Task[Pool]) -> Pool | None:
    return opening.result() if opening.done() and not opening.cancelled() and opening.exception() is None else None


def _close(info: Any) -> None:
    sock = getattr(info, "_sock", None)  # the socket objects of asyncio transports have no close()
    if sock is not None:
        sock.close()


def _running() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _never(_watch: object) -> None: ...


os.register_at_fork(after_in_child=_forked)
