"""One node as a process: it gets ready, works, obeys signals, and leaves even if a handler would not."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any, Protocol, TypeVar

from howdah import telemetry
from howdah.app import Howdah
from howdah.cli import early, loop
from howdah.cli.dump import dump_on_signals
from howdah.cli.failure import INCOMPLETE, UNREACHABLE, explain
from howdah.node.heart import Heart
from howdah.observe.node import observe_node
from howdah.observe.vitals import Vitals
from howdah.orphan import LISTENS, READY, follow_parent, tell_parent
from howdah.pg import migrate
from howdah.pg.database import Database
from howdah.service import Outage, on_signals, wait
from howdah.table.admin import counting
from howdah.table.front import OpenTable
from howdah.work.execute import Attempt
from howdah.work.options import WorkerOptions

T = TypeVar("T")
log = logging.getLogger("howdah")

HAND_BACK_WITHIN = 5.0
"""Seconds after the second signal; what does not answer must not keep the process."""

LEAVE_WITHIN = 15.0
"""Seconds after the grace in which a process leaves; what does not answer must not keep it."""

Address = tuple[str, int]


class Works(Protocol):
    """A conductor, with a database or without."""

    heart: Heart | None

    @property
    def running(self) -> list[Attempt]: ...

    async def run(self) -> None: ...

    def stop(self, *, now: bool = False) -> None: ...


class Process:
    """Runs a conductor until told to stop, or until nothing is left, when draining."""

    def __init__(self, conductor: Works, options: WorkerOptions) -> None:
        self._conductor = conductor
        self._options = options
        self._stop = asyncio.Event()
        self._threads = ThreadPoolExecutor(thread_name_prefix="howdah-default")

    async def run(self) -> None:
        """Work, and obey signals meanwhile."""
        here = asyncio.get_running_loop()
        here.set_default_executor(self._threads)
        undo = on_signals(self._drain, self._hurry)
        dump_on_signals(self._running)
        follow_parent(lambda: here.call_soon_threadsafe(self._orphaned))
        tell_parent(LISTENS)
        unsubscribe = telemetry.subscribe(_tell_ready)
        if early.stopped:
            self._drain()
        try:
            async with self._observed():
                if await self._ready():
                    await self._conductor.run()
        finally:
            unsubscribe()
            undo()
        silent = getattr(self._conductor, "silent", False)
        if silent:
            log.error(
                "some outcomes are not recorded: the database does not answer, or a transaction has locked their rows; "
                "the jobs run again when their leases expire"
            )
        self._leave(INCOMPLETE if silent else 0)
        if silent:
            raise SystemExit(INCOMPLETE)

    async def _ready(self) -> bool:
        """Wait for what it needs; false when stopped meanwhile."""
        return True

    def _observed(self) -> AbstractAsyncContextManager[object]:
        return nullcontext()

    def _running(self) -> list[Attempt]:
        return self._conductor.running

    def _loop_lag(self) -> float:
        heart = self._conductor.heart
        return heart.loop_lag if heart else 0.0

    def _drain(self) -> None:
        log.info("draining: %s, up to %g s; again to hand back now", self._say_running(), self._options.grace)
        self._stop.set()
        self._conductor.stop()
        asyncio.get_running_loop().call_later(self._options.grace + LEAVE_WITHIN, self._abandon)

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
        log.error("could not hand back in time; the jobs run again when their leases expire")
        logging.shutdown()
        os._exit(INCOMPLETE)

    def _say_running(self) -> str:
        running = len(self._running())
        return f"{running} {'job' if running == 1 else 'jobs'} running"

    def _leave(self, code: int) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        threads = [each for each in threading.enumerate() if not each.daemon and each is not threading.main_thread()]
        for thread in threads:
            thread.join(0.1 / len(threads))  # idle ones are on their way out
        stubborn = len(self._running()) + sum(thread.is_alive() for thread in threads)
        if stubborn:
            # their jobs are handed back already; a thread or task that goes on would keep the process for ever
            log.warning("%d handlers did not end when cancelled; leaving without them", stubborn)
            logging.shutdown()
            os._exit(code)


def _tell_ready(name: str, _facts: Mapping[str, Any]) -> None:
    if name == "node.start":
        tell_parent(READY)


class Node(Process):
    """A node on the database."""

    def __init__(self, app: Howdah, options: WorkerOptions, patience: float, metrics: Address | None = None) -> None:
        self._node = app.conductor(options)
        super().__init__(self._node, options)
        self._patience = patience
        self._metrics = metrics
        self._database = app.database

    async def _ready(self) -> bool:
        return await reach(self._database, self._patience, self._stop)

    def _observed(self) -> AbstractAsyncContextManager[object]:
        if self._metrics is None:
            return nullcontext()
        node, (host, port) = self._node, self._metrics
        vitals = Vitals(
            node=lambda: node.node,
            ready=lambda: node.ready,
            running=lambda: [attempt.job.kind for attempt in self._running()],
            loop_lag=self._loop_lag,
            slots=self._options.slots,
            lease=self._options.lease,
            tables=lambda: [counting(front.plan) for front in node.open if isinstance(front, OpenTable)],
            leads=lambda: node.crew.leader.leads if node.crew and node.crew.leader else None,
        )
        return observe_node(self._database, vitals, host=host, port=port)


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


def run_fast(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end, on uvloop where it is installed."""
    factory: Callable[[], asyncio.AbstractEventLoop] | None = None
    try:
        import uvloop

        factory = uvloop.new_event_loop
    except ImportError:
        pass
    # what is loaded by now stays; to look through it for garbage again and again holds up everything for some 20 ms
    gc.collect()
    gc.freeze()
    return loop.run(main, factory)
