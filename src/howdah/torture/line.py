"""Line: a wire between the application and its server that can be cut, go dead or be slow.

It reads along just enough to know the role of a connection, which its application name tells: howdah claim, howdah ack,
howdah heartbeat, howdah listen, howdah pool, … So one role can be hurt while the others go on.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Self

Address = tuple[str, int]

STARTUP, REQUEST_TLS = 196_608, 80_877_103
CHUNK = 65_536
COMPLETE, IDLE = b"C\0\0\0", b"Z\0\0\0\x05I"
"""Of PostgreSQL's messages: the head of CommandComplete, and all of ReadyForQuery outside of a transaction."""


@dataclass(eq=False, slots=True)
class Wire:
    """One connection through the line."""

    client: asyncio.StreamWriter
    server: asyncio.StreamWriter
    role: str = ""
    dead: bool = False
    """Nothing arrives any more, in either direction, and nobody is told."""
    mute: bool = False
    """The next answer that says something was done is lost, and the connection with it."""


@dataclass(slots=True)
class Line:
    """Listens on a free port while the block lasts, and forwards to ``to``."""

    to: Address
    delay: float = 0.0
    """Seconds everything takes longer, in each direction."""
    dark: bool = False
    """Nothing arrives, on new connections neither."""
    wires: set[Wire] = field(default_factory=set)
    opened: int = 0
    """Connections so far."""
    _awaited: list[tuple[str, asyncio.Event]] = field(default_factory=list)
    _server: asyncio.Server | None = None
    _talks: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def address(self) -> Address:
        """Where it listens."""
        assert self._server is not None
        host, port = self._server.sockets[0].getsockname()[:2]
        return str(host), int(port)

    def of(self, role: str | None = None) -> list[Wire]:
        """The connections of one role, or all."""
        return [wire for wire in self.wires if role is None or wire.role == role]

    def cut(self, role: str | None = None) -> int:
        """Reset connections; returns how many."""
        wires = self.of(role)
        for wire in wires:
            _reset(wire.client)
            _reset(wire.server)
        return len(wires)

    def kill(self, role: str | None = None) -> int:
        """Let connections go dead, for as long as they last; new ones are alive. Returns how many."""
        wires = self.of(role)
        for wire in wires:
            wire.dead = True
        return len(wires)

    def mute(self, role: str | None = None) -> int:
        """Lose of every connection the next answer that says something was done. Returns how many."""
        wires = self.of(role)
        for wire in wires:
            wire.mute = True
        return len(wires)

    async def answered(self, role: str) -> None:
        """Wait for the next answer to a connection of this role that says something was done."""
        event = asyncio.Event()
        self._awaited.append((role, event))
        try:
            await event.wait()
        finally:
            self._awaited.remove((role, event))

    def heal(self) -> None:
        """Everything passes again; what went dead is cut, as when a firewall comes to its senses."""
        self.dark, self.delay = False, 0.0
        for wire in list(self.wires):
            wire.mute = False
            if wire.dead:
                _reset(wire.client)
                _reset(wire.server)

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        for talk in list(self._talks):
            talk.cancel()
        await asyncio.gather(*self._talks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.opened += 1
        talk = asyncio.create_task(self._talk(reader, writer))
        self._talks.add(talk)
        talk.add_done_callback(self._talks.discard)

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while self.dark:
                await asyncio.sleep(0.05)
            there, back = await asyncio.open_connection(*self.to)
        except OSError:
            _reset(writer)
            return
        wire = Wire(writer, back)
        self.wires.add(wire)
        try:
            await asyncio.gather(self._pump(wire, reader, back, listen=True), self._pump(wire, there, writer))
        finally:
            self.wires.discard(wire)
            for end in (writer, back):
                end.transport.abort()

    async def _pump(
        self, wire: Wire, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, listen: bool = False
    ) -> None:
        with suppress(OSError):
            while data := await source.read(CHUNK):
                if listen and not wire.role:
                    wire.role, listen = _role(data)
                if self.delay:
                    await asyncio.sleep(self.delay)
                while wire.dead or self.dark:
                    await asyncio.sleep(0.05)
                if sink is wire.client and (wire.mute or self._awaited) and _is_done(data):
                    if wire.mute:
                        break
                    for role, event in self._awaited:
                        if wire.role.startswith(role):
                            event.set()
                sink.write(data)
                await sink.drain()
        _reset(sink)


def _is_done(data: bytes) -> bool:
    """Whether a server says that something was done: a command is complete and no transaction open, or by HTTP."""
    return (data.endswith(IDLE) and COMPLETE in data) or data.startswith(b"HTTP/")


def _role(data: bytes) -> tuple[str, bool]:
    """The role in a startup message, and whether to look into the next message too."""
    if len(data) < 8:
        return "", False
    code = struct.unpack_from("!I", data, 4)[0]
    if code == REQUEST_TLS:
        return "", True
    if code != STARTUP:
        return "", False
    words = data[8:].split(b"\0")
    settings = dict(zip(words[::2], words[1::2], strict=False))
    return settings.get(b"application_name", b"").decode(errors="replace").removeprefix("howdah "), False


def _reset(writer: asyncio.StreamWriter) -> None:
    """Close it so that the other end hears of it at once, by a reset."""
    sock = writer.transport.get_extra_info("socket")
    with suppress(OSError):
        if sock is not None and sock.family == socket.AF_INET:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
