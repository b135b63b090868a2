"""Attempts: those running now. Starts what waits while slots are free, and ends what must end.

A task for every job costs more than a short handler does. So the jobs that wait are walked through by one task: a
handler that never waits for anything runs in it, and the next one follows. The first handler of a kind that does wait
keeps that task for itself, and from then on every job of its kind gets a task of its own.
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
from howdah.work.ack import refused
from howdah.work.execute import Attempt, Means, Why, ended_by, execute, execute_plain
from howdah.work.executors import fork
from howdah.work.guarded import start
from howdah.work.inbox import Inbox
from howdah.work.slots import Slots

log = logging.getLogger("howdah")

LOST, OK = Outcome.LOST, Outcome.OK
Key = tuple[int, int | str]
"""Token and id: a process may hold the same job under a lost and a fresh lease at once."""
PATIENCE = 5.0
"""Seconds a cancelled handler has to end before its outcome is reported without it; a thread cannot be ended."""
SLICE = 2_000_000
"""Nanoseconds a walk goes on before everything else has its turn."""


class Attempts:
    """The attempts of one worker."""

    def __init__(
        self,
        store: Store,
        handlers: Mapping[str, Handler],
        inbox: Inbox,
        slots: Slots,
        *,
        threads: int,
        largest_result: int,
        over: Callable[[Sequence[Ack]], None],
        ended: Callable[[], None],
    ) -> None:
        self._store = store
        self._handlers = handlers
        self._costly = any(handler.cost > 1 for handler in handlers.values())
        self._inbox = inbox
        self._slots = slots
        self._means = Means(threads)
        self._largest_result = largest_result
        self._over = over
        """Told how attempts ended, once for each."""
        self._ended = ended
        """Told that slots are free again."""
        self._loop = asyncio.get_running_loop()
        fork.settle()
        self.context = copy_context()
        """What handlers find in their context when they start."""
        self._running: dict[Key, Attempt] = {}
        self._waiting: set[str] = set()
        """Kinds whose handlers wait for something, and so need a task each."""
        self._walking = False
        self._filling = False

    def __len__(self) -> int:
        return len(self._running)

    def all(self) -> list[Attempt]:
        """Those running now; safe to call from another thread."""
        return list(self._running.values())

    def of(self, keys: set[Key]) -> list[Attempt]:
        """Those of these jobs of these leases."""
        return [self._running[key] for key in keys if key in self._running]

    async def close(self) -> None:
        """Let go of threads and processes."""
        await self._means.close()

    def fill(self) -> None:
        """Start what waits while there are free slots."""
        if self._filling:
            return
        self._filling = True
        try:
            while not self._walking and (attempt := self._following()) is not None:
                self._walking = True
                start(self._walk(attempt), self._loop, self.context.copy())
        finally:
            self._filling = False

    def cancel(self, attempt: Attempt, why: Why) -> None:
        """End this attempt; its handler hears of it where it waits."""
        if attempt.why is None or why is Why.LOST:
            attempt.why = why
        if attempt.begun and attempt.task is not None:
            attempt.task.cancel()
            patience = 0.1 if attempt.handler.executor == "thread" else 1.0 if why is Why.SHUTDOWN else PATIENCE
            self._loop.call_later(max(patience, attempt.handler.ends_within), self._give_up, attempt)

    # ---------------------------------------------------------------- one job, one task

    def _next(self) -> Job | None:
        """The next job, if there is a slot for it."""
        inbox, slots = self._inbox, self._slots
        if not inbox.jobs or slots.taken >= slots.total:
            return None
        if self._costly and slots.free < slots.cost(self._handlers[inbox.first.kind].cost):
            return None
        return inbox.take()

    def _enlist(self, job: Job) -> Attempt:
        attempt = Attempt(job, self._handlers[job.kind], perf_counter_ns())
        self._running[job.token, job.id] = attempt
        self._slots.taken += self._slots.cost(attempt.handler.cost) if self._costly else 1
        return attempt

    def _leave(self, attempt: Attempt) -> None:
        del self._running[attempt.job.token, attempt.job.id]
        self._slots.taken -= self._slots.cost(attempt.handler.cost) if self._costly else 1

    def _start(self, attempt: Attempt) -> None:
        # not in the context at hand: that may be the one of a job that has just ended
        if attempt.handler.transactional or attempt.handler.executor == "process":
            attempt.watch = self._watch  # when it has a connection or a process: to wait must not cost it its time
        attempt.task = start(self._execute(attempt), self._loop, self.context.copy())
        if attempt.job.timeout is not None and attempt.watch is None:
            self._watch(attempt)

    async def _execute(self, attempt: Attempt) -> None:
        attempt.begun = True
        self._end(attempt, await execute(attempt, self._means, self._store, self._largest_result))

    def _watch(self, attempt: Attempt) -> None:
        """Cancel it when its time is over."""
        job = attempt.job
        if job.timeout is not None and (job.token, job.id) in self._running:
            attempt.timer = self._loop.call_later(job.timeout, self.cancel, attempt, Why.TIMEOUT, context=self.context)

    def _end(self, attempt: Attempt, ack: Ack) -> None:
        if attempt.timer:
            attempt.timer.cancel()
        self._leave(attempt)
        self._report(attempt, ack)
        self._ended()
        if self._inbox.jobs:
            self.fill()

    def _report(self, attempt: Attempt, ack: Ack) -> None:
        """Pass on the first outcome of an attempt; later ones no longer count."""
        if attempt.over:
            return
        attempt.over = True
        if ack.outcome is LOST and attempt.why is not Why.LOST:
            refused([attempt.job], "the lease was lost before the transaction committed")
        self._over([ack])

    def _give_up(self, attempt: Attempt) -> None:
        """A handler goes on although it was cancelled: report without it. Its slot stays taken until it ends."""
        if attempt.over or (attempt.job.token, attempt.job.id) not in self._running:
            return
        attempt.stuck, job = True, attempt.job
        log.warning("job %s (%s) goes on although it was cancelled (%s)", job.id, job.kind, attempt.why)
        self._report(attempt, ended_by(asyncio.CancelledError(), attempt))

    # ---------------------------------------------------------------- many jobs, one task

    async def _walk(self, attempt: Attempt | None) -> None:
        """Run this one and those that follow, until one waits."""
        task = asyncio.current_task()
        assert task is not None
        acks: list[Ack] = []
        until = perf_counter_ns() + SLICE
        try:
            while attempt is not None:
                current.set(attempt.job)
                before = copy_context()
                running = execute_plain(attempt, self._largest_result)
                try:
                    waits_for = running.send(None)
                except StopIteration as end:
                    ack: Ack = end.value
                else:
                    self._waiting.add(attempt.job.kind)
                    break
                self._leave(attempt)
                if ack.outcome is OK:
                    acks.append(ack)
                else:
                    self._report(attempt, ack)
                if perf_counter_ns() > until:
                    self._pass_on(acks)
                    acks = []
                    await asyncio.sleep(0)
                    until = perf_counter_ns() + SLICE
                # what a handler did to its task or left in its context must not reach the next one
                touched = task.cancelling() or not _same(before, copy_context())
                attempt = None if touched else self._following()
        finally:
            self._walking = False
            self._pass_on(acks)
        self.fill()
        if attempt is not None:  # it waits: this task is its own from now on
            attempt.task, attempt.coroutine, attempt.begun = task, running, True
            self._watch(attempt)
            self._end(attempt, await _resume(running, waits_for))

    def _following(self) -> Attempt | None:
        """The next one that may be walked to; those on the way that may not get their own tasks."""
        while (job := self._next()) is not None:
            attempt = self._enlist(job)
            if attempt.handler.plain and job.kind not in self._waiting and not telemetry.around:
                return attempt
            self._start(attempt)
        return None

    def _pass_on(self, acks: list[Ack]) -> None:
        if acks:
            self._over(acks)
            self._ended()


def _same(before: Context, after: Context) -> bool:
    try:
        return before == after
    except Exception:  # it holds what cannot be compared
        return False


@coroutine
def _resume(running: Coroutine[Any, Any, Ack], waits_for: Any) -> Generator[Any, Any, Ack]:
    """Go on with what was begun by hand, and now waits for this."""
    while True:
        try:
            yield waits_for
            break
        except BaseException as error:
            try:
                waits_for = running.throw(error)
            except StopIteration as end:
                ack: Ack = end.value
                return ack
    ended: Ack = yield from running
    return ended
