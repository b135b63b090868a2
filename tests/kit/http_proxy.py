"""A proxy between a worker and its control plane that breaks what rules tell it to break.

It understands as much HTTP as it must: one request, one answer. Everything that passes is shown to ``watch``.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal, Self

ProxyFault = Literal["lose", "twice", "delay", "dither", "swallow", "cut"]
"""``lose`` the answer after it was given, say the request ``twice``, ``delay`` it, ``dither``: delay and forget it if
whoever asks hangs up meanwhile, ``swallow`` it, or ``cut`` the connection before it is forwarded."""


@dataclass(slots=True)
class Rule:
    """What happens to requests of this form."""

    fault: ProxyFault
    path: str
    """A regular expression that is looked for in the path."""
    method: str = "POST"
    times: int = 1_000_000
    seconds: float = 0.0
    hits: int = 0

    def fits(self, method: str, path: str) -> bool:
        """Whether this request is meant."""
        return self.times > self.hits and method == self.method and re.search(self.path, path) is not None


@dataclass(frozen=True, slots=True)
class Passed:
    """A request and what the control plane answered to it."""

    method: str
    path: str
    body: bytes
    status: int
    answer: bytes
    seen: bool
    """Whether whoever asked has seen the answer."""


@dataclass(slots=True)
class Proxy:
    """Listens on a free port while the block lasts."""

    port: int
    """Of the control plane."""
    watch: Callable[[Passed], None] = lambda _passed: None
    rules: list[Rule] = field(default_factory=list)
    passed: Counter[tuple[str, int]] = field(default_factory=Counter)
    """How often which verb was answered with which status."""
    _server: asyncio.Server | None = None
    _open: asyncio.Event = field(default_factory=asyncio.Event)
    _refusing: bool = False
    _talks: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def url(self) -> str:
        """Where workers find it."""
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def add(
        self, fault: ProxyFault, path: str, *, method: str = "POST", times: int = 1_000_000, seconds: float = 0.0
    ) -> Rule:
        """Break requests of this form from now on; the rule counts its hits."""
        rule = Rule(fault, path, method, times, seconds)
        self.rules.append(rule)
        return rule

    def cut(self) -> None:
        """Break every connection, and refuse new ones."""
        self._refusing = True
        for talk in self._talks:
            talk.cancel()

    def hole(self) -> None:
        """A black hole: connections stay, and nothing arrives. What is on its way arrives after all when it heals."""
        self._open.clear()

    def heal(self) -> None:
        """Everything passes again."""
        self.rules.clear()
        self._refusing = False
        self._open.set()

    async def __aenter__(self) -> Self:
        self._open.set()
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        await asyncio.gather(*self._talks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        talk = asyncio.create_task(self._talk(End(reader, writer)))
        self._talks.add(talk)
        talk.add_done_callback(self._talks.discard)

    async def _talk(self, client: End) -> None:
        server: End | None = None
        try:
            while not self._refusing and (request := await client.message()) is not None:
                if server is None:
                    server = End(*await asyncio.open_connection("127.0.0.1", self.port))
                await self._open.wait()
                await self._pass(request, client, server)
        except (OSError, EOFError, ConnectionEnded):
            pass
        finally:
            client.close()
            if server is not None:
                server.close()

    async def _pass(self, request: Message, client: End, server: End) -> None:
        method, path, _ = request.first.split(" ", 2)
        rule = next((rule for rule in self.rules if rule.fits(method, path)), None)
        if rule is not None:
            rule.hits += 1
            await self._before(rule, client)
        answer = await self._ask(request, client, server)
        if rule is not None and rule.fault == "twice":
            self._note(request, answer, seen=False)
            answer = await self._ask(request, client, server)
        await self._open.wait()
        lost = rule is not None and rule.fault == "lose"
        self._note(request, answer, seen=not lost)
        if lost:
            raise ConnectionEnded
        client.writer.write(answer.raw)
        await client.writer.drain()

    async def _before(self, rule: Rule, client: End) -> None:
        if rule.fault == "delay":
            await asyncio.sleep(rule.seconds)
        elif rule.fault == "dither":
            with suppress(TimeoutError):
                await asyncio.wait_for(client.gone(), rule.seconds)
                raise ConnectionEnded
        elif rule.fault == "swallow":
            await client.gone()
        elif rule.fault == "cut":
            raise ConnectionEnded

    async def _ask(self, request: Message, client: End, server: End) -> Message:
        server.writer.write(request.raw)
        answering = asyncio.create_task(server.message())
        leaving = asyncio.create_task(client.gone())
        try:
            await asyncio.wait({answering, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if answering.done() and (answer := answering.result()) is not None:
                return answer
            raise ConnectionEnded
        finally:
            for task in (answering, leaving):
                task.cancel()
                with suppress(BaseException):
                    await task

    def _note(self, request: Message, answer: Message, *, seen: bool) -> None:
        method, path, _ = request.first.split(" ", 2)
        status = int(answer.first.split(" ", 2)[1])
        parts = path.split("/")
        self.passed[parts[3] if len(parts) > 3 else parts[-1], status] += 1
        self.watch(Passed(method, path, request.body, status, answer.body, seen))


class ConnectionEnded(Exception):
    """A connection shall end, or has ended."""


@dataclass(frozen=True, slots=True)
class Message:
    """A request or an answer."""

    first: str
    raw: bytes
    body: bytes


class End:
    """One end of the line."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        self._reader = reader
        self._data = b""

    async def message(self) -> Message | None:
        """The next request or answer; ``None``: there will be none."""
        while b"\r\n\r\n" not in self._data:
            if not await self._more():
                return None
        head, _, self._data = self._data.partition(b"\r\n\r\n")
        found = re.search(rb"(?im)^content-length:\s*([0-9]+)", head)
        length = int(found[1]) if found else 0
        while len(self._data) < length:
            if not await self._more():
                return None
        body, self._data = self._data[:length], self._data[length:]
        return Message(head.split(b"\r\n", 1)[0].decode(), head + b"\r\n\r\n" + body, body)

    async def gone(self) -> None:
        """Return when the other end has hung up."""
        while await self._more():
            pass

    def close(self) -> None:
        """Hang up at once."""
        if (transport := self.writer.transport) is not None:
            transport.abort()

    async def _more(self) -> bool:
        data = await self._reader.read(65536)
        self._data += data
        return bool(data)
