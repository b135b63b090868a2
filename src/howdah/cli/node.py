"""A node as a process: its event loop, signals, and an exit that no handler can prevent."""

from __future__ import annotations

import asyncio
import faulthandler
import gc
import linecache
import logging
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, nullcontext
from types import FrameType
from typing import Any, TypeVar

from howdah import telemetry
from howdah.child_process import LISTENS, READY, follow_parent, report_to_parent
from howdah.cli import startup
from howdah.cli.exit import leave, leave_now
from howdah.cli.output import INCOMPLETE, UNREACHABLE, explain
from howdah.cli.startup import DUMP_SIGNALS
from howdah.events.consumers import NodeConsumers
from howdah.loops import Outage, on_signals, wait
from howdah.node.node import Node
from howdah.observe.health import NodeStatus
from howdah.observe.node import observe_node
from howdah.postgres import migrate
from howdah.postgres.database import Database
from howdah.table.admin import counting
from howdah.table.table import OpenTableSource
from howdah.worker.attempt import Attempt, slots_used
from howdah.worker.isolation import make_task
from howdah.worker.options import WorkerOptions

T = TypeVar("T")
log = logging.getLogger("howdah")

RELEASE_TIMEOUT = 5.0
"""Seconds to exit after the second signal, whatever does not respond."""

EXIT_TIMEOUT = 15.0
"""Seconds to exit after the grace period, whatever does not respond."""

Address = tuple[str, int]

MOST_EXITS = 1000
"""Maximum number of restarts of the loop before the process exits."""


class NodeProcess:
    """Runs a node until a signal stops it or, with `--drain`, until the queues are empty.

    ``database``: of a node that has one; ``start_timeout``: seconds to wait for it; ``metrics``: the address of
    metrics and health checks.
    """

    def __init__(
        self,
        node: Node[Any],
        options: WorkerOptions,
        *,
        database: Database | None = None,
        start_timeout: float = 0.0,
        metrics: Address | None = None,
    ) -> None:
        self._node = node
        self._options = options
        self._database = database
        self._start_timeout = start_timeout
        self._metrics = metrics
        self._stop = asyncio.Event()
        self._threads = ThreadPoolExecutor(thread_name_prefix="howdah-default")

    async def run(self) -> None:
        """Run the node and handle signals."""
        here = asyncio.get_running_loop()
        here.set_default_executor(self._threads)
        undo = on_signals(self._drain, self._release_now)
        dump_on_signals(self._running)
        follow_parent(lambda: here.call_soon_threadsafe(self._orphaned))
        report_to_parent(LISTENS)
        unsubscribe = telemetry.subscribe(_report_ready)
        if startup.stopped:
            self._drain()
        try:
            async with self._observed():
                if await self._ready():
                    await self._node.run()
        finally:
            unsubscribe()
            undo()
        if self._node.incomplete:
            server = "the control plane" if self._database is None else "the database"
            log.error(
                "some outcomes are not recorded: %s does not answer, or a transaction has locked their rows; "
                "the jobs run again when their leases expire",
                server,
            )
        self._threads.shutdown(wait=False, cancel_futures=True)
        leave(INCOMPLETE if self._node.incomplete else 0, len(self._running()))
        if self._node.incomplete:
            raise SystemExit(INCOMPLETE)

    async def _ready(self) -> bool:
        """Wait until the node can start; false if stopped meanwhile."""
        return self._database is None or await reach(self._database, self._start_timeout, self._stop)

    def _observed(self) -> AbstractAsyncContextManager[object]:
        if self._metrics is None:
            return nullcontext()
        node, (host, port) = self._node, self._metrics
        status = NodeStatus(
            node=lambda: node.node,
            ready=lambda: node.ready,
            running=lambda: [attempt.job.kind for attempt in self._running()],
            busy=lambda: slots_used(self._running()),
            loop_lag=self._loop_lag,
            slots=self._options.slots,
            lease=self._options.lease,
            unready_after=lambda: node.lease,
            tables=lambda: [counting(each.plan) for each in node.open if isinstance(each, OpenTableSource)],
            leads=lambda: next((each.leads for each in node.services if isinstance(each, NodeConsumers)), None),
        )
        return observe_node(self._database, status, host=host, port=port)

    def _running(self) -> list[Attempt]:
        return self._node.running

    def _loop_lag(self) -> float:
        heartbeat_thread = self._node.heartbeat_thread
        return heartbeat_thread.loop_lag if heartbeat_thread else 0.0

    def _drain(self) -> None:
        log.info("draining: %s, up to %g s; again to release them now", self._count_running(), self._options.grace)
        self._stop.set()
        self._node.stop()
        asyncio.get_running_loop().call_later(self._options.grace + EXIT_TIMEOUT, self._abandon)

    def _release_now(self) -> None:
        log.info("releasing: %s", self._count_running())
        self._stop.set()
        self._node.stop(now=True)
        asyncio.get_running_loop().call_later(RELEASE_TIMEOUT, self._abandon)

    def _orphaned(self) -> None:
        log.error("the supervisor is gone; releasing: %s", self._count_running())
        self._stop.set()
        self._node.stop(now=True)

    def _abandon(self) -> None:
        log.error("could not release the jobs in time; they run again when their leases expire")
        leave_now(INCOMPLETE)

    def _count_running(self) -> str:
        running = len(self._running())
        return f"{running} {'job' if running == 1 else 'jobs'} running"


def _report_ready(name: str, _facts: Mapping[str, Any]) -> None:
    if name == "node.start":
        report_to_parent(READY)


async def reach(database: Database, timeout: float, stop: asyncio.Event) -> bool:
    """Wait for a database with the right schema, at most ``timeout`` seconds; false when stopped meanwhile."""
    deadline = time.monotonic() + timeout
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
    # Objects loaded so far stay: without freeze() each full collection would examine them, a pause of about 20 ms.
    gc.collect()
    gc.freeze()
    return run_loop(main, factory)


def run_loop(main: Coroutine[Any, Any, T], factory: Callable[[], asyncio.AbstractEventLoop] | None = None) -> T:
    """Run a coroutine to its end, in an event loop that survives what handlers do to it.

    A task that a handler left behind may raise SystemExit or KeyboardInterrupt, and a handler may stop the loop:
    asyncio then leaves the loop, and the process would end. The loop is entered again instead. A handler may also
    cancel every task it finds: tasks of the node refuse that.
    """
    with asyncio.Runner(loop_factory=factory) as runner:
        loop = runner.get_loop()
        loop.set_task_factory(make_task)  # type: ignore[arg-type]
        asyncio.set_event_loop(loop)
        running = loop.create_task(main, name="howdah main")
        for _ in range(MOST_EXITS):
            try:
                return loop.run_until_complete(running)
            except (SystemExit, KeyboardInterrupt) as error:
                if running.done() or _is_early_interrupt(error):
                    raise
                log.error("a task that a handler left behind raised %r; the node continues", error)
            except RuntimeError:
                if running.done():
                    raise
                log.error("a handler stopped the event loop; the node continues")
        raise SystemExit("the event loop was left too often")


def _is_early_interrupt(error: BaseException) -> bool:
    """Return whether Ctrl-C was pressed before the node handled signals."""
    return isinstance(error, KeyboardInterrupt) and signal.getsignal(signal.SIGINT) is signal.default_int_handler


def dump_on_signals(running: Callable[[], Sequence[Attempt]]) -> None:
    """At SIGUSR1 and SIGTTIN write all thread stacks, and the running jobs with their stacks."""

    def dump() -> None:
        # in one piece: other processes may be writing to the same place
        sys.stderr.write("\n".join(["", *describe_threads(), "", *describe(running()), ""]))
        sys.stderr.flush()

    for number in DUMP_SIGNALS:
        asyncio.get_running_loop().add_signal_handler(number, dump)
        # the main thread is written by C code before that, so also when a handler blocks the event loop; that code must
        # not examine other threads, which keep running
        faulthandler.register(number, file=sys.stderr, all_threads=False, chain=True)


def describe_threads() -> Iterator[str]:
    """Return the stacks of the other threads."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    for id, frame in sys._current_frames().items():
        if id != threading.get_ident():
            yield f"\nthread {names.get(id, id)}, most recent call last:"
            for outer, _ in reversed(list(traceback.walk_stack(frame))):
                yield from _lines(outer)


def describe(attempts: Sequence[Attempt]) -> Iterator[str]:
    """Return the table of running jobs and the stack of each."""
    yield f"{len(attempts)} running:"
    if attempts:
        yield f"{'id':>12}  {'attempt':>7}  {'seconds':>9}  kind"
    for attempt in attempts:
        job = attempt.job
        note = f"  ({'stuck after ' if attempt.stuck else ''}{attempt.cancel_reason})" if attempt.cancel_reason else ""
        yield f"{job.id:>12}  {job.attempt:>7}  {attempt.took / 1e6:>9.3f}  {job.kind}{note}"
    for attempt in {id(each.batch or each): each for each in attempts}.values():  # one of each batch
        if attempt.task is not None:
            yield f"\njob {attempt.job.id} ({attempt.job.kind}), most recent call last:"
            for frame in _frames(attempt.coroutine or attempt.task.get_coro()):
                yield from _lines(frame)


def _frames(waiting: Any) -> Iterator[FrameType]:
    """Return the frames of a suspended coroutine, down to what it awaits; ``Task.get_stack`` returns only the first."""
    while waiting is not None:
        frame = getattr(waiting, "cr_frame", None) or getattr(waiting, "gi_frame", None)
        if frame is not None:
            yield frame
        waiting = getattr(waiting, "cr_await", None) or getattr(waiting, "gi_yieldfrom", None)


def _lines(frame: FrameType) -> Iterator[str]:
    code = frame.f_code
    yield f'  File "{code.co_filename}", line {frame.f_lineno}, in {code.co_name}'
    if line := linecache.getline(code.co_filename, frame.f_lineno).strip():
        yield f"    {line}"
