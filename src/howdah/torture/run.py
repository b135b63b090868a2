"""Run: bring everything up, hurt it for a while, let it heal, and read the books."""

from __future__ import annotations

import asyncio
import random
import socket
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import asyncpg
import msgspec

from howdah.errors import ConfigError
from howdah.pg import migrate, sql
from howdah.pg.database import BROKEN, Database
from howdah.torture import books, guards
from howdah.torture.checker import check
from howdah.torture.crew import Beats, Crew, Hand, environment
from howdah.torture.evidence import Evidence
from howdah.torture.faults import Fault
from howdah.torture.ledger import Pen
from howdah.torture.line import Line
from howdah.torture.load import Load
from howdah.torture.recovery import recoveries
from howdah.torture.report import Report
from howdah.torture.servers.ports import free_ports
from howdah.torture.site import Site, through
from howdah.torture.stuck import stuck

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
        self._seconds = seconds
        self._seed = seed
        self._workers = workers
        self._agents = agents
        self._without = without
        self._beats = beats or Beats()
        self._patience = settle
        self._say = say
        self._database = Database(place.dsn, schema=SCHEMA)
        self._sql = sql.load("howdah.torture", schema=SCHEMA, yard=YARD)
        self._deserters: list[Hand] = []
        self._stubborn: list[Hand] = []
        self._connections = 0
        self._began = time.monotonic()

    async def run(self) -> Report:
        """Do it all."""
        ledger = self._folder / "ledger"
        ledger.mkdir(parents=True)
        await self._lay_out()
        async with AsyncExitStack() as stack:
            site = await stack.enter_async_context(self._site(ledger))
            stop = asyncio.Event()
            load = asyncio.create_task(site.load.run(stop, self._seconds + BREATH))
            watch = asyncio.create_task(self._watch(site, stop))
            try:
                await self._torture(site, load)
                await self._breathe(site, load)
            finally:
                stop.set()
                asked_until = time.monotonic()
                await asyncio.gather(load, watch)
            settled, left = await self._settle(site)
            took = time.monotonic() - asked_until
            await self._dismiss(site)
            return await self._judge(site, ledger, settled=settled, left=left, took=took, until=asked_until)

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
            await migrate.migrate(self._database)
            await conn.execute(self._sql["open"])
            if self._without in guards.IN_DATABASE:
                await conn.execute(self._sql[f"without_{self._without}"])
        finally:
            await conn.close()

    @asynccontextmanager
    async def _site(self, ledger: Path) -> AsyncIterator[Site]:
        """Everybody at work, and seen to work."""
        [port] = free_ports(1)
        chance = random.Random(self._seed)  # noqa: S311 - a run is to be repeated
        more = {name: value for fault in self._faults for name, value in fault.environment.items()}
        told = environment(YARD, SCHEMA, ledger, self._without, more)
        async with Line(self._place.address) as line, Line(("127.0.0.1", port)) as web:
            for entrance in ("load", "plane"):
                await line.open(entrance)
            database = Database(through(self._place.dsn, line, "load"), schema=SCHEMA)
            pen = Pen(ledger)
            load = Load(database, YARD, pen, random.Random(self._seed), longest=1.2 * self._beats.lease)  # noqa: S311
            with Crew(self._folder, told, self._beats) as crew:
                site = Site(self._place, line, web, port, crew, load, self._beats, chance, self._tell, pen, self._sql)
                crew.plane(site.plane_dsn, port)
                for _ in range(self._workers):
                    crew.worker(site.dsn)
                await self._ready(site)
                for _ in range(self._agents):
                    crew.agent(site.url)
                yield site

    async def _ready(self, site: Site) -> None:
        """Wait until nodes are registered and the control plane listens."""
        self._say("starting the crew")
        until = time.monotonic() + READY
        conn = await self._connect()
        try:
            while await conn.fetchval(self._sql["nodes"]) < self._workers or not _listens(site.port):
                if time.monotonic() > until or site.crew.look():
                    raise RuntimeError(f"the crew did not start; see {self._folder}")
                await asyncio.sleep(0.1)
        finally:
            await conn.close()

    async def _torture(self, site: Site, load: asyncio.Task[None]) -> None:
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

    async def _breathe(self, site: Site, load: asyncio.Task[None]) -> None:
        """Undo everything, and let work go on for a while."""
        site.line.heal()
        site.web.heal()
        site.thaw()
        await self._place.writable(READY)
        self._tell("everything is healed")
        await asyncio.wait({load}, timeout=BREATH)

    async def _watch(self, site: Site, stop: asyncio.Event) -> None:
        """Look after the crew, and at what it takes; whoever ends by itself is replaced, and remembered."""
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

    async def _settle(self, site: Site) -> tuple[bool, str]:
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

    async def _dismiss(self, site: Site) -> None:
        """Everybody is told to end, and has to."""
        hands = list(site.crew.hands)
        for hand in hands:
            site.crew.tell(hand)
        until = time.monotonic() + self._beats.grace + 10
        while any(hand.alive for hand in hands) and time.monotonic() < until:
            await asyncio.sleep(0.05)
        for hand in hands:
            if hand.alive or hand.process.returncode:
                self._stubborn.append(hand)
        site.crew.look()

    async def _judge(self, site: Site, ledger: Path, *, settled: bool, left: str, took: float, until: float) -> Report:
        conn = await self._connect()
        try:
            kept, entries = await books.read(ledger, conn, self._sql)
            unsafe = check(kept)
            evidence = Evidence(site, conn, self._sql, kept, entries)
            for fault in self._faults:
                if fault.judge is not None:
                    unsafe += await fault.judge(evidence)
        finally:
            await conn.close()
        hands = site.crew.past + site.crew.hands
        gone = {hand.pid for hand in site.crew.past if hand.ended is not None and hand.ended < until}
        recovered = recoveries(entries, site.wounds, gone, until)
        report = Report(
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


def _listens(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), 0.2):
        return True
    return False
