"""Clients of an application, one set per event loop, and a bridge to them for synchronous code.

A connection belongs to the event loop and to the process that opened it. Every loop gets a pool of its own, which ends
with the loop. A forked child starts without any: it closes its copies of the sockets without a word to the server.
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

from howdah import bridge
from howdah.jobs.admin import Admin
from howdah.jobs.client import Client
from howdah.jobs.foreign import Foreign
from howdah.log.append import ForeignAppender
from howdah.log.log import Clients, clients
from howdah.log.types import Types
from howdah.pg.database import Database
from howdah.pg.pool import Pool
from howdah.why.why import Why

T = TypeVar("T")
POOL_SIZE = 10
MOST_STOPPED = 16
"""Event loops that neither run nor are closed and keep their connections; beyond, the oldest lose theirs."""
CLOSING = 10.0
"""Seconds for calls under way to end before their connections are cut."""
LOOK_EVERY = 0.02
"""Seconds between two looks whether they have ended."""
FOR_EVER = 10.0**9
"""Seconds until a timer that must not fire."""

_guard = threading.Lock()
"""Held while a loop's clients are made; a forked child gets a new one."""
_all: weakref.WeakSet[Places] = weakref.WeakSet()
_inherited: list[object] = []
"""What a fork copied of its parent's loops: kept, because finalizers would act on what the parent still uses."""


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


class Places:
    """The clients of an application, by event loop."""

    def __init__(self, app: Owner) -> None:
        self._app = app
        self._by_loop: dict[asyncio.AbstractEventLoop, Place] = {}
        self._database: Database | None = None
        _all.add(self)

    def client(self) -> Client:
        """The running loop's enqueuer; calls made at the same time travel together."""
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

    def call(self, function: Callable[[Places], Coroutine[Any, Any, T]]) -> T:
        """Run ``function`` in the bridge's loop, for synchronous code."""
        return bridge.call(lambda: function(self))

    async def close(self) -> None:
        """Close the connections of the running loop."""
        place = self._by_loop.pop(asyncio.get_running_loop(), None)
        if place is not None:
            await place.close()

    def part(self) -> None:
        """Close the connections of every loop; those of loops that run elsewhere a moment later."""
        places, self._by_loop, self._database = self._by_loop, {}, None
        for place in list(places.values()):
            place.part()

    @property
    def stopped(self) -> list[asyncio.AbstractEventLoop]:
        """Loops that have connections, and are neither running nor closed."""
        return [loop for loop in list(self._by_loop) if not loop.is_running() and not loop.is_closed()]

    def database(self) -> Database:
        """The application's database; the same object while it stays the same, so it is examined once."""
        found = self._app.database
        known = self._database
        if known is None or (known.dsn, known.schema) != (found.dsn, found.schema):
            self._database = known = found
        return known

    def forget(self, place: Place) -> None:
        """Remove the clients of a loop that was closed."""
        if self._by_loop.get(place.loop) is place:
            self._by_loop.pop(place.loop, None)

    def _here(self) -> Place:
        loop = asyncio.get_running_loop()
        place = self._by_loop.get(loop)
        if place is None:
            with _guard:  # one loop runs in one thread, so it comes here once; the lock keeps the count right
                place = self._by_loop[loop] = Place(self, self._app, self.database(), loop)
                spare = [each for each in list(self._by_loop) if each.is_closed()] + self.stopped[:-MOST_STOPPED]
            for loop in spare:
                if shed := self._by_loop.pop(loop, None):
                    shed.cut()
        return place


class Place:
    """The pool and the clients of one event loop."""

    def __init__(self, places: Places, app: Owner, database: Database, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._places = weakref.ref(places)
        self._database = database
        self._opening: asyncio.Task[Pool] | None = None
        self._ending: AsyncGenerator[None, None] | None = None
        self._timer: weakref.ref[asyncio.TimerHandle] | None = None
        self.client = Client(database, self._pool, app.foreign)
        self.admin = Admin(database, self._pool)
        self.why = Why(database, self._pool)
        self.log = clients(database, self._pool, app.types, app.foreign_appender)

    async def close(self, patience: float = 0) -> None:
        """Close the connections; calls under way may take ``patience`` seconds to end."""
        until = self.loop.time() + patience
        while self._busy() and self.loop.time() < until:  # noqa: ASYNC110 - nothing says when a connection comes back
            await asyncio.sleep(LOOK_EVERY)
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

    def part(self) -> None:
        """Close the connections, from any thread."""
        loop = self.loop
        if loop.is_closed() or not loop.is_running():
            self.cut()
        elif loop is _running():
            closing = loop.create_task(self.close(CLOSING), name="howdah close")
            _closing.add(closing)
            closing.add_done_callback(_closing.discard)
        else:
            with suppress(RuntimeError):  # closed in this moment, and its connections with it
                waiting = asyncio.run_coroutine_threadsafe(self.close(CLOSING), loop)
                if bridge.is_of(loop):
                    with suppress(Exception):
                        waiting.result(CLOSING + 1)

    def cut(self) -> None:
        """Close the sockets of a loop that does not run."""
        for info in self._sockets():
            with suppress(OSError, ValueError), socket.socket(fileno=os.dup(info.fileno())) as copy:
                copy.shutdown(socket.SHUT_RDWR)  # also where the loop, as uvloop's, keeps the socket to itself
            if self.loop.is_closed():  # one that runs again closes it itself, when it reads the end
                _close(info)
        self._opening = self._ending = self._timer = None

    def loop_closed(self) -> None:
        """Called when the loop is closed without having been shut down in an orderly way."""
        if self._timer is None:
            return
        if places := self._places():
            places.forget(self)
        self.cut()

    def inherited(self) -> None:
        """Called in a forked child: close the copies of the sockets. The parent's connections stay as they are."""
        _inherited.extend([self.loop, self._opening, self._ending])
        for info in self._sockets():
            _close(info)
        self._opening = self._ending = self._timer = None

    async def _pool(self) -> Pool:
        if self._opening is None or (self._opening.done() and _opened(self._opening) is None):
            self._opening = asyncio.create_task(self._database.pool(POOL_SIZE))
            if self._ending is None:
                self._ending = self._until_the_loop_ends()
                await anext(self._ending)
        return await asyncio.shield(self._opening)

    async def _until_the_loop_ends(self) -> AsyncGenerator[None, None]:
        # asyncio.run() closes the generators that are left, while the loop can still close connections
        self._timer = weakref.ref(self.loop.call_later(FOR_EVER, _never, _AtClose(self), context=Context()))
        try:
            yield
        finally:
            self._disarm()
            if places := self._places():
                places.forget(self)
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
    """Held by a timer of the loop alone: ``loop.close()`` drops its timers, and with them this."""

    def __init__(self, place: Place) -> None:
        self._place = weakref.ref(place)
        self._process = os.getpid()

    def __del__(self) -> None:
        place = self._place()
        if place is not None and self._process == os.getpid():
            place.loop_closed()


_closing: set[asyncio.Task[None]] = set()


def _forked() -> None:
    global _guard
    _guard = threading.Lock()  # a thread that is not in this process may hold the old one
    for places in list(_all):
        for place in list(places._by_loop.values()):
            place.inherited()
        places._by_loop = {}


def _opened(opening: asyncio.Task[Pool]) -> Pool | None:
    return opening.result() if opening.done() and not opening.cancelled() and opening.exception() is None else None


def _close(info: Any) -> None:
    sock = getattr(info, "_sock", None)  # asyncio lends transports' sockets without their close()
    if sock is not None:
        sock.close()


def _running() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _never(_watch: object) -> None: ...


os.register_at_fork(after_in_child=_forked)
