"""One run: start all processes, inject faults for a while, let them recover, and check the results."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import msgspec

from howdah.errors import ConfigError
from howdah.postgres import migrate, sql
from howdah.postgres.database import BROKEN, Database
from howdah_lab.torture import guards, history
from howdah_lab.torture.checker import check
from howdah_lab.torture.context import CheckInput, RunContext, through
from howdah_lab.torture.faults import Fault
from howdah_lab.torture.ledger import LedgerWriter
from howdah_lab.torture.liveness import stuck
from howdah_lab.torture.load import Load
from howdah_lab.torture.processes import NodeIntervals, RunProcess, RunProcesses, environment
from howdah_lab.torture.proxy import Proxy
from howdah_lab.torture.recovery import recoveries
from howdah_lab.torture.report import RunReport
from howdah_lab.torture.servers.ports import answers, free_ports

SCHEMA, RUN_SCHEMA = "howdah_torture", "torture"
SETTLE = 60.0
"""Seconds in which everything has to be over after the last fault."""
RECOVERY_TIME = 3.0
"""Seconds of work after the last fault, so that recovery shows."""
LOOK_EVERY, READY = 0.25, 60.0


class Run:
    """One run on one server."""

    def __init__(
        self,
        server: Any,
        faults: Sequence[Fault],
        *,
        folder: Path,
        seconds: float,
        seed: int,
        workers: int = 3,
        agents: int = 1,
        without: str | None = None,
        intervals: NodeIntervals | None = None,
        settle: float = SETTLE,
        print_line: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._server = server
        self._faults = faults
        self._folder = folder
        self._ledger = folder / "ledger"
        self._seconds = seconds
        self._seed = seed
        self._workers, self._agents = workers, agents
        self._without = without
        self._intervals = intervals or NodeIntervals()
        self._settle_timeout = settle
        self._print = print_line
        self._database = Database(server.dsn, schema=SCHEMA)
        self._sql = sql.load("howdah_lab.torture", schema=SCHEMA, run_schema=RUN_SCHEMA)
        self._unexpected_exits: list[RunProcess] = []
        self._failed_stops: list[RunProcess] = []
        self._connections = 0
        self._began = time.monotonic()
        self.schemas_created = False
        """True if the schemas in the database are those of this run."""

    async def run(self) -> RunReport:
        """Do it all."""
        self._ledger.mkdir(parents=True)
        await self._create_schemas()
        async with AsyncExitStack() as stack:
            context = await stack.enter_async_context(self._start_all())
            stop = asyncio.Event()
            load = asyncio.create_task(context.load.run(stop, self._seconds + RECOVERY_TIME))
            watch = asyncio.create_task(self._watch(context, stop))
            try:
                await self._torture(context, load)
                await self._recover(context, load)
            except BaseException:
                # The load would wait for a server that is down, and the watch would replace the processes we end.
                load.cancel()
                watch.cancel()
                await asyncio.gather(load, watch, return_exceptions=True)
                raise
            stop.set()
            asked_until = time.monotonic()
            await asyncio.gather(load, watch)
            settled, left = await self._settle(context)
            took = time.monotonic() - asked_until
            await self._stop_all(context)
            return await self._verify(context, settled=settled, left=left, took=took, until=asked_until)

    async def clear(self) -> None:
        """Leave nothing in the database."""
        conn = await self._connect()
        try:
            await conn.execute(self._sql["clear"])
        finally:
            await conn.close()

    async def _create_schemas(self) -> None:
        self._print("migrating")
        conn = await self._connect()
        try:
            if await conn.fetchval(self._sql["taken"]):
                raise ConfigError(
                    f"schema {SCHEMA} or {RUN_SCHEMA} is there already: another run is going on, or one was killed; in"
                    f" that case: drop schema {SCHEMA} cascade; drop schema {RUN_SCHEMA} cascade"
                )
            self.schemas_created = True
            await migrate.migrate(self._database)
            await conn.execute(self._sql["open"])
            if self._without in guards.IN_DATABASE:
                await conn.execute(self._sql[f"without_{self._without}"])
        finally:
            await conn.close()

    @asynccontextmanager
    async def _start_all(self) -> AsyncIterator[RunContext]:
        """Start all processes and wait until each has worked."""
        [port], intervals = free_ports(1), self._intervals
        chance = random.Random(self._seed)  # noqa: S311 - a run is to be repeated
        more = {name: value for fault in self._faults for name, value in fault.environment.items()}
        variables = environment(RUN_SCHEMA, SCHEMA, self._ledger, self._without, more)
        async with Proxy(self._server.address) as proxy, Proxy(("127.0.0.1", port)) as http:
            for entrance in ("load", "plane"):
                await proxy.open(entrance)
            database = Database(through(self._server.dsn, proxy, "load"), schema=SCHEMA)
            writer = LedgerWriter(self._ledger)
            load = Load(database, RUN_SCHEMA, writer, random.Random(self._seed), longest=1.2 * intervals.lease)  # noqa: S311
            with RunProcesses(self._folder, variables, intervals) as processes:
                context = RunContext(
                    self._server, proxy, http, port, processes, load, intervals, chance, self._log, writer, self._sql
                )
                processes.plane(context.plane_dsn, port)
                for _ in range(self._workers):
                    processes.worker(context.dsn)
                await self._ready(context)
                for _ in range(self._agents):
                    processes.agent(context.url)
                yield context

    async def _ready(self, context: RunContext) -> None:
        """Wait until nodes are registered and the control plane answers."""
        self._print("starting the processes")
        until = time.monotonic() + READY
        conn = await self._connect()
        try:
            while await conn.fetchval(self._sql["nodes"]) < self._workers or not await answers(context.port):
                if time.monotonic() > until or context.processes.poll():
                    raise RuntimeError(f"the processes did not start; see {self._folder}")
                await asyncio.sleep(0.1)
        finally:
            await conn.close()

    async def _torture(self, context: RunContext, load: asyncio.Task[None]) -> None:
        """Inject faults until the time is up."""
        end = asyncio.get_running_loop().call_later(self._seconds, context.over.set)
        try:
            while not context.over.is_set():
                fault = context.chance.choice(list(self._faults))
                await context.rest(*fault.pause)
                if context.over.is_set() and context.injections:
                    break
                context.faults.append(fault.name)
                await fault.inject(context)
                context.faults.pop()
                if load.done():
                    load.result()
        finally:
            end.cancel()
            context.over.set()

    async def _recover(self, context: RunContext, load: asyncio.Task[None]) -> None:
        """Undo all faults, and let work continue for a while."""
        context.proxy.restore()
        context.http_proxy.restore()
        context.thaw()
        await self._server.writable(READY)
        self._log("all faults are undone")
        await asyncio.wait({load}, timeout=RECOVERY_TIME)

    async def _watch(self, context: RunContext, stop: asyncio.Event) -> None:
        """Watch the processes and their memory; a process that exits by itself is recorded and replaced."""
        conn: asyncpg.Connection | None = None
        while not stop.is_set():
            for process in context.processes.poll():
                self._unexpected_exits.append(process)
                self._log(f"{process.role} {process.pid} ended with {process.popen.returncode}")
                context.start_replacement(process)
            try:
                conn = conn or await self._connect()
                open_now = await conn.fetchval(self._sql["connections"], "howdah torture", timeout=2)
                self._connections = max(self._connections, open_now)
            except (*BROKEN, asyncpg.PostgresError):
                if conn is not None:
                    conn.terminate()
                conn = None
            await asyncio.sleep(LOOK_EVERY)
        if conn is not None:
            conn.terminate()

    async def _settle(self, context: RunContext) -> tuple[bool, str]:
        """Wait until nothing is left to do; returns whether that came, and what is left."""
        until = time.monotonic() + self._settle_timeout
        left: dict[str, int] = {}
        conn = await self._connect()
        try:
            while time.monotonic() < until:
                self._unexpected_exits += [each for each in context.processes.poll() if context.start_replacement(each)]
                left = dict(await conn.fetchrow(self._sql["left"]))
                if not any(left.values()):
                    return True, ""
                await asyncio.sleep(0.1)
        finally:
            await conn.close()
        return False, ", ".join(f"{count:,} {what}" for what, count in left.items() if count)

    async def _stop_all(self, context: RunContext) -> None:
        """Stop all processes; each has to exit."""
        processes = list(context.processes.running)
        for process in processes:
            context.processes.stop(process)
        until = time.monotonic() + self._intervals.grace + 10
        while any(process.alive for process in processes) and time.monotonic() < until:
            await asyncio.sleep(0.05)
        self._failed_stops += [process for process in processes if process.alive or process.popen.returncode]
        context.processes.poll()

    async def _verify(self, context: RunContext, *, settled: bool, left: str, took: float, until: float) -> RunReport:
        conn = await self._connect()
        try:
            found, entries = await history.read(self._ledger, conn, self._sql)
            unsafe = check(found)
            results = CheckInput(context, conn, self._sql, found, entries)
            for verify in [fault.verify for fault in self._faults if fault.verify is not None]:
                unsafe += await verify(results)
        finally:
            await conn.close()
        processes = context.processes.past + context.processes.running
        gone = {each.pid for each in context.processes.past if each.ended is not None and each.ended < until}
        recovered = recoveries(entries, context.injections, gone, until)
        report = RunReport(
            faults=[fault.name for fault in self._faults],
            seed=self._seed,
            seconds=self._seconds,
            without=self._without,
            injections=context.injections,
            asked=len(found.intended),
            accepted=len(found.acked),
            unknown=len(found.unknown),
            forgotten=len(found.forgotten),
            effects=len(found.effects),
            lost=sum(finding.times for finding in unsafe if finding.lost),
            doubled=sum(finding.times for finding in unsafe if finding.doubled),
            stale=found.stale,
            recovery=[second for each in recovered for second in each.seconds],
            settled=took,
            memory=max((process.peak for process in processes), default=0),
            connections=self._connections,
            unsafe=unsafe,
            stuck=stuck(
                settled=settled,
                left=left,
                recovered=recovered,
                unexpected_exits=self._unexpected_exits,
                failed_stops=self._failed_stops,
                processes=processes,
                connections=self._connections,
            ),
            folder=str(self._folder),
        )
        (self._folder / "report.json").write_bytes(msgspec.json.format(msgspec.json.encode(report)))
        return report

    async def _connect(self) -> asyncpg.Connection:
        """Connect to the server without the proxy."""
        return await asyncpg.connect(
            self._server.direct, timeout=10, command_timeout=60, server_settings={"application_name": "howdah torture"}
        )

    def _log(self, what: str) -> None:
        """Write a line of the timeline."""
        line = f"{time.monotonic() - self._began:8.2f}  {what}"
        with (self._folder / "timeline").open("a") as file:
            file.write(line + "\n")
        self._print(line)
