"""Environment of a run: everything a fault can act on."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from howdah_lab.torture.history import History
from howdah_lab.torture.injection import Injection, RecoverySign
from howdah_lab.torture.ledger import LedgerEntry, LedgerWriter
from howdah_lab.torture.load import Load
from howdah_lab.torture.processes import NodeIntervals, RunProcess, RunProcesses
from howdah_lab.torture.proxy import Proxy
from howdah_lab.torture.release import RELEASE


@dataclass(slots=True)
class RunContext:
    """A server, the proxies in front of it, the processes that work on it, and their load."""

    server: Any
    """The PostgreSQL; see ``servers``."""
    proxy: Proxy
    """Proxy between all processes and PostgreSQL."""
    http_proxy: Proxy
    """Between workers without a database and their control plane."""
    port: int
    """Of the control plane itself."""
    processes: RunProcesses
    load: Load
    intervals: NodeIntervals
    chance: random.Random
    log: Callable[[str], None]
    ledger_writer: LedgerWriter
    sql: Mapping[str, str]
    """The statements of ``howdah_lab.torture``."""
    injections: list[Injection] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    """Faults in progress, by name."""
    over: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def dsn(self) -> str:
        """DSN of the database, through the proxy."""
        return through(self.server.dsn, self.proxy)

    @property
    def plane_dsn(self) -> str:
        """DSN of the database, through the port of the proxy that only the control plane uses."""
        return through(self.server.dsn, self.proxy, "plane")

    @property
    def url(self) -> str:
        """URL of the control plane, through its proxy."""
        host, port = self.http_proxy.address
        return f"http://{host}:{port}"

    def record_injection(
        self,
        did: str,
        *processes: RunProcess,
        shows: RecoverySign = "none",
        sign: str = "start",
        within: float = 0.0,
    ) -> Injection:
        """Record a fault that is injected now."""
        injection = Injection(
            self.faults[-1] if self.faults else "",
            did,
            time.monotonic(),
            pids=[process.pid for process in processes],
            shows=shows,
            sign=sign,
            within=within,
        )
        self.injections.append(injection)
        self.log(did)
        return injection

    def record_undone(self, injection: Injection) -> None:
        """Record that a fault is undone now."""
        injection.undone = time.monotonic()
        self.log(f"{injection.did}: over")

    def start_replacement(self, process: RunProcess) -> RunProcess:
        """Start a process in the role of one that has exited."""
        if process.role == "worker":
            return self.worker(process.release)
        if process.role == "plane":
            return self.processes.plane(self.plane_dsn, self.port)
        return self.processes.agent(self.url)

    def worker(self, release: str = "") -> RunProcess:
        """Start a node with a database, of this release if there are releases."""
        return self.processes.worker(self.dsn, **({RELEASE: release} if release else {}))

    async def replace(self, process: RunProcess) -> None:
        """Start a process in the role of another, and wait until it works, so that its jobs are taken over."""
        await self.wait_until_started(self.start_replacement(process))

    async def wait_until_started(self, other: RunProcess) -> None:
        """Wait until a started process works, exits, or the run is over."""
        while not self.processes.has_started(other) and other.alive and not self.over.is_set():
            await asyncio.sleep(0.05)

    def pick(self, *roles: Any) -> RunProcess | None:
        """Return a random running process in these roles; None if there is none."""
        processes = self.processes.of(*roles)
        return self.chance.choice(processes) if processes else None

    async def rest(self, least: float, most: float) -> None:
        """Let some time pass, or the run be over."""
        try:
            async with asyncio.timeout(self.chance.uniform(least, most)):
                await self.over.wait()
        except TimeoutError:
            pass

    def thaw(self) -> None:
        """Thaw all frozen processes."""
        for process in self.processes.running:
            if process.frozen:
                self.processes.signal(process, signal.SIGCONT)


def through(dsn: str, proxy: Proxy, by: str = "") -> str:
    """Return the DSN through a proxy, or through one of its ports."""
    parts = urlsplit(dsn)
    host, port = proxy.entrance(by)
    credentials, at, _ = parts.netloc.rpartition("@")
    return urlunsplit(parts._replace(netloc=f"{credentials}{at}{host}:{port}"))


@dataclass(frozen=True, slots=True)
class CheckInput:
    """History of a run, and a connection to read further tables. All processes have exited."""

    context: RunContext
    conn: asyncpg.Connection
    sql: Mapping[str, str]
    history: History
    entries: Sequence[LedgerEntry]
