"""One attempt of one job: runs the handler and returns its outcome. Never raises."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from enum import StrEnum
from functools import partial
from time import perf_counter_ns
from typing import Any

import msgspec

from howdah import telemetry
from howdah.errors import ArgumentError, LeaseLost, Poison, retries
from howdah.handler import Handler, finished, is_unfinished
from howdah.job import Job, current
from howdah.outcome import Ack, Cancel, FailureReport, Outcome, Snooze, clean, result_of
from howdah.redact import LONGEST_MESSAGE, handler_secrets, keep
from howdah.retry import Backoff, delay_after, lineage
from howdah.store import Interrupted, Store, Transaction
from howdah.worker import isolation
from howdah.worker.executors import Executors, run_in_thread
from howdah.worker.processes.process import FailedInProcess, ResultNotStored

log = logging.getLogger("howdah")

OK = Outcome.OK
POISON = lineage(Poison())[0]


class CancelReason(StrEnum):
    """The reason why the node cancels a running handler."""

    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    LOST = "lost"
    SHUTDOWN = "shutdown"
    UNRENEWED = "lease not renewed"


class Attempt(msgspec.Struct, eq=False):
    """One job being run."""

    job: Job
    handler: Handler
    started: int
    """Start time by the performance counter, in nanoseconds."""
    task: asyncio.Task[None] | None = None
    cancel_reason: CancelReason | None = None
    finished: bool = False
    """True if an outcome was reported; a later one is ignored."""
    running: bool = False
    """True if its task runs the handler, so that cancelling the task cancels the handler."""
    timer: asyncio.TimerHandle | None = None
    start_timer: Callable[[Attempt], None] | None = None
    """Starts the timeout; set for an attempt that has to wait for a connection or a process first."""
    coroutine: Coroutine[Any, Any, Ack] | None = None
    """The coroutine of this attempt, if its task has run other attempts before."""
    batch: object | None = None
    """The batch it belongs to; the attempts of a batch share a slot."""
    stuck: bool = False
    """True if it still runs after it was cancelled; its slot stays taken until it ends."""

    def start_clock(self) -> None:
        """Start the time of the attempt now: waiting for a connection or a process does not count."""
        self.started = perf_counter_ns()
        if self.start_timer:
            self.start_timer(self)

    @property
    def took(self) -> int:
        """Microseconds since it started."""
        return (perf_counter_ns() - self.started) // 1000


def slots_used(attempts: Iterable[Attempt]) -> int:
    """Return how many calls of handlers these attempts are: those of a batch are one."""
    return len({id(each.batch or each) for each in attempts})


def execute(attempt: Attempt, executors: Executors, store: Store, largest_result: int) -> Coroutine[Any, Any, Ack]:
    """Run the handler once. Never raises."""
    if attempt.handler.plain and not telemetry.around:
        return execute_plain(attempt, largest_result)
    if attempt.handler.has_after:
        return _execute_with_after(attempt, executors, store, largest_result)
    return _execute(attempt, executors, store, largest_result)


async def execute_plain(attempt: Attempt, largest_result: int) -> Ack:
    """Run a plain coroutine function, the common case."""
    job = attempt.job
    current.set(job)
    try:
        if attempt.cancel_reason is not None:
            raise asyncio.CancelledError  # cancelled before it started
        value = await attempt.handler.call(job)
        if value is None and not isolation.forked:
            return Ack(job, OK, (perf_counter_ns() - attempt.started) // 1000)
        if is_unfinished(value):
            value = await finished(value)
        return outcome_of_value(value, attempt, largest_result)
    except BaseException as error:  # SystemExit and KeyboardInterrupt too: the node must survive its handlers
        return outcome_of_error(error, attempt)


async def _execute(attempt: Attempt, executors: Executors, store: Store, largest_result: int) -> Ack:
    job, handler = attempt.job, attempt.handler
    current.set(job)
    try:
        if attempt.cancel_reason is not None:
            raise asyncio.CancelledError  # cancelled before it started
        with telemetry.surround(job):
            return await _run(attempt, handler, job, executors, store, largest_result)
    except BaseException as error:
        return outcome_of_error(error, attempt)


async def _execute_with_after(attempt: Attempt, executors: Executors, store: Store, largest_result: int) -> Ack:
    ack = await _execute(attempt, executors, store, largest_result)
    await run_after(attempt.handler, ack)
    return ack


async def run_after(handler: Handler, ack: Ack) -> None:
    """Run the hook after an attempt; its failure is logged and changes nothing."""
    try:
        await handler.after(ack.job, ack)
    except BaseException as error:
        log.error("after_execute of job %s (%s) failed: %s", ack.job.id, ack.job.kind, error, exc_info=error)
        telemetry.emit("hook.fail", kind=ack.job.kind, hook="after_execute", error=error)


async def _run(
    attempt: Attempt, handler: Handler, job: Job, executors: Executors, store: Store, largest_result: int
) -> Ack:
    if handler.transactional:
        return await _transact(attempt, executors, store, largest_result)
    if handler.executor == "async":
        value = await handler.call(job)
    elif handler.executor == "thread":
        value = await run_in_thread(partial(handler.call, job), executors.threads)
    else:
        value = await executors.processes.run(handler, job, largest_result, attempt.start_clock)
    return outcome_of_value(await finished(value), attempt, largest_result)


class _NotDone(Exception):
    """Rolls back the transaction of a handler that returned something other than success."""


async def _transact(attempt: Attempt, executors: Executors, store: Store, largest_result: int) -> Ack:
    job, handler = attempt.job, attempt.handler
    ack: Ack | None = None

    async def body(tx: Transaction) -> bytes | None:
        nonlocal ack
        attempt.start_clock()
        try:
            value = await finished(await handler.call(job, {"tx": tx}))
        except BaseException as error:
            isolation.end_if_forked(error)  # a fork must not roll back: the connection is its parent's
            raise
        ack = outcome_of_value(value, attempt, largest_result)
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
            raise  # raised by the handler itself, about another lease
        return Ack(job, Outcome.LOST, attempt.took)
    except Interrupted as error:
        if attempt.cancel_reason is not None:
            raise error.cause from None
        delay = executors.interruptions.delay(job, error)
        telemetry.emit("job.release", jobs=1)
        return Ack(job, Outcome.RELEASED, attempt.took, delay=delay)
    executors.interruptions.reset(job)
    assert ack is not None
    ack.recorded = True
    ack.took = attempt.took
    return ack


def outcome_of_value(value: Any, attempt: Attempt, largest_result: int) -> Ack:
    """Return the outcome of an attempt whose handler returned this value."""
    isolation.end_if_forked()
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
    result, message = (None, value.message) if kind is ResultNotStored else result_of(value, largest_result)
    if message is None:
        return Ack(job, Outcome.OK, took, result=result)
    return Ack(job, Outcome.OK, took, error="ResultNotStored", message=keep(message, LONGEST_MESSAGE))


def outcome_of_error(error: BaseException, attempt: Attempt) -> Ack:
    """Return the outcome of an attempt that raised this error. Never raises, even if the error's own methods do."""
    isolation.end_if_forked(error)
    try:
        return _describe_outcome(error, attempt)
    except BaseException as another:
        log.error("the error of job %s (%s) cannot be described: %r", attempt.job.id, attempt.job.kind, type(another))
        job, outcome = attempt.job, Outcome.FAILED if attempt.job.is_last_attempt else Outcome.RETRY
        delay, message = Backoff().delay(job.attempt), "the error cannot be described: its own code raised another"
        return Ack(job, outcome, attempt.took, delay=delay, error="Exception", message=message)


def _describe_outcome(error: BaseException, attempt: Attempt) -> Ack:
    job, took = attempt.job, attempt.took
    if attempt.cancel_reason is CancelReason.LOST:
        return Ack(job, Outcome.LOST, took)
    if attempt.cancel_reason is CancelReason.UNRENEWED:
        return Ack(job, Outcome.RELEASED, took)  # uncharged, if the lease is still there: the store decides
    # whatever the handler makes of its CancelledError
    if attempt.cancel_reason is CancelReason.SHUTDOWN:
        return Ack(job, Outcome.RELEASED, took)
    if attempt.cancel_reason is CancelReason.CANCELLED:
        return Ack(job, Outcome.CANCELLED, took, error="Cancelled", message="cancelled while running")
    if isinstance(error, asyncio.CancelledError) and attempt.cancel_reason is CancelReason.TIMEOUT:
        timeout = TimeoutError(f"the job ran longer than its timeout of {job.timeout:g} s")
        return _failed(timeout.with_traceback(error.__traceback__), attempt)
    return _failed(error, attempt)


def _failed(error: BaseException, attempt: Attempt) -> Ack:
    job = attempt.job
    report = error.report if isinstance(error, FailedInProcess) else FailureReport.of(error)
    delay = delay_after(report.lineage, report.retry_after, job.attempt, attempt.handler.retries)
    hold = (delay if report.hold is True else report.hold) or None
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
        # the frames and the message of a handler with secrets hold them
        exception=None if isinstance(error, FailedInProcess) or handler_secrets.get() else error,
    )
