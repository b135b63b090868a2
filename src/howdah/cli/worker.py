"""`howdah worker`: one node, or several under one parent."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, nullcontext
from pathlib import Path
from typing import Any, TypeVar

import click

from howdah.app import Howdah
from howdah.cli.common import DURATION, Target, finish, targeted
from howdah.cli.dump import dump_on_signals
from howdah.cli.failure import INCOMPLETE, UNREACHABLE, explain
from howdah.errors import ConfigError
from howdah.observe import logs, tracing
from howdah.observe.node import observe_node
from howdah.observe.vitals import Vitals
from howdah.orphan import PARENT, follow_parent
from howdah.pg import migrate
from howdah.pg.database import Database
from howdah.service import Outage, on_signals, wait
from howdah.sources import Sources
from howdah.supervisor import Supervisor
from howdah.table.admin import counting
from howdah.table.front import OpenTable
from howdah.work.execute import Attempt
from howdah.work.options import WorkerOptions, parse_queues

T = TypeVar("T")
log = logging.getLogger("howdah")

HAND_BACK_WITHIN = 5.0
"""Seconds after the second signal; a database that does not answer must not keep the process."""


@click.command()
@targeted
@click.option("-q", "--queues", metavar="NAME[:MOST],…", help="Queues to serve.  [env: HOWDAH_QUEUES; default: all]")
@click.option("-c", "--concurrency", type=int, metavar="N", help="Jobs at once.  [env: HOWDAH_SLOTS; default: 50]")
@click.option("--processes", type=click.IntRange(1, 1000), metavar="N", help="Nodes to run.  [env: HOWDAH_PROCESSES]")
@click.option("--drain", is_flag=True, help="End by itself when nothing is left to do now.")
@click.option("--grace", type=DURATION, help="For running jobs after the first signal.  [default: 25s]")
@click.option("--poll", type=DURATION, help="Longest wait between claims.  [default: 5s]")
@click.option("--heartbeat", type=DURATION, help="Between two heartbeats.  [default: 5s]")
@click.option("--lease", type=DURATION, help="Work stays ours without a heartbeat.  [default: 30s]")
@click.option("--poll-only", is_flag=True, help="Do not listen for wake-ups.")
@click.option("--metrics", metavar="HOST:PORT", help="Serve /metrics, /livez and /readyz; process i at PORT + i.")
@click.option("--wait", "patience", type=DURATION, default="30s", show_default=True, help="For the database at start.")
@click.option("--reload/--no-reload", help="Start anew when a Python file under this folder changes.")
def worker(
    target: Target,
    queues: str | None,
    concurrency: int | None,
    processes: int | None,
    poll_only: bool,
    drain: bool,
    patience: float,
    reload: bool,
    **durations: Any,
) -> None:
    """Run a node: execute jobs until told to stop.

    The first TERM or INT lets running jobs finish within the grace and ends with exit code 0; the second
    hands them back at once. USR1 and TTIN write to stderr what runs, and where it stands.
    """
    settings = target.settings().over(
        queues=parse_queues(queues) if queues else None,
        slots=concurrency,
        processes=processes,
        notify=False if poll_only else None,
        **durations,
    )
    options = settings.worker_options(drain=drain)
    logs.configure(settings.log_level or "info", settings.log_json)
    count = settings.processes or 1
    if (count > 1 or reload) and PARENT not in os.environ:
        commands = [command_of(place, address_of(settings.metrics)) for place in range(count)]
        finish(asyncio.run(supervise(Supervisor(commands, drain=drain, sources=_sources(reload)))))
        return
    logs.subscribe_logs()
    app = target.app()
    tracing.install()  # after the app, which may have set up OpenTelemetry
    run_fast(Node(app, options, patience, address_of(settings.metrics)).run())


async def supervise(supervisor: Supervisor) -> int:
    """Run the children until they have ended; signals reach all of them."""
    undo = supervisor.take_signals()
    try:
        return await supervisor.run()
    finally:
        undo()


def command_of(place: int, metrics: tuple[str, int] | None) -> list[str]:
    """This command line once more, as that of one child."""
    command = [sys.executable, *sys.orig_argv[1:], "--processes", "1", "--no-reload"]
    if metrics:
        host, port = metrics
        command += ["--metrics", f"[{host}]:{port + place if port else 0}"]
    return command


def address_of(text: str | None) -> tuple[str, int] | None:
    """Read ``host:port``.

    >>> address_of("[::1]:9100"), address_of(":9100"), address_of("9100"), address_of(None)
    (('::1', 9100), ('127.0.0.1', 9100), ('127.0.0.1', 9100), None)
    """
    if text is None:
        return None
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or int(port) > 65535:
        raise ConfigError(f"metrics must be HOST:PORT, got {text!r}; write 127.0.0.1:9100, or 0.0.0.0:9100 for all")
    return host.strip("[]") or "127.0.0.1", int(port)


def run_fast(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end, on uvloop where it is installed."""
    factory: Callable[[], asyncio.AbstractEventLoop] | None = None
    try:
        import uvloop

        factory = uvloop.new_event_loop
    except ImportError:
        pass
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(main)


class Node:
    """One process: waits for its database, works, obeys signals, and leaves even if a handler would not."""

    def __init__(
        self, app: Howdah, options: WorkerOptions, patience: float, metrics: tuple[str, int] | None = None
    ) -> None:
        self._options = options
        self._patience = patience
        self._metrics = metrics
        self._database = app.database
        self._conductor = app.conductor(options)
        self._stop = asyncio.Event()
        self._threads = ThreadPoolExecutor(thread_name_prefix="howdah-default")

    async def run(self) -> None:
        """Work until told to stop, or until nothing is left, when draining."""
        loop = asyncio.get_running_loop()
        loop.set_default_executor(self._threads)
        undo = on_signals(self._drain, self._hurry)
        dump_on_signals(self._running)
        follow_parent(lambda: loop.call_soon_threadsafe(self._orphaned))
        try:
            async with self._observed():
                if await reach(self._database, self._patience, self._stop):
                    await self._conductor.run()
        finally:
            undo()
        self._leave()

    def _observed(self) -> AbstractAsyncContextManager[object]:
        if self._metrics is None:
            return nullcontext()
        conductor, (host, port) = self._conductor, self._metrics
        vitals = Vitals(
            node=lambda: conductor.node,
            ready=lambda: conductor.ready,
            running=lambda: [attempt.job.kind for attempt in self._running()],
            loop_lag=lambda: conductor.heart.loop_lag if conductor.heart else 0.0,
            slots=self._options.slots,
            lease=self._options.lease,
            tables=lambda: [counting(front.plan) for front in conductor.open if isinstance(front, OpenTable)],
        )
        return observe_node(self._database, vitals, host=host, port=port)

    def _running(self) -> list[Attempt]:
        return self._conductor.running

    def _drain(self) -> None:
        log.info("draining: %s, up to %g s; again to hand back now", self._say_running(), self._options.grace)
        self._stop.set()
        self._conductor.stop()

    def _hurry(self) -> None:
        log.info("handing back: %s", self._say_running())
        self._stop.set()
        self._conductor.stop(now=True)
        asyncio.get_running_loop().call_later(HAND_BACK_WITHIN, self._abandon)

    def _orphaned(self) -> None:
        log.error("the supervisor is gone; handing back: %s", self._say_running())
        self._stop.set()
        self._conductor.stop(now=True)

    def _abandon(self) -> None:
        log.error("could not hand back within %g s; the jobs run again when their leases expire", HAND_BACK_WITHIN)
        logging.shutdown()
        os._exit(INCOMPLETE)

    def _say_running(self) -> str:
        running = len(self._running())
        return f"{running} {'job' if running == 1 else 'jobs'} running"

    def _leave(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        threads = [each for each in threading.enumerate() if not each.daemon and each is not threading.main_thread()]
        for thread in threads:
            thread.join(0.1 / len(threads))  # idle ones are on their way out
        stubborn = len(self._running()) + sum(thread.is_alive() for thread in threads)
        if stubborn:
            # their jobs are handed back already; a thread or task that goes on would keep the process for ever
            log.warning("%d handlers did not end when cancelled; leaving without them", stubborn)
            logging.shutdown()
            os._exit(0)


async def reach(database: Database, patience: float, stop: asyncio.Event) -> bool:
    """Wait for a database with the right schema, at most ``patience`` seconds; false when stopped meanwhile."""
    deadline = time.monotonic() + patience
    outage = Outage("connect")
    while not stop.is_set():
        try:
            await migrate.check(database)
        except Exception as error:
            known = explain(error)
            if known is None or known[1] != UNREACHABLE or time.monotonic() >= deadline:
                raise
            await wait(stop, outage.fail(error))
        else:
            outage.heal()
            return True
    return False


def _sources(reload: bool) -> Sources | None:
    return Sources(Path.cwd()) if reload else None
