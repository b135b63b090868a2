"""The running attempts of a worker: starts jobs while slots are free, and ends attempts that must end.

A task for every job costs more than a short handler. So one task runs the waiting jobs one after another: a handler
that never suspends runs in it, and the next job follows. The first handler of a kind that suspends keeps that task, and
from then on every job of its kind gets a task of its own.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Generator, Mapping, Sequence
from contextvars import Context, copy_context
from time import perf_counter_ns
from types import coroutine
from typing import Any

from howdah import telemetry
from howdah.handler import Handler
from howdah.job import Job, current
from howdah.outcome import Ack, Outcome
from howdah.store import Store
from howdah.worker import isolation
from howdah.worker.ack import LOST_BEFORE_COMMIT, report_lost
from howdah.worker.attempt import Attempt, CancelReason, execute, execute_plain, outcome_of_error
from howdah.worker.batch import BatchRun, BatchTools
from howdah.worker.capacity import Prefetched, Slots
from howdah.worker.executors import Executors
from howdah.worker.isolation import start

log = logging.getLogger("howdah")

LOST, OK = Outcome.LOST, Outcome.OK
Key = tuple[int, int | str]
"""Token and id: a process can hold the same job under a lost and a new lease at once."""
CANCEL_TIMEOUT = 5.0
"""Seconds after which the outcome of a cancelled handler is reported while it still runs (threads cannot be ended)."""
TIME_SLICE = 2_000_000
"""Nanoseconds that handlers run one after another before the event loop runs other tasks."""


class Attempts:
    """The attempts of one worker."""

    def __init__(
        self,
        store: Store,
        handlers: Mapping[str, Handler],
        prefetched: Prefetched,
        slots: Slots,
        *,
        threads: int,
        largest_result: int,
        finished: Callable[[Sequence[Ack]], None],
        slots_freed: Callable[[], None],
    ) -> None:
        self._store = store
        self._handlers = handlers
        self._costly = any(handler.cost > 1 for handler in handlers.values())
        self._prefetched = prefetched
        self._slots = slots
        self._executors = Executors(threads)
        self._largest_result = largest_result
        self._finished = finished
        """Called with the outcomes of finished attempts, once for each attempt."""
        self._slots_freed = slots_freed
        """Called when slots are free again."""
        self._loop = asyncio.get_running_loop()
        isolation.settle()
        self.context = copy_context()
        """The context in which handlers start."""
        self._running: dict[Key, Attempt] = {}
        self._suspending: set[str] = set()
        """Kinds whose handlers suspend, so that each job needs a task of its own."""
        self._inline = False
        """True if a task runs waiting jobs one after another."""
        self._filling = False

    def __len__(self) -> int:
        return len(self._running)

    def all(self) -> list[Attempt]:
        """Return the running attempts; safe to call from another thread."""
        return list(self._running.values())

    def of(self, keys: set[Key]) -> list[Attempt]:
        """Return the running attempts with these keys."""
        return [self._running[key] for key in keys if key in self._running]

    async def close(self) -> None:
        """Close the executors."""
        await self._executors.close()

    def fill(self) -> None:
        """Start prefetched jobs while slots are free."""
        if self._filling:
            return
        self._filling = True
        try:
            while not self._inline and (attempt := self._next_inline()) is not None:
                self._inline = True
                start(self._run_inline(attempt), self._loop, self.context.copy())
        finally:
            self._filling = False

    def cancel(self, attempt: Attempt, reason: CancelReason) -> None:
        """Cancel this attempt; its handler gets a :class:`asyncio.CancelledError` where it is suspended."""
        if attempt.cancel_reason is None or reason is CancelReason.LOST:
            attempt.cancel_reason = reason
        if attempt.running and attempt.task is not None:
            attempt.task.cancel()
            shutdown = reason is CancelReason.SHUTDOWN
            timeout = 0.1 if attempt.handler.executor == "thread" else 1.0 if shutdown else CANCEL_TIMEOUT
            self._loop.call_later(max(timeout, attempt.handler.ends_within), self._give_up, attempt)

    # ---------------------------------------------------------------- a task for each job

    def _pop_next(self) -> Job | None:
        """Return the next job if there is a slot for it."""
        prefetched, slots = self._prefetched, self._slots
        if not prefetched.jobs or slots.taken >= slots.total:
            return None
        try:
            if self._costly and slots.free < slots.cost(self._handlers[prefetched.first.kind].cost):
                return None
            return prefetched.pop()
        except IndexError:  # the heartbeat thread has just taken the last one
            return None

    def _add(self, job: Job) -> Attempt:
        handler = self._handlers[job.kind]
        job.timeout = handler.timeout if job.timeout is None else job.timeout
        attempt = Attempt(job, handler, perf_counter_ns())
        self._running[job.token, job.id] = attempt
        self._slots.taken += self._slots.cost(attempt.handler.cost) if self._costly else 1
        return attempt

    def _remove(self, attempt: Attempt) -> None:
        del self._running[attempt.job.token, attempt.job.id]
        self._slots.taken -= self._slots.cost(attempt.handler.cost) if self._costly else 1

    def _start(self, attempt: Attempt) -> None:
        if attempt.handler.batch:
            self._start_batch(attempt)
            return
        # a copy of the start context: the current one may belong to a job that has just finished
        if attempt.handler.transactional or attempt.handler.executor == "process":
            # the timeout runs from the moment it has a connection or a process: waiting for one is not its work
            attempt.start_timer = self._start_timer
        attempt.task = start(self._execute(attempt), self._loop, self.context.copy())
        if attempt.job.timeout is not None and attempt.start_timer is None:
            self._start_timer(attempt)

    async def _execute(self, attempt: Attempt) -> None:
        attempt.running = True
        self._finish(attempt, await execute(attempt, self._executors, self._store, self._largest_result))

    def _start_timer(self, attempt: Attempt) -> None:
        """Cancel the attempt when its timeout has passed."""
        job = attempt.job
        if job.timeout is not None and (job.token, job.id) in self._running:
            attempt.timer = self._loop.call_later(
                job.timeout, self.cancel, attempt, CancelReason.TIMEOUT, context=self.context
            )

    def _finish(self, attempt: Attempt, ack: Ack) -> None:
        if attempt.timer:
            attempt.timer.cancel()
        self._remove(attempt)
        self._report(attempt, ack)
        self._slots_freed()
        if self._prefetched.jobs:
            self.fill()

    def _report(self, attempt: Attempt, ack: Ack) -> None:
        """Report the first outcome of an attempt; later ones are ignored."""
        if attempt.finished:
            return
        attempt.finished = True
        if ack.outcome is LOST and attempt.cancel_reason is not CancelReason.LOST:
            report_lost([attempt.job], LOST_BEFORE_COMMIT)
        self._finished([ack])

    def _give_up(self, attempt: Attempt) -> None:
        """Report a cancelled handler that still runs. Its slot stays taken until it ends."""
        if attempt.finished or (attempt.job.token, attempt.job.id) not in self._running:
            return
        attempt.stuck, job = True, attempt.job
        log.warning("job %s (%s) still runs after it was cancelled (%s)", job.id, job.kind, attempt.cancel_reason)
        self._report(attempt, outcome_of_error(asyncio.CancelledError(), attempt))

    # ---------------------------------------------------------------- one call for many jobs

    def _start_batch(self, first: Attempt) -> None:
        """Run an attempt together with the waiting jobs of its kind, in one slot."""
        handler = first.handler
        jobs = self._prefetched.pop_kind(first.job.kind, handler.batch - 1)
        attempts = [first, *(Attempt(job, handler, first.started) for job in jobs)]
        self._running.update({(each.job.token, each.job.id): each for each in attempts})
        tools = BatchTools(self._executors, self._store, self._largest_result, self.context, self.cancel)
        run = BatchRun(attempts, tools, self._report_batch)
        for each in attempts:
            each.batch = run
        start(self._run_batch(run, handler), self._loop, self.context.copy())

    async def _run_batch(self, run: BatchRun, handler: Handler) -> None:
        await run.run()
        self._slots.taken -= self._slots.cost(handler.cost) if self._costly else 1
        self._slots_freed()
        if self._prefetched.jobs:
            self.fill()

    def _report_batch(self, ended: Sequence[Attempt], acks: Sequence[Ack]) -> None:
        """Report outcomes of a batch, unless they were reported before, and remove the attempts that have ended."""
        reported = {(each.job.token, each.job.id) for each in ended if each.finished}
        for each in ended:
            each.finished = True
            del self._running[each.job.token, each.job.id]
        if new := [ack for ack in acks if (ack.job.token, ack.job.id) not in reported] if reported else acks:
            self._finished(new)

    # ---------------------------------------------------------------- one task for many jobs

    async def _run_inline(self, attempt: Attempt | None) -> None:
        """Run this attempt and the next ones in one task, until a handler suspends."""
        task = asyncio.current_task()
        assert task is not None
        acks: list[Ack] = []
        until = perf_counter_ns() + TIME_SLICE
        try:
            while attempt is not None:
                current.set(attempt.job)
                before = copy_context()
                running = execute_plain(attempt, self._largest_result)
                try:
                    awaited = running.send(None)
                except StopIteration as end:
                    ack: Ack = end.value
                else:
                    self._suspending.add(attempt.job.kind)
                    break
                self._remove(attempt)
                if ack.outcome is OK:
                    acks.append(ack)
                else:
                    self._report(attempt, ack)
                if perf_counter_ns() > until:
                    self._report_all(acks)
                    acks = []
                    await asyncio.sleep(0)
                    until = perf_counter_ns() + TIME_SLICE
                # a cancelled task or a changed context must not reach the next handler
                touched = task.cancelling() or not _same(before, copy_context())
                attempt = None if touched else self._next_inline()
        finally:
            self._inline = False
            self._report_all(acks)
        self.fill()
        if attempt is not None:  # its handler suspended: from now on this task belongs to it
            attempt.task, attempt.coroutine, attempt.running = task, running, True
            self._start_timer(attempt)
            self._finish(attempt, await _resume(running, awaited))

    def _next_inline(self) -> Attempt | None:
        """Return the next attempt that can run inline; start those before it that cannot in tasks of their own."""
        while (job := self._pop_next()) is not None:
            attempt = self._add(job)
            if attempt.handler.plain and job.kind not in self._suspending and not telemetry.around:
                return attempt
            self._start(attempt)
        return None

    def _report_all(self, acks: list[Ack]) -> None:
        if acks:
            self._finished(acks)
            self._slots_freed()


def _same(before: Context, after: Context) -> bool:
    try:
        return before == after
    except Exception:  # it holds values that cannot be compared
        return False


@coroutine
def _resume(running: Coroutine[Any, Any, Ack], awaited: Any) -> Generator[Any, Any, Ack]:
    """Resume a coroutine that was started with ``send`` and has yielded ``awaited``."""
    while True:
        try:
            yield awaited
            break
        except BaseException as error:
            try:
                awaited = running.throw(error)
            except StopIteration as end:
                ack: Ack = end.value
                return ack
    last: Ack = yield from running
    return last
