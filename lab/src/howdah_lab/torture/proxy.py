"""TCP proxy between the application and its server that can reset, block or delay connections.

It reads along just enough to know the role of a connection, which its application name tells: howdah claim, howdah ack,
howdah heartbeat, howdah listen, howdah pool, … So a fault can hit one role while the others work. It also knows which
statements a transaction consisted of, so that something can be done at the moment after one of them was answered.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Self

from howdah_lab.torture.postgres_messages import ClientMessages

Address = tuple[str, int]

CHUNK = 65_536
COMPLETE, READY, IDLE = b"C\0\0\0", b"Z\0\0\0\x05", b"Z\0\0\0\x05I"
"""Of PostgreSQL's messages: the heads of CommandComplete and ReadyForQuery, and the latter outside of a transaction."""
SUSPENDED = b"s\0\0\0\x04"
"""PortalSuspended: instead of CommandComplete when the client asked for one row and got it."""
FLUSH = b"H\0\0\0\x04"
"""The message that ends a request to prepare a statement; nothing is done before the next."""
QUIET = 0.3
"""Seconds for others to be answered before a transaction has the server for itself."""
ALONE = 1.0
"""Seconds a transaction whose answer is waited for has the server for itself, at most."""
TURN = 0.002
"""Seconds between two looks whether others may go on."""


@dataclass(eq=False, slots=True)
class ProxiedConnection:
    """One connection through the line."""

    client: asyncio.StreamWriter
    server: asyncio.StreamWriter
    by: str = ""
    """The entrance it came through; see :meth:`Proxy.open`."""
    messages: ClientMessages = field(default_factory=ClientMessages)
    dead: bool = False
    """True if no data passes any more in either direction, although the connection stays open."""
    mute: str | None = None
    """The next answer that says that a statement that begins like this was done is lost, and the connection with it."""
    asks: bool = False
    """True if the server has not answered yet."""

    @property
    def role(self) -> str:
        """The role in its application name."""
        return self.messages.role


@dataclass(eq=False, slots=True)
class AwaitedReply:
    """An answer that is waited for."""

    role: str
    by: str | None
    statement: str
    first: Callable[[], Awaitable[object]] | None
    came: asyncio.Event = field(default_factory=asyncio.Event)

    def may_come(self, connection: ProxiedConnection) -> bool:
        """Return whether the answer can be to this connection."""
        return (
            connection.role == self.role
            and self.by in (None, connection.by)
            and connection.messages.executed(self.statement)
        )

    def is_it(self, connection: ProxiedConnection, data: bytes) -> bool:
        """Return whether these bytes, which say that something was done, are that answer."""
        return self.may_come(connection) and (not self.statement or _has_effect(data))


@dataclass(slots=True)
class Proxy:
    """Listens on a free port while the block lasts, and forwards to ``to``."""

    to: Address
    delay: float = 0.0
    """Seconds everything takes longer, in each direction."""
    dark: bool = False
    """Nothing arrives, on new connections neither."""
    connections: set[ProxiedConnection] = field(default_factory=set)
    opened: int = 0
    """Connections so far."""
    _awaited: list[AwaitedReply] = field(default_factory=list)
    _alone: ProxiedConnection | None = None
    _alone_until: float = 0.0
    _servers: dict[str, asyncio.Server] = field(default_factory=dict)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def address(self) -> Address:
        """Where it listens."""
        return self.entrance("")

    def entrance(self, by: str) -> Address:
        """Where clients of this name connect; see :meth:`open`."""
        host, port = self._servers[by].sockets[0].getsockname()[:2]
        return str(host), int(port)

    async def open(self, by: str) -> None:
        """Listen on another port, too, and remember of its connections that they came ``by`` that entrance."""
        self._servers[by] = await asyncio.start_server(partial(self._accept, by), "127.0.0.1", 0)

    def of(self, role: str | None = None) -> list[ProxiedConnection]:
        """The connections of one role, or all."""
        return [connection for connection in self.connections if role is None or connection.role == role]

    def cut(self, role: str | None = None) -> int:
        """Reset connections; returns how many."""
        connections = self.of(role)
        for connection in connections:
            _reset(connection.client)
            _reset(connection.server)
        return len(connections)

    def kill(self, role: str | None = None) -> int:
        """Let connections go dead, for as long as they last; new ones are alive. Returns how many."""
        connections = self.of(role)
        for connection in connections:
            connection.dead = True
        return len(connections)

    def mute(self, role: str | None = None, *, statement: str = "") -> int:
        """Lose of every connection the next answer that says something was done. Returns how many.

        ``statement``: only when a statement was done that begins like this.
        """
        connections = self.of(role)
        for connection in connections:
            connection.mute = statement
        return len(connections)

    async def answered(
        self,
        role: str,
        *,
        by: str | None = None,
        statement: str = "",
        first: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        """Wait for the next answer to a connection of this role that says something was done.

        ``by``: only through this entrance. ``statement``: only when a transaction is over in which a statement began
        with this; it has to be committed, or have found something. Such a transaction has the server for itself, so
        that no commit of another one writes to the disk what its own did not; ``first`` is done right before it.
        """
        awaited = AwaitedReply(role, by, statement, first)
        self._awaited.append(awaited)
        try:
            await awaited.came.wait()
        finally:
            self._awaited.remove(awaited)
            self._alone = None

    def restore(self) -> None:
        """Everything passes again; what went dead is cut, as when a firewall drops its state."""
        self.dark, self.delay = False, 0.0
        for connection in list(self.connections):
            connection.mute = None
            if connection.dead:
                _reset(connection.client)
                _reset(connection.server)

    async def __aenter__(self) -> Self:
        await self.open("")
        return self

    async def __aexit__(self, *_: object) -> None:
        for server in self._servers.values():
            server.close()
        self.cut()
        for messages in list(self._tasks):
            messages.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, by: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.opened += 1
        messages = asyncio.create_task(self._serve(by, reader, writer))
        self._tasks.add(messages)
        messages.add_done_callback(self._tasks.discard)

    async def _serve(self, by: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while self.dark:
                await asyncio.sleep(0.05)
            there, back = await asyncio.open_connection(*self.to)
        except OSError:
            _reset(writer)
            return
        connection = ProxiedConnection(writer, back, by)
        self.connections.add(connection)
        try:
            await asyncio.gather(self._pump(connection, reader, back), self._pump(connection, there, writer))
        finally:
            self.connections.discard(connection)
            if self._alone is connection:
                self._alone = None
            for end in (writer, back):
                end.transport.abort()

    async def _pump(
        self, connection: ProxiedConnection, source: asyncio.StreamReader, sink: asyncio.StreamWriter
    ) -> None:
        with suppress(OSError):
            while data := await source.read(CHUNK):
                if sink is connection.server:
                    connection.messages.feed(data)
                    if self._awaited:
                        await self._turn(connection)
                    connection.asks = not data.endswith(FLUSH)
                if self.delay:
                    await asyncio.sleep(self.delay)
                while connection.dead or self.dark:
                    await asyncio.sleep(0.05)
                if sink is connection.client and self._is_lost(connection, data):
                    break
                sink.write(data)
                await sink.drain()
        _reset(sink)

    def _is_lost(self, connection: ProxiedConnection, data: bytes) -> bool:
        """Take note of what a server says; returns whether it is not to arrive."""
        if _is_done(data):
            mute = connection.mute
            if mute == "" or (mute and connection.messages.executed(mute)):
                return True
            for awaited in self._awaited:
                if awaited.is_it(connection, data):
                    awaited.came.set()
        if data[-len(IDLE) : -1] == READY:
            connection.asks = False
        if data.endswith(IDLE):
            connection.messages.end_transaction()
            if self._alone is connection and not any(awaited.came.is_set() for awaited in self._awaited):
                self._alone = None
        return False

    async def _turn(self, connection: ProxiedConnection) -> None:
        """Wait while another connection has the server for itself; have it if the answer to this one is waited for."""
        while self._alone not in (None, connection) and time.monotonic() < self._alone_until:
            await asyncio.sleep(TURN)
        mine = [each for each in self._awaited if each.statement and each.may_come(connection)]
        if self._alone is not connection and mine:
            quiet = time.monotonic() + QUIET
            self._alone, self._alone_until = connection, quiet + ALONE
            while any(other.asks for other in self.connections - {connection}) and time.monotonic() < quiet:
                await asyncio.sleep(TURN)
            for each in mine:
                if each.first is not None:
                    await each.first()


def _is_done(data: bytes) -> bool:
    """True if a server says that something was done: a command is complete and no transaction open, or by HTTP."""
    return (data.endswith(IDLE) and (COMPLETE in data or SUSPENDED in data)) or data.startswith(b"HTTP/")


def _has_effect(data: bytes) -> bool:
    """Return whether the last command of an answer was a commit, or was about rows and there were some."""
    if COMPLETE not in data:
        return True  # a row was asked for
    tag = data[data.rindex(COMPLETE) + len(COMPLETE) + 1 :].partition(b"\0")[0]
    return tag == b"COMMIT" or (tag[-1:].isdigit() and not tag.endswith(b" 0"))


def _reset(writer: asyncio.StreamWriter) -> None:
    """Close it by a reset, so that the other end notices at once."""
    sock = writer.transport.get_extra_info("socket")
    with suppress(OSError):
        if sock is not None and sock.family == socket.AF_INET:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
