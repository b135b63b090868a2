"""Drain: run what is queued and consume what was appended, in this process, and say how it went."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from howdah import telemetry
from howdah.app import Howdah
from howdah.errors import ConsecutiveFailures, HowdahError
from howdah.pg import sql
from howdah.testing.apart import complete, refuse_in_loop
from howdah.testing.notes import ConsumerFailure, Failure, Notes, current
from howdah.work.options import WorkerOptions

ROUNDS = 100
"""Nodes that are started before a drain gives up: a job that always snoozes never ends."""
MOST_SHOWN = 10
COUNTED = ("ok", "retry", "failed", "poison", "cancelled", "snoozed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Drained:
    """What a drain did: how attempts of jobs ended, how many events were consumed, and what raised."""

    ok: int = 0
    retry: int = 0
    failed: int = 0
    poison: int = 0
    cancelled: int = 0
    snoozed: int = 0
    errors: Sequence[Failure] = ()
    """Every attempt that raised, in the order they ended."""
    consumed: int = 0
    """Events that went through a consumer; one that two consumers follow counts twice."""
    consumer_errors: Sequence[ConsumerFailure] = ()
    """Every time a consumer raised."""


class JobsFailed(AssertionError):
    """Jobs or consumers raised while they were drained."""

    def __init__(
        self, failures: Sequence[Failure], drained: Drained, consumers: Sequence[ConsumerFailure] = ()
    ) -> None:
        self.failures = failures
        """The last attempt of each job that did not get past its error."""
        self.consumers = consumers
        """The events that consumers did not get past, or set aside."""
        self.drained = drained
        who = [_count(len(failures), "job"), _count(len(consumers), "consumer")]
        said = [f"{' and '.join(filter(None, who))} raised; pass raise_failures=False if that is what you test"]
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
    """Run what is queued, consume what was appended, and what either causes, until nothing is left to do now.

    ``scheduled``: what waits for its time or for a retry is run as well, without waiting. A job or a consumer that
    raised and did not get past it raises :class:`JobsFailed`, unless ``raise_failures`` is false.
    """
    chosen = None if queues is None else [queues] if isinstance(queues, str) else list(queues)
    options = WorkerOptions(
        drain=True, notify=False, slots=slots, queues=None if chosen is None else dict.fromkeys(chosen)
    )
    notes = Notes()
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


async def _work(app: Howdah, options: WorkerOptions, queues: list[str] | None, scheduled: bool, notes: Notes) -> None:
    statements = sql.load("howdah.testing", schema=app.database.schema)
    kinds, consumers = list(app.handlers), list(app.consumers)
    most = {name: consumer.options.max_failures for name, consumer in app.consumers.items()}
    conn = await app.database.connect("drain")
    try:
        for _ in range(ROUNDS):
            try:
                await app.conductor(options, upkeep=False).run()
            except ConsecutiveFailures:
                return  # noted, like every failure
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
