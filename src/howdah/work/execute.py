"""One attempt of one job: run the handler, and say how it ended. Never raises."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from time import perf_counter_ns
from typing import Any

import msgspec

from howdah import telemetry
from howdah.codes import retries
from howdah.errors import ArgumentError, LeaseLost, Poison
from howdah.handler import Handler, finished, is_unfinished
from howdah.job import Job, current
from howdah.outcome import Ack, Cancel, Outcome, Snooze, clean
from howdah.retry import Backoff, delay_after, lineage
from howdah.scrub import LONGEST_MESSAGE, keep
from howdah.store import Interrupted, Store, Transaction
from howdah.work.executors import fork
from howdah.work.executors.process import FailedThere, NotStored, Processes
from howdah.work.executors.thread import run_in_thread
from howdah.work.report import Report
from howdah.work.result import result_of
from howdah.work.setback import Setbacks

log = logging.getLogger("howdah")

OK = Outcome.OK
POISON = lineage(Poison())[0]


class Why(StrEnum):
    """Why a running handler is being cancelled by us."""

    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    LOST = "lost"
    SHUTDOWN = "shutdown"


class Attempt(msgspec.Struct, eq=False):
    """One job being run."""

    job: Job
    handler: Handler
    started: int
    """By the performance counter, in nanoseconds."""
    task: asyncio.Task[None] | None = None
    why: Why | None = None
    over: bool = False
    """An outcome was reported; what the handler still does no longer counts."""
    begun: bool = False
    """Its handler is at work, and would hear of a cancellation."""
    timer: asyncio.TimerHandle | None = None
    watch: Callable[[Attempt], None] | None = None
    """Starts its timer; for an attempt that has to wait for a connection or a process first."""
    coroutine: Coroutine[Any, Any, Ack] | None = None
    """What runs it, if its task has run others before."""
    stuck: bool = False
    """It went on after it was cancelled; its slot stays taken until it ends."""

    def start_clock(self) -> None:
        """Its handler begins only now: to wait for a connection or for a process is not work."""
        self.started = perf_counter_ns()
        if self.watch:
            self.watch(self)

    @property
    def took(self) -> int:
        """Microseconds since it started."""
        return (perf_counter_ns() - self.started) // 1000


class Means:
    """What handlers run on besides the event loop: threads and processes, made when first needed."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self.setbacks = Setbacks()
        self._threads: ThreadPoolExecutor | None = None
        self._processes: Processes | None = None

    @property
    def threads(self) -> ThreadPoolExecutor:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(self._slots, "howdah-job")
        return self._threads

    @property
    def processes(self) -> Processes:
        if self._processes is None:
            self._processes = Processes(self._slots)
        return self._processes

    async def close(self) -> None:
        """Let go of threads and end the processes."""
        if self._threads:
            self._threads.shutdown(wait=False, cancel_futures=True)
        if self._processes:
            await self._processes.close()


def execute(attempt: Attempt, means: Means, store: Store, largest_result: int) -> Coroutine[Any, Any, Ack]:
    """Run the handler once. Never raises, whatever the handler does."""
    if attempt.handler.plain and not telemetry.around:
        return execute_plain(attempt, largest_result)
    if attempt.handler.has_after:
        return _execute_with_after(attempt, means, store, largest_result)
    return _execute(attempt, means, store, largest_result)


async def execute_plain(attempt: Attempt, largest_result: int) -> Ack:
    """The common case: a coroutine function, nothing around it."""
    job = attempt.job
    current.set(job)
    try:
        if attempt.why is not None:
            raise asyncio.CancelledError  # before it began
        value = await attempt.handler.call(job)
        if value is None and not fork.inside:
            return Ack(job, OK, (perf_counter_ns() - attempt.started) // 1000)
        if is_unfinished(value):
            value = await finished(value)
        return _ended_with(value, attempt, largest_result)
    except BaseException as error:  # SystemExit and KeyboardInterrupt too: the node must survive its handlers
        return ended_by(error, attempt)


async def _execute(attempt: Attempt, means: Means, store: Store, largest_result: int) -> Ack:
    job, handler = attempt.job, attempt.handler
    current.set(job)
    try:
        if attempt.why is not None:
            raise asyncio.CancelledError  # before it began
        with telemetry.surround(job):
            return await _run(attempt, handler, job, means, store, largest_result)
    except BaseException as error:
        return ended_by(error, attempt)


async def _execute_with_after(attempt: Attempt, means: Means, store: Store, largest_result: int) -> Ack:
    ack = await _execute(attempt, means, store, largest_result)
    try:
        await attempt.handler.after(attempt.job, ack)
    except BaseException as error:
        log.error("after_execute of job %s (%s) failed: %s", attempt.job.id, attempt.job.kind, error, exc_info=error)
        telemetry.emit("hook.fail", kind=attempt.job.kind, hook="after_execute", error=error)
    return ack


async def _run(attempt: Attempt, handler: Handler, job: Job, means: Means, store: Store, largest_result: int) -> Ack:
    if handler.transactional:
        return await _transact(attempt, means, store, largest_result)
    if handler.executor == "async":
        value = await handler.call(job)
    elif handler.executor == "thread":
        value = await run_in_thread(handler, job, means.threads)
    else:
        value = await means.processes.run(handler, job, largest_result, attempt.start_clock)
    return _ended_with(await finished(value), attempt, largest_result)


class _NotDone(Exception):
    """Leaves the transaction of a handler that returned something other than success."""


async def _transact(attempt: Attempt, means: Means, store: Store, largest_result: int) -> Ack:
    job, handler = attempt.job, attempt.handler
    ack: Ack | None = None

    async def body(tx: Transaction) -> bytes | None:
        nonlocal ack
        attempt.start_clock()
        try:
            value = await finished(await handler.call(job, {"tx": tx}))
        except BaseException as error:
            fork.end_if_forked(error)  # before the transaction is rolled back: its connection is the parent's
            raise
        ack = _ended_with(value, attempt, largest_result)
        if ack.outcome is not Outcome.OK:
            raise _NotDone
        return ack.result

    try:
        await store.transact(job, body)
    except _NotDone:
        assert ack is not None
        return ack
    except LeaseLost:
        if ack is None:
            raise  # the handler's own error, about something else
        return Ack(job, Outcome.LOST, attempt.took)
    except Interrupted as error:
        if attempt.why is not None:
            raise error.cause from None
        delay = means.setbacks.delay(job, error)
        telemetry.emit("job.release", jobs=1)
        return Ack(job, Outcome.RELEASED, attempt.took, delay=delay)
    means.setbacks.over(job)
    assert ack is not None
    ack.recorded = True
    ack.took = attempt.took
    return ack


def _ended_with(value: Any, attempt: Attempt, largest_result: int) -> Ack:
    fork.end_if_forked()
    job, took = attempt.job, attempt.took
    try:
        value = clean(value)
    except ArgumentError as error:
        return _failed(error, attempt)
    kind = type(value)
    if value is None:
        return Ack(job, Outcome.OK, took)
    if kind is Snooze:
        return Ack(job, Outcome.SNOOZED, took, delay=value.seconds)
    if kind is Cancel:
        return Ack(job, Outcome.CANCELLED, took, error="Cancel", message=value.reason or None)
    result, message = (None, value.message) if kind is NotStored else result_of(value, largest_result)
    if message is None:
        return Ack(job, Outcome.OK, took, result=result)
    return Ack(job, Outcome.OK, took, error="ResultNotStored", message=keep(message, LONGEST_MESSAGE))


def ended_by(error: BaseException, attempt: Attempt) -> Ack:
    """The outcome of an attempt that ended with this error. Never raises, whatever the error's own code does."""
    fork.end_if_forked(error)
    try:
        return _ended_by(error, attempt)
    except BaseException as mishap:
        log.error("the error of job %s (%s) cannot be described: %r", attempt.job.id, attempt.job.kind, type(mishap))
        job, outcome = attempt.job, Outcome.FAILED if attempt.job.is_last_attempt else Outcome.RETRY
        delay, message = Backoff().delay(job.attempt), "the error cannot be described: its own code raised another"
        return Ack(job, outcome, attempt.took, delay=delay, error="Exception", message=message)


def _ended_by(error: BaseException, attempt: Attempt) -> Ack:
    job, took = attempt.job, attempt.took
    if attempt.why is Why.LOST:
        return Ack(job, Outcome.LOST, took)
    if isinstance(error, asyncio.CancelledError):
        if attempt.why is Why.SHUTDOWN:
            return Ack(job, Outcome.RELEASED, took)
        if attempt.why is Why.CANCELLED:
            return Ack(job, Outcome.CANCELLED, took, error="Cancelled", message="cancelled while running")
        if attempt.why is Why.TIMEOUT:
            timeout = TimeoutError(f"the job ran longer than its timeout of {job.timeout:g} s")
            return _failed(timeout.with_traceback(error.__traceback__), attempt)
    return _failed(error, attempt)


def _failed(error: BaseException, attempt: Attempt) -> Ack:
    job = attempt.job
    report = error.report if isinstance(error, FailedThere) else Report.of(error)
    delay = delay_after(report.lineage, report.retry_after, job.attempt, attempt.handler.retries)
    hold = delay if report.hold is True else report.hold or None
    if not retries(report.code, job.attempt):
        delay = None
    if delay is None:
        outcome = Outcome.POISON if POISON in report.lineage else Outcome.FAILED
    else:
        outcome = Outcome.FAILED if job.is_last_attempt else Outcome.RETRY
    return Ack(
        job,
        outcome,
        attempt.took,
        delay=delay or 0.0,
        error=report.error,
        message=report.message,
        traceback=report.traceback,
        hold=hold,
    )
