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
from howdah_lab.torture import books, guards
from howdah_lab.torture.checker import check
from howdah_lab.torture.crew import Beats, Hand, Workers, environment
from howdah_lab.torture.evidence import Evidence
from howdah_lab.torture.faults import Fault
from howdah_lab.torture.ledger import Pen
from howdah_lab.torture.line import Proxy
from howdah_lab.torture.load import Load
from howdah_lab.torture.recovery import recoveries
from howdah_lab.torture.report import RunReport
from howdah_lab.torture.servers.ports import answers, free_ports
from howdah_lab.torture.site import TortureRun, through
from howdah_lab.torture.stuck import stuck

SCHEMA, YARD = "howdah_torture", "torture"
SETTLE = 60.0
"""Seconds in which everything has to be over after the last fault."""
BREATH = 3.0
"""Seconds of work after the last fault, so that recovery shows."""
LOOK_EVERY, READY = 0.25, 60.0


class Run:
    """One run on one server."""

    def __init__(
        self,
        place: Any,
        faults: Sequence[Fault],
        *,
        folder: Path,
        seconds: float,
        seed: int,
        workers: int = 3,
        agents: int = 1,
        without: str | None = None,
        beats: Beats | None = None,
        settle: float = SETTLE,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._place = place
        self._faults = faults
        self._folder = folder
        self._ledger = folder / "ledger"
        self._seconds = seconds
        self._seed = seed
        self._workers = workers
        self._agents = agents
        self._without = without
        self._beats = beats or Beats()
        self._patience = settle
        self._say = say
        self._database = Database(place.dsn, schema=SCHEMA)
        self._sql = sql.load("howdah_lab.torture", schema=SCHEMA, yard=YARD)
        self._deserters: list[Hand] = []
        self._stubborn: list[Hand] = []
        self._connections = 0
        self._began = time.monotonic()
        self.laid_out = False
        """True if the schemas in the database are those of this run."""

    async def run(self) -> RunReport:
        """Do it all."""
        self._ledger.mkdir(parents=True)
        await self._lay_out()
        async with AsyncExitStack() as stack:
            site = await stack.enter_async_context(self._site())
            stop = asyncio.Event()
            load = asyncio.create_task(site.load.run(stop, self._seconds + BREATH))
            watch = asyncio.create_task(self._watch(site, stop))
            try:
                await self._torture(site, load)
                await self._breathe(site, load)
            except BaseException:
                # The load would wait for a server that is down, and the watch would replace the processes we end.
                load.cancel()
                watch.cancel()
                await asyncio.gather(load, watch, return_exceptions=True)
                raise
            stop.set()
            asked_until = time.monotonic()
            await asyncio.gather(load, watch)
            settled, left = await self._settle(site)
            took = time.monotonic() - asked_until
            await self._dismiss(site)
            return await self._judge(site, settled=settled, left=left, took=took, until=asked_until)

    async def clear(self) -> None:
        """Leave nothing in the database."""
        conn = await self._connect()
        try:
            await conn.execute(self._sql["clear"])
        finally:
            await conn.close()

    async def _lay_out(self) -> None:
        self._say("migrating")
        conn = await self._connect()
        try:
            if await conn.fetchval(self._sql["taken"]):
                raise ConfigError(
                    f"schema {SCHEMA} or {YARD} is there already: another run is going on, or one was killed; in that"
                    f" case: drop schema {SCHEMA} cascade; drop schema {YARD} cascade"
                )
            self.laid_out = True
            await migrate.migrate(self._database)
            await conn.execute(self._sql["open"])
            if self._without in guards.IN_DATABASE:
                await conn.execute(self._sql[f"without_{self._without}"])
        finally:
            await conn.close()

    @asynccontextmanager
    async def _site(self) -> AsyncIterator[TortureRun]:
        """Start all processes and wait until each has worked."""
        [port] = free_ports(1)
        chance = random.Random(self._seed)  # noqa: S311 - a run is to be repeated
        more = {name: value for fault in self._faults for name, value in fault.environment.items()}
        told = environment(YARD, SCHEMA, self._ledger, self._without, more)
        async with Proxy(self._place.address) as line, Proxy(("127.0.0.1", port)) as web:
            for entrance in ("load", "plane"):
                await line.open(entrance)
            database = Database(through(self._place.dsn, line, "load"), schema=SCHEMA)
            pen = Pen(self._ledger)
            load = Load(database, YARD, pen, random.Random(self._seed), longest=1.2 * self._beats.lease)  # noqa: S311
            with Workers(self._folder, told, self._beats) as crew:
                site = TortureRun(
                    self._place, line, web, port, crew, load, self._beats, chance, self._tell, pen, self._sql
                )
                crew.plane(site.plane_dsn, port)
                for _ in range(self._workers):
                    crew.worker(site.dsn)
                await self._ready(site)
                for _ in range(self._agents):
                    crew.agent(site.url)
                yield site

    async def _ready(self, site: TortureRun) -> None:
        """Wait until nodes are registered and the control plane answers."""
        self._say("starting the crew")
        until = time.monotonic() + READY
        conn = await self._connect()
        try:
            while await conn.fetchval(self._sql["nodes"]) < self._workers or not await answers(site.port):
                if time.monotonic() > until or site.crew.look():
                    raise RuntimeError(f"the crew did not start; see {self._folder}")
                await asyncio.sleep(0.1)
        finally:
            await conn.close()

    async def _torture(self, site: TortureRun, load: asyncio.Task[None]) -> None:
        """Hurt it, again and again, until the time is up."""
        end = asyncio.get_running_loop().call_later(self._seconds, site.over.set)
        try:
            while not site.over.is_set():
                fault = site.chance.choice(list(self._faults))
                await site.rest(*fault.pause)
                if site.over.is_set() and site.wounds:
                    break
                site.faults.append(fault.name)
                await fault.hurt(site)
                site.faults.pop()
                if load.done():
                    load.result()
        finally:
            end.cancel()
            site.over.set()

    async def _breathe(self, site: TortureRun, load: asyncio.Task[None]) -> None:
        """Undo everything, and let work go on for a while."""
        site.line.heal()
        site.web.heal()
        site.thaw()
        await self._place.writable(READY)
        self._tell("everything is healed")
        await asyncio.wait({load}, timeout=BREATH)

    async def _watch(self, site: TortureRun, stop: asyncio.Event) -> None:
        """Watch the crew and its memory; a process that exits by itself is recorded and replaced."""
        conn: asyncpg.Connection | None = None
        while not stop.is_set():
            for hand in site.crew.look():
                self._deserters.append(hand)
                self._tell(f"{hand.role} {hand.pid} ended with {hand.process.returncode}")
                site.man(hand)
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

    async def _settle(self, site: TortureRun) -> tuple[bool, str]:
        """Wait until nothing is left to do; returns whether that came, and what is left."""
        until = time.monotonic() + self._patience
        left: dict[str, int] = {}
        conn = await self._connect()
        try:
            while time.monotonic() < until:
                self._deserters += [hand for hand in site.crew.look() if site.man(hand)]
                left = dict(await conn.fetchrow(self._sql["left"]))
                if not any(left.values()):
                    return True, ""
                await asyncio.sleep(0.1)
        finally:
            await conn.close()
        return False, ", ".join(f"{count:,} {what}" for what, count in left.items() if count)

    async def _dismiss(self, site: TortureRun) -> None:
        """Stop all processes; each has to exit."""
        hands = list(site.crew.hands)
        for hand in hands:
            site.crew.tell(hand)
        until = time.monotonic() + self._beats.grace + 10
        while any(hand.alive for hand in hands) and time.monotonic() < until:
            await asyncio.sleep(0.05)
        self._stubborn += [hand for hand in hands if hand.alive or hand.process.returncode]
        site.crew.look()

    async def _judge(self, site: TortureRun, *, settled: bool, left: str, took: float, until: float) -> RunReport:
        conn = await self._connect()
        try:
            kept, entries = await books.read(self._ledger, conn, self._sql)
            unsafe = check(kept)
            evidence = Evidence(site, conn, self._sql, kept, entries)
            for judge in [fault.judge for fault in self._faults if fault.judge is not None]:
                unsafe += await judge(evidence)
        finally:
            await conn.close()
        hands = site.crew.past + site.crew.hands
        gone = {hand.pid for hand in site.crew.past if hand.ended is not None and hand.ended < until}
        recovered = recoveries(entries, site.wounds, gone, until)
        report = RunReport(
            faults=[fault.name for fault in self._faults],
            seed=self._seed,
            seconds=self._seconds,
            without=self._without,
            wounds=site.wounds,
            asked=len(kept.intended),
            accepted=len(kept.acked),
            unknown=len(kept.unknown),
            forgotten=len(kept.forgotten),
            effects=len(kept.effects),
            lost=sum(finding.times for finding in unsafe if finding.lost),
            doubled=sum(finding.times for finding in unsafe if finding.doubled),
            stale=kept.stale,
            recovery=[second for each in recovered for second in each.seconds],
            settled=took,
            memory=max((hand.peak for hand in hands), default=0),
            connections=self._connections,
            unsafe=unsafe,
            stuck=stuck(
                settled=settled,
                left=left,
                recovered=recovered,
                deserters=self._deserters,
                stubborn=self._stubborn,
                hands=hands,
                connections=self._connections,
            ),
            folder=str(self._folder),
        )
        (self._folder / "report.json").write_bytes(msgspec.json.format(msgspec.json.encode(report)))
        return report

    async def _connect(self) -> asyncpg.Connection:
        """A connection past the line, to look."""
        return await asyncpg.connect(
            self._place.direct, timeout=10, command_timeout=60, server_settings={"application_name": "howdah torture"}
        )

    def _tell(self, what: str) -> None:
        """Write a line of the timeline."""
        line = f"{time.monotonic() - self._began:8.2f}  {what}"
        with (self._folder / "timeline").open("a") as file:
            file.write(line + "\n")
        self._say(line)
