"""Runs batches: one call of a handler for many jobs, and after an error a call for each half of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextvars import Context
from functools import partial
from time import perf_counter_ns
from typing import Any, NamedTuple

from howdah import telemetry
from howdah.batch_handler import CallsBatches
from howdah.handler import finished
from howdah.job import JobBatch, current
from howdah.outcome import Ack, Outcome
from howdah.store import Interrupted, Store, Transaction
from howdah.worker import isolation
from howdah.worker.ack import LOST_BEFORE_COMMIT, report_lost
from howdah.worker.attempt import Attempt, CancelReason, outcome_of_error, outcome_of_value, run_after
from howdah.worker.executors import Executors, run_in_thread

OK = Outcome.OK
STUCK_AFTER = 5.0
"""Seconds after which the jobs of a call that ignores its timeout are reported while it still runs."""


class BatchTools(NamedTuple):
    """The objects of a worker that its batches use."""

    executors: Executors
    store: Store
    largest_result: int
    context: Context
    """The context in which handlers start."""
    cancel: Callable[[Attempt, CancelReason], None]


class BatchRun:
    """The attempts of one batch, which share a slot."""

    def __init__(
        self,
        attempts: list[Attempt],
        tools: BatchTools,
        report: Callable[[Sequence[Attempt], Sequence[Ack]], None],
    ) -> None:
        self._attempts = attempts
        self._tools = tools
        self._report = report
        """Called with attempts that have ended, and their outcomes."""

    async def run(self) -> None:
        """Call the handler until every job has an outcome. Never raises."""
        parts = [self._attempts]
        while parts:
            part = parts.pop()
            call = BatchCall(part, self._tools)
            await call.run()
            over, rest = part, []
            if len(call.acks) < len(part):
                ended = {(ack.job.token, ack.job.id) for ack in call.acks}
                rest = [each for each in part if not each.finished and (each.job.token, each.job.id) not in ended]
                over = [each for each in part if each.finished or (each.job.token, each.job.id) in ended]
            self._report(over, call.acks)
            if call.raised and len(rest) > 1:
                half = len(rest) // 2
                parts += [rest[half:], rest[:half]]
            elif rest:
                parts.append(rest)


class BatchCall:
    """One call of a batch handler."""

    def __init__(self, attempts: list[Attempt], tools: BatchTools) -> None:
        self._handler: CallsBatches = attempts[0].handler  # type: ignore[assignment]
        self._attempts = attempts
        self._items: list[Any] = []
        self._tools = tools
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timed_out = False
        self.acks: list[Ack] = []
        """The outcomes of jobs that have one; the others must be run again."""
        self.raised = False
        """True if the handler raised, so that the others must be run again in halves."""

    async def run(self) -> None:
        """Call the handler in a task of its own, which the cancellation of any of its jobs cancels."""
        task = self._task = isolation.start(self._execute(), asyncio.get_running_loop(), self._tools.context.copy())
        if not task.done():
            for attempt in self._attempts:
                attempt.task = task
            await asyncio.wait({task})
        if self._timer:
            self._timer.cancel()
        for attempt in self._attempts:
            attempt.running, attempt.task = False, None

    async def _execute(self) -> None:
        for attempt in self._attempts:
            attempt.running = True  # from here on a cancelled task is a cancelled handler
        whole = self._attempts
        self.acks += [
            _cancelled(attempt) for attempt in whole if attempt.cancel_reason is not None
        ]  # before it started
        self._attempts = self._readable([attempt for attempt in whole if attempt.cancel_reason is None])
        try:
            if self._attempts:
                await self._call()
        except Interrupted as error:
            self._interrupted(error)
        except BaseException as error:  # SystemExit and KeyboardInterrupt too: the node must survive its handlers
            isolation.end_if_forked(error)
            self._failed(error)
        self._attempts = whole
        if self._handler.has_after:
            for ack in self.acks:
                current.set(ack.job)
                await run_after(attempt.handler, ack)

    def _readable(self, attempts: list[Attempt]) -> list[Attempt]:
        """Decode the arguments; a job whose arguments do not fit fails at once, without the others."""
        readable = []
        for attempt in attempts:
            try:
                self._items.append(self._handler.read(attempt.job))
                readable.append(attempt)
            except Exception as error:
                self._handler.keep_secrets([attempt.job])
                self.acks.append(outcome_of_error(error, attempt))
        return readable

    async def _call(self) -> None:
        jobs = [attempt.job for attempt in self._attempts]
        batch = JobBatch.of(jobs)
        current.set(batch)
        self._handler.keep_secrets(jobs)
        with telemetry.surround(batch):
            if self._handler.transactional:
                await self._transact()
                return
            self._start_clock()
            if self._handler.executor == "async":
                value = await self._handler.call_batch(jobs, self._items)
            else:
                value = await run_in_thread(
                    partial(self._handler.call_batch, jobs, self._items), self._tools.executors.threads
                )
            self.acks += self._outcomes(await finished(value))

    async def _transact(self) -> None:
        jobs = [attempt.job for attempt in self._attempts]
        acks: list[Ack] = []

        async def body(tx: Transaction) -> list[Ack]:
            nonlocal acks
            self._start_clock()
            try:
                value = await finished(await self._handler.call_batch(jobs, self._items, tx))
            except BaseException as error:
                isolation.end_if_forked(error)  # a fork must not roll back: the connection is its parent's
                raise
            acks = self._outcomes(value)
            done = [ack for ack in acks if ack.outcome is OK]
            if not done:
                raise _NothingDone
            return done

        try:
            lost = await self._tools.store.transact_batch(body)
        except _NothingDone:
            self.acks += acks
            return
        if lost:
            known = {id(each.job) for each in self._attempts if each.cancel_reason is CancelReason.LOST}
            report_lost([ack.job for ack in lost if id(ack.job) not in known], LOST_BEFORE_COMMIT)
            self.acks += [Ack(ack.job, Outcome.LOST, ack.took) for ack in lost]
            return
        for ack in acks:
            ack.recorded = ack.outcome is OK
            self._tools.executors.interruptions.reset(ack.job)
        self.acks += acks

    def _outcomes(self, value: Any) -> list[Ack]:
        """Return the outcome of each job: success, or an element of the list that the handler returned."""
        isolation.end_if_forked()
        attempts = self._attempts
        if value is None:
            took = attempts[0].took
            return [Ack(attempt.job, OK, took) for attempt in attempts]
        if type(value) not in (list, tuple) or len(value) != len(attempts):  # not isinstance: it runs code of the value
            size = f" of {len(value)}" if type(value) in (list, tuple) else ""
            wrong = TypeError(
                f"the handler returned a {type(value).__name__}{size} for {len(attempts)} jobs; return None, or a list"
                " with one element per job"
            )
            return [outcome_of_error(wrong, attempt) for attempt in attempts]
        return [
            outcome_of_error(each, attempt)
            if issubclass(type(each), BaseException)
            else outcome_of_value(each, attempt, self._tools.largest_result)
            for each, attempt in zip(value, attempts, strict=True)
        ]

    # ---------------------------------------------------------------- errors

    def _interrupted(self, error: Interrupted) -> None:
        """Release all jobs, uncharged: the server or the connection failed, not the handler."""
        delay = self._tools.executors.interruptions.delay(self._attempts[0].job, error)
        released = [attempt for attempt in self._attempts if attempt.cancel_reason is None]
        telemetry.emit("job.release", jobs=len(released))
        self.acks += [_cancelled(attempt) for attempt in self._attempts if attempt.cancel_reason is not None]
        self.acks += [Ack(attempt.job, Outcome.RELEASED, attempt.took, delay=delay) for attempt in released]

    def _failed(self, error: BaseException) -> None:
        """Find the jobs that this error ends; the others run again."""
        cancelled = [attempt for attempt in self._attempts if attempt.cancel_reason is not None]
        if cancelled:
            self.acks += [_cancelled(attempt, error) for attempt in cancelled]
            return
        if self._timed_out and isinstance(error, asyncio.CancelledError):
            timeout = TimeoutError(f"the job ran longer than its timeout of {self._timeout():g} s")
            error = timeout.with_traceback(error.__traceback__)
        self.raised = True
        first = outcome_of_error(error, self._attempts[0])
        if len(self._attempts) == 1:
            self.acks.append(first)
        elif first.hold is not None:  # the handler's dependency asks to slow down; more calls would not help
            self.acks += [first, *(outcome_of_error(error, attempt) for attempt in self._attempts[1:])]

    # ---------------------------------------------------------------- time

    def _start_clock(self) -> None:
        """Start the time of the attempts, and their timeout: waiting for a connection does not count."""
        now = perf_counter_ns()
        for attempt in self._attempts:
            attempt.started = now
        timeout = self._timeout()
        if timeout is not None:
            self._timer = asyncio.get_running_loop().call_later(timeout, self._time_out, context=Context())

    def _timeout(self) -> float | None:
        """Return the shortest timeout of the jobs."""
        return min((each.job.timeout for each in self._attempts if each.job.timeout is not None), default=None)

    def _time_out(self) -> None:
        if self._task is None or self._task.done():
            return
        if self._handler.executor == "thread" or self._timed_out:  # it cannot be ended: all of its jobs are charged
            for attempt in self._attempts:
                self._tools.cancel(attempt, CancelReason.TIMEOUT)
            return
        self._timed_out = True
        self._task.cancel()
        self._timer = asyncio.get_running_loop().call_later(STUCK_AFTER, self._time_out, context=Context())


class _NothingDone(Exception):
    """Rolls back the transaction of a batch of which no job succeeded."""


def _cancelled(attempt: Attempt, error: BaseException | None = None) -> Ack:
    """Return the outcome of an attempt that was cancelled, whatever its handler raised then."""
    cancelled = error if isinstance(error, asyncio.CancelledError) else asyncio.CancelledError()
    return outcome_of_error(cancelled, attempt)
