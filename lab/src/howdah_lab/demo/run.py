"""Run of the demo from start to end: nodes, customers, dashboard, screen, and the final check."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import IO

import click
from rich.console import Console
from rich.live import Live

from howdah.control_plane.dashboard import address_of, browse, serve_dashboard
from howdah.dashboard.link_key import LinkKey
from howdah.loops import on_signals, wait
from howdah.postgres import migrate
from howdah.postgres.database import Database
from howdah.supervisor import Supervisor
from howdah_lab.demo import app as shop
from howdah_lab.demo.screen import draw, line, summary
from howdah_lab.demo.snapshot import DemoDatabase, DemoSnapshot
from howdah_lab.demo.workload import Workload

NODES = 2
QUEUES = "mail:20,images:4,reports:1,webhooks,imports,reminders,stock,search,exports,clicks,orders"
WORKER = ("-m", "howdah", "worker", "-a", "howdah_lab.demo.app:app", "-q", QUEUES)
INTERVALS = (
    "--heartbeat",
    "1",
    "--lease",
    "10",
    "--grace",
    "1",
)  # shorter intervals than the defaults, so that changes show at once
READY_WITHIN = 30.0
SETTLE_WITHIN = 5.0


class DemoRun:
    """One demo on one database. It creates the schema of the shop and that of Howdah."""

    def __init__(
        self, database: Database, name: str, *, title: str, sockets: Sequence[socket.socket] = (), browse: bool = False
    ) -> None:
        """``sockets``: those of the dashboard; without any it is not served. ``browse``: open it in a browser."""
        self._database = database
        self._name = name
        self._title = title
        self._sockets = sockets
        self._key = LinkKey()
        self._link = self._key.link(address_of(sockets)) if sockets else ""
        self._browse = browse
        self._demo_database = DemoDatabase(database, name)
        self._workload = Workload(database, name)
        self._stopping = asyncio.Event()
        self._stopping_now = asyncio.Event()
        self._console = Console()

    async def run(self, seconds: float | None) -> int:
        """Run until a signal, or for this many seconds; returns the exit code."""
        undo = on_signals(self._stopping.set, self._stop_now)
        shop.app.connect_to(self._database.dsn, self._database.schema)
        shop.open_to(self._name)
        await migrate.migrate(self._database)
        await self._demo_database.create_tables()
        if self._sockets:
            click.echo(f"\n  dashboard  {click.style(self._link, bold=True)}\n")
        with tempfile.TemporaryFile() as output:
            try:
                return await self._run(seconds, output)
            finally:
                undo()
                await shop.app.close()
                await self._demo_database.close()

    async def clear(self) -> None:
        """Drop both schemas."""
        await self._demo_database.drop_tables()
        await self._demo_database.close()

    def _stop_now(self) -> None:
        self._stopping.set()
        self._stopping_now.set()

    async def _run(self, seconds: float | None, output: IO[bytes]) -> int:
        supervisor = Supervisor(
            [[sys.executable, *WORKER, *INTERVALS]] * NODES,
            environment=self._environment(),
            folder="/",  # a folder without configuration, so that no howdah.toml of the current project is read
            output=output,
        )
        nodes = asyncio.create_task(supervisor.run(), name="howdah demo nodes")
        stop = asyncio.Event()
        dashboard = asyncio.create_task(self._serve(stop), name="howdah demo dashboard")
        customers: asyncio.Task[None] | None = None
        try:
            await self._ready(nodes)
            began = time.monotonic()
            customers = asyncio.create_task(self._workload.run(stop), name="howdah demo customers")
            await self._watch(nodes, began, seconds)
            stop.set()
            await customers
            await self._settle()
            took = time.monotonic() - began
        finally:
            stop.set()
            supervisor.stop()
            if self._stopping_now.is_set():
                supervisor.stop()
            code = await self._ended(nodes, supervisor)
            await dashboard
        if code:
            output.seek(0)
            click.echo(output.read()[-4000:].decode(errors="replace"), err=True)
            click.echo(f"howdah: the nodes ended with code {code}", err=True)
        result = await self._demo_database.check(self._workload.enqueued, self._workload.photographed)
        for text in summary(result, self._workload, took, await self._demo_database.waits()):
            click.echo(text)
        return 0 if result.good and not code else 1

    async def _serve(self, stop: asyncio.Event) -> None:
        if self._sockets:
            async with serve_dashboard(shop.app, self._sockets, self._key):
                if self._browse:
                    browse(self._link)
                await stop.wait()

    def _environment(self) -> dict[str, str]:
        others = {name: value for name, value in os.environ.items() if not name.startswith("HOWDAH_")}
        ours = {"HOWDAH_DSN": self._database.dsn, "HOWDAH_SCHEMA": self._database.schema, shop.SHOP: self._name}
        return others | ours

    async def _ready(self, nodes: asyncio.Task[int]) -> None:
        deadline = time.monotonic() + READY_WITHIN
        while not self._gone(nodes) and time.monotonic() < deadline:
            if len(await self._demo_database.nodes()) >= NODES:
                return
            await wait(self._stopping, 0.05)

    async def _watch(self, nodes: asyncio.Task[int], began: float, seconds: float | None) -> None:
        terminal = self._console.is_terminal
        pause = 0.25 if terminal else 1.0
        live = Live(console=self._console, screen=True, auto_refresh=False) if terminal else None
        try:
            if live:
                live.start()
            while not self._gone(nodes):
                snapshot, passed = await self._demo_database.snapshot(), time.monotonic() - began
                self._draw(snapshot, passed, live)
                left = float("inf") if seconds is None else seconds - passed
                if left <= 0:
                    return
                await wait(self._stopping, min(pause - (time.monotonic() - began) % pause, left))
        finally:
            if live:
                live.stop()

    def _draw(self, snapshot: DemoSnapshot, passed: float, live: Live | None) -> None:
        rates = list(self._demo_database.rates)
        if live:
            live.update(draw(snapshot, self._workload, rates, passed, self._title, self._link), refresh=True)
        else:
            click.echo(line(snapshot, self._workload, rates, passed))

    async def _settle(self) -> None:
        """Let the nodes finish queued jobs and consume all events, unless a second signal arrives."""
        deadline = time.monotonic() + SETTLE_WITHIN
        while not self._stopping.is_set() and time.monotonic() < deadline:
            if (await self._demo_database.snapshot()).idle:
                return
            await wait(self._stopping, 0.1)

    async def _ended(self, nodes: asyncio.Task[int], supervisor: Supervisor) -> int:
        stopping_now = asyncio.create_task(self._stopping_now.wait())
        await asyncio.wait({nodes, stopping_now}, return_when=asyncio.FIRST_COMPLETED)
        if not nodes.done():
            supervisor.stop()
        stopping_now.cancel()
        return await nodes

    def _gone(self, nodes: asyncio.Task[int]) -> bool:
        return self._stopping.is_set() or nodes.done()
