"""Drain: run queued jobs and consume appended events in this process, and return the outcomes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from howdah import telemetry
from howdah.app import Howdah
from howdah.errors import ConsecutiveFailures, HowdahError
from howdah.postgres import sql
from howdah.testing.recorder import ConsumerFailure, DrainRecorder, Failure, current
from howdah.testing.sync import complete, refuse_in_loop
from howdah.worker.options import WorkerOptions

ROUNDS = 100
"""Number of nodes started before a drain gives up: a job that always snoozes never ends."""
MOST_SHOWN = 10
COUNTED = ("ok", "retry", "failed", "poison", "cancelled", "snoozed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Drained:
    """Result of a drain: outcomes of attempts, number of consumed events, and the failures."""

    ok: int = 0
    retry: int = 0
    failed: int = 0
    poison: int = 0
    cancelled: int = 0
    snoozed: int = 0
    errors: Sequence[Failure] = ()
    """Every attempt that raised, in the order they ended."""
    consumed: int = 0
    """Number of consumed events; an event consumed by two consumers counts twice."""
    consumer_errors: Sequence[ConsumerFailure] = ()
    """Every failure of a consumer."""


class JobsFailed(AssertionError):
    """Jobs or consumers raised during a drain."""

    def __init__(
        self, failures: Sequence[Failure], drained: Drained, consumers: Sequence[ConsumerFailure] = ()
    ) -> None:
        self.failures = failures
        """Last attempt of each job that did not succeed later."""
        self.consumers = consumers
        """Events that a consumer stopped at or parked."""
        self.drained = drained
        who = [_count(len(failures), "job"), _count(len(consumers), "consumer")]
        said = [f"{' and '.join(filter(None, who))} raised; pass raise_failures=False if the failure is expected"]
        every = [*failures, *consumers]
        said += [str(failure) for failure in every[:MOST_SHOWN]]
        if len(every) > MOST_SHOWN:
            said.append(f"… and {len(every) - MOST_SHOWN} more")
        super().__init__("\n\n".join(said))


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}" if number else ""


async def drain(
    app: Howdah,
    *,
    queues: Iterable[str] | None = None,
    slots: int = 10,
    scheduled: bool = False,
    raise_failures: bool = True,
) -> Drained:
    """Run queued jobs and consume appended events, including those they cause, until no work is due.

    ``scheduled``: scheduled jobs and retries are run as well, without waiting. If a job or a consumer raised and did
    not succeed later, :class:`JobsFailed` is raised, unless ``raise_failures`` is false.
    """
    chosen = None if queues is None else [queues] if isinstance(queues, str) else list(queues)
    options = WorkerOptions(
        drain=True, notify=False, slots=slots, queues=None if chosen is None else dict.fromkeys(chosen)
    )
    notes = DrainRecorder()
    mine = current.set(notes)
    unsubscribe = telemetry.subscribe(notes.hear)
    try:
        await _work(app, options, chosen, scheduled, notes)
    finally:
        unsubscribe()
        current.reset(mine)
    drained = Drained(
        **{name: notes.counts[name] for name in COUNTED},
        errors=tuple(notes.errors),
        consumed=notes.consumed,
        consumer_errors=tuple(notes.consumer_errors),
    )
    jobs, consumers = notes.unresolved_jobs(), notes.unresolved_consumers()
    if raise_failures and (jobs or consumers):
        raise JobsFailed(jobs, drained, consumers)
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


async def _work(
    app: Howdah, options: WorkerOptions, queues: list[str] | None, scheduled: bool, notes: DrainRecorder
) -> None:
    statements = sql.load("howdah.testing", schema=app.database.schema)
    kinds, consumers = list(app.handlers), list(app.consumers)
    most = {name: consumer.options.max_failures for name, consumer in app.consumers.items()}
    conn = await app.database.connect("drain")
    try:
        for _ in range(ROUNDS):
            try:
                await app.node(options, upkeep=False).run()
            except ConsecutiveFailures:
                return  # recorded like every failure
            if scheduled and (await conn.fetchval(statements["hasten"], queues, kinds) or notes.to_retry(most)):
                continue
            if await conn.fetchval(statements["left"], queues, kinds):
                continue
            if not consumers or not await conn.fetchval(statements["behind"], consumers):
                return
    finally:
        conn.terminate()
    raise HowdahError(
        f"there is still work after {ROUNDS} rounds; does a job snooze or enqueue itself for ever, or a consumer append"
        " what it follows?"
    )
