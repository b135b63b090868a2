"""`howdah top`: queues, nodes, running jobs and consumers, live."""

from __future__ import annotations

import asyncio
import io
import os
import signal
import sys
import termios
import time
import tty
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager

import click
import msgspec
from rich.console import Console, RenderableType
from rich.live import Live

from howdah.cli.output import age, dump, explain
from howdah.cli.parameters import DURATION, as_json
from howdah.cli.target import Target, run, targeted
from howdah.cli.top_view import TopView, draw
from howdah.errors import ConfigError
from howdah.loops import wait, wait_any
from howdah.observe.sampler import Counting
from howdah.observe.snapshot import Snapshot, SnapshotReader
from howdah.postgres import migrate
from howdah.postgres.database import Database
from howdah.postgres.dsn import hide_password
from howdah.table.admin import counting
from howdah.table.options import TableOptions
from howdah.table.plan import TablePlan

END = ""
"""Sent when the terminal is closed."""


@contextmanager
def reading_keys(on_key: Callable[[str], None]) -> Iterator[Callable[[], None]]:
    """Read single keys while the block lasts; without a terminal no key arrives.

    Yields a function that switches the terminal to single keys again: a shell resets it while the command is suspended.
    """
    if not sys.stdin.isatty():
        yield lambda: None
        return
    loop, file = asyncio.get_running_loop(), sys.stdin.fileno()
    before = termios.tcgetattr(file)

    def read() -> None:
        try:
            keys = os.read(file, 100).decode(errors="replace")
        except OSError:
            keys = END  # the terminal is gone
        if keys == END:
            loop.remove_reader(file)
        for key in keys or [END]:
            on_key(key)

    def enter_key_mode() -> None:
        tty.setcbreak(file)

    enter_key_mode()
    loop.add_reader(file, read)
    try:
        yield enter_key_mode
    finally:
        loop.remove_reader(file)
        termios.tcsetattr(file, termios.TCSADRAIN, before)


MIN_INTERVAL, MAX_INTERVAL = 0.1, 3600.0
SLOW_SNAPSHOT = 2.0
"""Seconds after which a slow snapshot is reported."""
PLAIN_WIDTH = 200
"""Columns of the output without a terminal."""


@click.command()
@click.option("--every", type=DURATION, default="1s", show_default=True, help="Interval between two snapshots.")
@click.option("-n", "--count", type=click.IntRange(min=1), metavar="N", help="Exit after N snapshots.")
@click.option("--once", is_flag=True, help="Print one snapshot and exit (the default when stdout is not a terminal).")
@as_json
@targeted
def top(target: Target, every: float, count: int | None, once: bool, as_json: bool) -> None:
    """Show queues, nodes, running jobs and consumers, live. Press q to exit.

    With an app (`-a`) its tables are counted too. --json prints one reading; with --count, a line for each.

    \b
    howdah top
    howdah top --json --every 10s --count 6
    """
    if not MIN_INTERVAL <= every <= MAX_INTERVAL:
        raise click.BadParameter(f"must be from {MIN_INTERVAL:g} s to 1 h, got {every:g} s", param_hint="--every")
    if once and (count or 1) > 1:
        raise click.UsageError(f"--once and --count {count} contradict each other; say one of them")
    database = target.database()
    tables = target.tables()
    console = Console(highlight=False)
    live = not (as_json or once) and sys.stdout.isatty() and not console.is_dumb_terminal

    async def show() -> None:
        async with open_reader(database, tables) as reader:
            view = View(reader, title=f"howdah top {hide_password(database.dsn)}", every=every, count=count)
            await (view.watch(console) if live else view.print(console, as_json=as_json))

    run(show())


@asynccontextmanager
async def open_reader(database: Database, tables: Sequence[TableOptions]) -> AsyncIterator[SnapshotReader]:
    """Return the snapshot reader of a database; raises :class:`SchemaError` for an unknown schema."""
    conn = await database.connect("pulse")
    counted: list[Counting] = []
    try:
        await migrate.check(database, conn)
        for options in tables:
            try:
                counted.append(counting(await TablePlan.make(conn, options, database.schema)))
            except ConfigError as error:
                click.echo(f"howdah: {error}", err=True)
    finally:
        conn.terminate()
    reader = SnapshotReader(database, tables=lambda: counted)
    try:
        yield reader
    finally:
        await reader.close()


class View:
    """Reads and displays snapshots periodically."""

    def __init__(self, reader: SnapshotReader, *, title: str, every: float, count: int | None) -> None:
        self._reader = reader
        self._title = title
        self._every = every
        self._count = count
        self._stop = asyncio.Event()
        self._changed = asyncio.Event()
        self._snapshot: Snapshot | None = None
        self._read_at = time.monotonic()
        self._error: str | None = None
        self._retry_errors = True

    async def print(self, console: Console, *, as_json: bool) -> None:
        """Print snapshots as text or JSON; one by default."""
        self._retry_errors = self._count is not None
        for left in range((self._count or 1) - 1, -1, -1):
            took = await self._read()
            while self._error is not None:
                click.echo(f"howdah: {self._error}", err=True)
                await asyncio.sleep(max(self._every, took))
                took = await self._read()
            if as_json and self._count is None:
                dump(self._snapshot)
            elif as_json:
                click.echo(msgspec.json.encode(self._snapshot))
            elif sys.stdout.isatty():
                console.print(self._draw(TopView(width=console.width, encoding=console.encoding)))
            else:
                click.echo(self._text())
            if left:
                await asyncio.sleep(max(self._every - took, took))

    async def watch(self, console: Console) -> None:
        """Fill the screen until `q`, a signal, or the last snapshot."""
        loop = asyncio.get_running_loop()
        with (
            Live(
                console=console, screen=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
            ) as live,
            reading_keys(self._key_pressed) as enter_key_mode,
        ):

            def resume() -> None:
                enter_key_mode()
                console.set_alt_screen(True)
                self._changed.set()

            handlers = {
                **dict.fromkeys((signal.SIGINT, signal.SIGTERM, signal.SIGHUP), self._stop.set),
                signal.SIGWINCH: self._changed.set,
                signal.SIGCONT: resume,
            }
            for number, handler in handlers.items():
                loop.add_signal_handler(number, handler)
            reads = asyncio.create_task(self._read_loop(), name="howdah top")
            try:
                while not self._stop.is_set():
                    self._changed.clear()
                    page = TopView(width=console.width, height=console.height, encoding=console.encoding)
                    live.update(self._draw(page), refresh=True)
                    await wait_any(1.0, self._stop, self._changed)
            finally:
                reads.cancel()
                await asyncio.gather(reads, return_exceptions=True)
                for number in handlers:
                    loop.remove_signal_handler(number)
        if not reads.cancelled() and reads.exception() is not None:
            raise reads.exception()  # type: ignore[misc]

    def _key_pressed(self, key: str) -> None:
        if key in ("q", "Q", END):
            self._stop.set()

    async def _read_loop(self) -> None:
        left = self._count
        try:
            while left is None or left > 0:
                took = await self._read()
                if left is not None and self._error is None:
                    left -= 1
                self._changed.set()
                # a slow server gets a pause as long as the snapshot took
                if left != 0:
                    await wait(self._stop, max(self._every - took, took))
        finally:
            self._stop.set()

    async def _read(self) -> float:
        """Read one snapshot and return the seconds it took; errors are displayed, not raised."""
        began = time.monotonic()
        try:
            self._snapshot = await self._reader.read()
            self._read_at, self._error = time.monotonic(), None
        except Exception as error:
            known = explain(error)
            if known is None or not self._retry_errors:
                raise
            self._error = known[0]
        return time.monotonic() - began

    def _draw(self, page: TopView) -> RenderableType:
        problem = self._error
        waited = time.monotonic() - self._read_at
        if problem is None and waited > self._every + SLOW_SNAPSHOT:
            problem = "the database does not answer"
        if problem is not None and self._snapshot is not None:
            problem = f"{problem}; this was read {age(waited)} ago"
        return draw(self._snapshot, page, title=self._title, problem=problem)

    def _text(self) -> str:
        """Return a frame as plain text."""
        file = io.StringIO()
        page = TopView(width=PLAIN_WIDTH, encoding=sys.stdout.encoding or "utf-8")
        Console(file=file, width=PLAIN_WIDTH, color_system=None, highlight=False).print(self._draw(page))
        return "\n".join(line.rstrip() for line in file.getvalue().splitlines())
