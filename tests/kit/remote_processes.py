"""A control plane and remote nodes, each a process of its own, to be killed, frozen and cut off.

``python -m kit.remote_processes plane`` runs the control plane, ``python -m kit.remote_processes agent`` a node.
Options are environment variables. Handlers write what they do to a file that several processes append to.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

from howdah import Backoff, Howdah, WorkerOptions, current_job
from howdah.control_plane.job_queue import RemoteJobQueue
from howdah.control_plane.options import ServeOptions
from howdah.control_plane.server import ControlPlaneServer
from howdah.outcome import Ack
from howdah.remote import messages as m
from howdah.remote.client import ControlPlaneClient
from howdah.remote.node import RemoteNode
from howdah.worker.worker import Worker
from kit.serve_process import free_port

LEASE = 3.0
HEARTBEAT = 0.5
SLOTS = 8

app = Howdah()


@app.task(max_attempts=50)
async def mark(n: int, pause: float = 0.0) -> None:
    """Leaves a mark when it starts and when it ends; nothing is left to say of it."""
    await _leave_marks(n, pause)


@app.task(max_attempts=50)
async def count(n: int, pause: float = 0.0) -> int:
    """The same, with a result."""
    await _leave_marks(n, pause)
    return n


@app.task(max_attempts=50, retry=Backoff(first=0.1))
async def stumble(n: int, pause: float = 0.0) -> None:
    """The same, and the first time it fails."""
    await _leave_marks(n, pause)
    if current_job().attempt == 1:
        raise ValueError("on purpose")


@app.task(max_attempts=50)
async def freeze(n: int) -> None:
    """Freezes its own process, the first time."""
    _write("begin", n)
    if current_job().attempt == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    _write("end", n)


async def _leave_marks(n: int, pause: float) -> None:
    _write("begin", n)
    await asyncio.sleep(pause)
    _write("end", n)


class Mark(NamedTuple):
    """A line of the file."""

    at: float
    """On the monotonic clock, which is one for all processes of a machine."""
    what: str
    n: int
    job: int
    attempt: int
    token: int
    pid: int


def _write(what: str, n: int) -> None:
    job = current_job()
    line = f"{time.monotonic()} {what} {n} {job.id} {job.attempt} {job.token} {os.getpid()}\n"
    file = os.open(os.environ["MARKS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(file, line.encode())
    finally:
        os.close(file)


def marks(path: Path) -> list[Mark]:
    """All that was written, in order."""
    lines = path.read_text().splitlines() if path.exists() else []
    return [Mark(float(at), what, *map(int, rest)) for at, what, *rest in map(str.split, lines)]


class RemoteProcesses:
    """A control plane and remote nodes as processes; when the block ends none is left."""

    def __init__(self, dsn: str, token: str, path: Path) -> None:
        self._dsn = dsn
        self._token = token
        self._path = path
        self._processes: list[subprocess.Popen[bytes]] = []
        self.port = free_port()

    def plane(self, **switches: str) -> subprocess.Popen[bytes]:
        """Start a control plane; it is always found at the same port."""
        return self._start("plane", HOWDAH_DSN=self._dsn, PORT=str(self.port), **switches)

    def agent(self, url: str, **switches: str) -> subprocess.Popen[bytes]:
        """Start a worker; it has no database."""
        return self._start("agent", SERVER=url, TOKEN=self._token, MARKS=str(self._path), **switches)

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        """End one at once."""
        process.kill()
        process.wait()
        self._processes.remove(process)

    async def ready(self, seconds: float = 20.0) -> None:
        """Wait until the control plane listens."""
        until = time.monotonic() + seconds
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", self.port)
            except OSError:
                assert time.monotonic() < until, "the control plane did not start"
                await asyncio.sleep(0.05)
            else:
                writer.close()
                return

    def _start(self, role: str, **switches: str) -> subprocess.Popen[bytes]:
        own = {name: value for name, value in os.environ.items() if not name.startswith(("HOWDAH_", "PG"))}
        environment = {**own, "PYTHONPATH": str(Path(__file__).parents[1]), **switches}
        process = subprocess.Popen([sys.executable, "-m", "kit.remote_processes", role], env=environment)
        self._processes.append(process)
        return process

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait()


# ---------------------------------------------------------------- the processes


async def serve() -> None:
    """A control plane."""
    if os.environ.get("UNFENCED"):
        RemoteJobQueue.ack = _ack_unfenced  # type: ignore[method-assign]
    options = ServeOptions(port=int(os.environ["PORT"]), heartbeat=HEARTBEAT, offline_after=LEASE, rate=10_000)
    server = ControlPlaneServer(app, options)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, server.stop)
    await server.run()


async def work() -> None:
    """A worker without a database."""
    if os.environ.get("HEEDLESS"):  # it does not hear that its leases are lost
        Worker.lose = Worker.lose_jobs = Worker.cancel = lambda *_: None  # type: ignore[method-assign]
    server, token = os.environ["SERVER"], os.environ["TOKEN"]
    remote_node = RemoteNode(app, WorkerOptions(slots=SLOTS, grace=5), lambda: ControlPlaneClient(server, token))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, remote_node.stop)
    await remote_node.run()


async def _ack_unfenced(self: Any, node: int, acks: Sequence[Ack], _finished: Sequence[int]) -> list[Ack]:
    """Record every report, whichever worker holds the lease: the fault that the fence prevents."""
    for ack in acks:
        await self._shared.acks.fetch(
            "insert into howdah.done (id, attempt, state, node) values ($1, $2, 'd', $3) on conflict do nothing",
            ack.job.id,
            ack.job.attempt,
            node,
        )
    return list(acks)


class Reported(NamedTuple):
    """One report on one attempt, as it passed the proxy."""

    node: int
    id: int
    token: int
    outcome: str
    accepted: str | None
    """As what it was accepted, if it was."""


def reports(path: str, body: bytes, answer: bytes) -> list[Reported]:
    """What a batch of reports came to."""
    request = m.msgspec.json.decode(body, type=m.AckRequest)
    accepted = {
        (each.id, each.token): each.outcome for each in m.msgspec.json.decode(answer, type=m.AckResponse).accepted
    }
    node = int(path.split("/")[2])
    return [
        Reported(node, int(each.id), each.token, each.outcome, accepted.get((each.id, each.token)))
        for each in request.acks
    ]


if __name__ == "__main__":
    from kit import remote_processes

    remote_processes.app.connect_to(os.environ.get("HOWDAH_DSN", "postgresql://nowhere/none"))
    asyncio.run(remote_processes.serve() if sys.argv[1] == "plane" else remote_processes.work())
