"""Drain: run what is queued, in this process, and say how it went."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from howdah import telemetry
from howdah.app import Howdah
from howdah.errors import HowdahError
from howdah.outcome import Ack, Outcome
from howdah.pg import sql
from howdah.testing.apart import complete, refuse_in_loop
from howdah.testing.words import call
from howdah.work.options import WorkerOptions

ROUNDS = 100
"""Times that jobs are made due before a drain gives up: a job that always snoozes never ends."""
MOST_SHOWN = 10
COUNTED = ("ok", "retry", "failed", "poison", "cancelled", "snoozed")
RAISED = (Outcome.RETRY, Outcome.FAILED, Outcome.POISON)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """An attempt that raised."""

    id: int
    kind: str
    queue: str
    args: Any
    attempt: int
    max_attempts: int
    outcome: Outcome
    """``retry``, ``failed`` or ``poison``."""
    error: str
    """The class of the error."""
    message: str
    traceback: str

    def __str__(self) -> str:
        fate = "waits to be retried" if self.outcome is Outcome.RETRY else "failed"
        said = self.traceback.rstrip() or f"{self.error}: {self.message}"
        where = f"queue {self.queue}, attempt {self.attempt} of {self.max_attempts}"
        return f"job {self.id}: {call(self.kind, self.args)}, {where}, {fate}\n{said}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Drained:
    """What a drain did: how many attempts ended in which way, and those that raised."""

    ok: int = 0
    retry: int = 0
    failed: int = 0
    poison: int = 0
    cancelled: int = 0
    snoozed: int = 0
    errors: Sequence[Failure] = ()
    """Every attempt that raised, in the order they ended."""


class JobsFailed(AssertionError):
    """Jobs raised while they were drained."""

    def __init__(self, failures: Sequence[Failure], drained: Drained) -> None:
        self.failures = failures
        """The last attempt of each job that did not get past its error."""
        self.drained = drained
        jobs = "1 job" if len(failures) == 1 else f"{len(failures)} jobs"
        said = [f"{jobs} raised; pass raise_failures=False if that is what you test"]
        said += [str(failure) for failure in failures[:MOST_SHOWN]]
        if len(failures) > MOST_SHOWN:
            said.append(f"… and {len(failures) - MOST_SHOWN} more")
        super().__init__("\n\n".join(said))


async def drain(
    app: Howdah,
    *,
    queues: Iterable[str] | None = None,
    slots: int = 10,
    scheduled: bool = False,
    raise_failures: bool = True,
) -> Drained:
    """Run what is queued now, and what that enqueues, in this process, until nothing is left to do now.

    ``scheduled``: jobs that wait for their time or for a retry are run as well, without waiting. A job that
    raised and was not run again raises :class:`JobsFailed`, unless ``raise_failures`` is false.
    """
    chosen = None if queues is None else [queues] if isinstance(queues, str) else list(queues)
    options = WorkerOptions(
        drain=True, notify=False, slots=slots, queues=None if chosen is None else dict.fromkeys(chosen)
    )
    notes = _Notes()
    mine = _current.set(notes)
    unsubscribe = telemetry.subscribe(notes.hear)
    try:
        await _work(app, options, chosen, scheduled)
    finally:
        unsubscribe()
        _current.reset(mine)
    drained = notes.drained()
    if raise_failures and (failures := notes.unresolved()):
        raise JobsFailed(failures, drained)
    return drained


def drain_sync(
    app: Howdah,
    *,
    queues: Iterable[str] | None = None,
    slots: int = 10,
    scheduled: bool = False,
    raise_failures: bool = True,
) -> Drained:
    """:func:`drain` for synchronous tests."""
    refuse_in_loop("await drain(…) instead of calling drain_sync(…)")

    async def work() -> Drained:
        try:
            return await drain(app, queues=queues, slots=slots, scheduled=scheduled, raise_failures=raise_failures)
        finally:
            await app.close()

    return complete(work())


async def _work(app: Howdah, options: WorkerOptions, queues: list[str] | None, scheduled: bool) -> None:
    statements = sql.load("howdah.testing", schema=app.database.schema)
    conn = await app.database.connect("drain")
    try:
        for _ in range(ROUNDS):
            await app.conductor(options, upkeep=False).run()
            if scheduled and await conn.fetchval(statements["hasten"], queues, list(app.handlers)):
                continue
            if not await conn.fetchval(statements["left"], queues, list(app.handlers)):
                return
    finally:
        conn.terminate()
    raise HowdahError(f"jobs are still waiting after {ROUNDS} rounds; does one snooze or enqueue itself for ever?")


_current: ContextVar[_Notes] = ContextVar("howdah_drain")


class _Notes:
    """What is heard of one drain. Telemetry tells of every node in the process, the context whose it was."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._errors: list[Failure] = []
        self._last: dict[int, Failure] = {}

    def hear(self, name: str, facts: dict[str, Any]) -> None:
        if name == "job.ack" and _current.get(None) is self:
            for ack in facts["acks"]:
                self._note(ack)

    def _note(self, ack: Ack) -> None:
        if ack.outcome is Outcome.RELEASED:
            return
        self._counts[ack.outcome] += 1
        self._last.pop(ack.job.id, None)
        if ack.outcome in RAISED:
            failure = self._last[ack.job.id] = _failure(ack)
            self._errors.append(failure)

    def unresolved(self) -> list[Failure]:
        return list(self._last.values())

    def drained(self) -> Drained:
        return Drained(**{name: self._counts[name] for name in COUNTED}, errors=tuple(self._errors))


def _failure(ack: Ack) -> Failure:
    job = ack.job
    return Failure(
        id=job.id,
        kind=job.kind,
        queue=job.queue,
        args=job.args,
        attempt=job.attempt,
        max_attempts=job.max_attempts,
        outcome=ack.outcome,
        error=ack.error or "",
        message=ack.message or "",
        traceback=ack.traceback or "",
    )
