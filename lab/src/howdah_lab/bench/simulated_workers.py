"""Simulated workers, very many in one process: they speak the protocol and run no handlers."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Any, Self, cast

import msgspec

from howdah.errors import HowdahError
from howdah.remote import messages as m

HEARTBEAT = 30.0
WAIT = 25.0
AT_ONCE = 50
"""Workers that register at the same time."""


class WorkerConnection(asyncio.Protocol):
    """One connection: one request, one answer, as cheap as Python can."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._data = bytearray()
        self._answer: asyncio.Future[tuple[int, bytes]] | None = None

    @classmethod
    async def to(cls, port: int) -> Self:
        """A connection to this machine."""
        _, connection = await asyncio.get_running_loop().create_connection(cls, "127.0.0.1", port)
        return connection

    async def ask(self, request: bytes) -> tuple[int, bytes]:
        """Return the status and the body of the response."""
        assert self._transport is not None
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return await self._answer

    def close(self) -> None:
        """Close the connection."""
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called when the connection is open."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Called with a part of a response."""
        self._data += data
        end = self._data.find(b"\r\n\r\n")
        if end < 0:
            return
        head = bytes(self._data[:end]).lower()
        at = head.find(b"content-length: ")
        length = int(head[at + 16 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
        if len(self._data) < end + 4 + length:
            return
        body = bytes(self._data[end + 4 : end + 4 + length])
        del self._data[: end + 4 + length]
        if self._answer is not None and not self._answer.done():
            self._answer.set_result((int(head[9:12]), body))

    def connection_lost(self, exc: Exception | None) -> None:
        """Called when the server closed the connection."""
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(HowdahError(f"the control plane hung up: {exc}"))


class ReportableJob(msgspec.Struct):
    """The fields of a job that its report needs."""

    id: int
    token: int
    attempt: int
    args: msgspec.Raw


class ClaimAnswer(msgspec.Struct):
    """The answer to a claim."""

    jobs: list[ReportableJob]


class SimulatedWorker:
    """One worker: a connection to work through, and one for its heartbeat."""

    def __init__(self, work: WorkerConnection, heartbeats: WorkerConnection, joined: m.RegisterResponse) -> None:
        self._work = work
        self._heartbeats = heartbeats
        self._joined = joined

    @classmethod
    async def join(cls, port: int, token: str, kinds: list[str]) -> SimulatedWorker:
        """Register."""
        work, heartbeats = await WorkerConnection.to(port), await WorkerConnection.to(port)
        body = msgspec.json.encode(m.RegisterRequest(hostname="bench", kinds=kinds, slots=100))
        status, answer = await work.ask(_request("/workers/register", token, body))
        if status != 201:
            raise HowdahError(f"registering was answered with {status}: {answer[:200].decode()}")
        return cls(work, heartbeats, msgspec.json.decode(answer, type=m.RegisterResponse))

    def close(self) -> None:
        """Close the connections without deregistering."""
        self._work.close()
        self._heartbeats.close()

    async def beat(self) -> None:
        """Send heartbeats, not in step with the other workers."""
        request = self._request("heartbeat", b"{}")
        await asyncio.sleep(random.uniform(0, HEARTBEAT))  # noqa: S311
        while True:
            self._must(200, await self._heartbeats.ask(request))
            await asyncio.sleep(HEARTBEAT)

    async def work(
        self, batch: int, took: Callable[[list[ReportableJob]], None], settled: Callable[[list[ReportableJob]], None]
    ) -> None:
        """Claim jobs and report them done in a loop; calls back on arrival and when the outcome is recorded."""
        wait = WAIT * random.uniform(0.8, 1.0)  # noqa: S311 - as real workers do
        claim = self._request("claim", b'{"max":%d,"wait":%g}' % (batch, wait))
        while True:
            status, body = await self._work.ask(claim)
            if status == 204:
                continue
            self._must(200, (status, body))
            jobs = msgspec.json.decode(body, type=ClaimAnswer).jobs
            took(jobs)
            reports: list[dict[str, Any]] = [
                {"id": job.id, "token": job.token, "attempt": job.attempt, "outcome": "ok", "took": 1} for job in jobs
            ]
            message = {"acks": reports, "finished": list({job.token for job in jobs})}
            answer = self._must(200, await self._work.ask(self._request("ack", msgspec.json.encode(message))))
            if answer.count(b'"ok"') != len(jobs):
                raise HowdahError("a report was not accepted")
            settled(jobs)

    def _request(self, verb: str, body: bytes) -> bytes:
        return _request(f"/workers/{self._joined.id}/{verb}", self._joined.credential, body)

    def _must(self, wanted: int, answer: tuple[int, bytes]) -> bytes:
        status, body = answer
        if status != wanted:
            raise HowdahError(f"the control plane answered {status}: {body[:200].decode(errors='replace')}")
        return body


class SimulatedWorkers:
    """Workers of one kind, running inside the block. :meth:`check` raises if one has failed."""

    def __init__(self, port: int, token: str, *, nodes: int, kind: str, batch: int) -> None:
        self._port = port
        self._token = token
        self._count = nodes
        self._kind = kind
        self._batch = batch
        self._stack = ExitStack()
        self._tasks: list[asyncio.Task[None]] = []
        self.taken = 0
        """Jobs that came."""
        self.settled = 0
        """Jobs whose outcome is recorded."""
        self.last = 0.0
        """When it last was, on the monotonic clock."""
        self.delays: list[float] = []
        """Seconds from the enqueue call to the arrival, of every probe."""

    async def __aenter__(self) -> Self:
        gate = asyncio.Semaphore(AT_ONCE)

        async def join() -> SimulatedWorker:
            async with gate:
                node = await SimulatedWorker.join(self._port, self._token, [self._kind])
                self._stack.callback(node.close)
                return node

        try:
            nodes = await asyncio.gather(*(join() for _ in range(self._count)))
        except BaseException:
            self._stack.close()
            raise
        for node in nodes:
            self._tasks += [
                asyncio.create_task(node.beat(), name="bench beat"),
                asyncio.create_task(node.work(self._batch, self._take, self._settle), name="bench work"),
            ]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._stack.close()

    def check(self) -> None:
        """Raise the error of a failed worker."""
        for task in self._tasks:
            if task.done():
                with suppress(asyncio.CancelledError):
                    task.result()

    def _take(self, jobs: list[ReportableJob]) -> None:
        self.taken += len(jobs)
        if self._kind == "probe":
            self.delays += [time.monotonic() - msgspec.json.decode(job.args)["began"] for job in jobs]

    def _settle(self, jobs: list[ReportableJob]) -> None:
        self.settled += len(jobs)
        self.last = time.monotonic()


def _request(path: str, bearer: str, body: bytes) -> bytes:
    head = (
        f"POST {path} HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {bearer}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body
