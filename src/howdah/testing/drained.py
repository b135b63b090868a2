"""Drain: run queued jobs and consume appended events in this process, and return the outcomes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Literal

from howdah import telemetry
from howdah.app import Howdah
from howdah.errors import ConsecutiveFailures, HowdahError
from howdah.outcome import Ack, Outcome
from howdah.postgres import sql
from howdah.redact import describe
from howdah.secrets import marks, masked
from howdah.sync_bridge import reject_in_loop, run_in_thread
from howdah.testing.assertions import call
from howdah.worker.options import WorkerOptions

ROUNDS = 100
"""Number of nodes started before a drain gives up: a job that always snoozes never ends."""
MAX_SHOWN = 10
RAISED = (Outcome.RETRY, Outcome.FAILED, Outcome.POISON)
COUNTED = ("ok", "retry", "failed", "poison", "cancelled", "snoozed")
Partition = tuple[str, int]
"""A consumer and the number of one of its partitions."""


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
        lines = [f"{' and '.join(filter(None, who))} raised; pass raise_failures=False if the failure is expected"]
        every = [*failures, *consumers]
        lines += [str(failure) for failure in every[:MAX_SHOWN]]
        if len(every) > MAX_SHOWN:
            lines.append(f"… and {len(every) - MAX_SHOWN} more")
        super().__init__("\n\n".join(lines))


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
    recorder = DrainRecorder()
    mine = current.set(recorder)
    unsubscribe = telemetry.subscribe(recorder.record)
    try:
        await _run_nodes(app, options, chosen, scheduled, recorder)
    finally:
        unsubscribe()
        current.reset(mine)
    drained = Drained(
        **{name: recorder.counts[name] for name in COUNTED},
        errors=tuple(recorder.errors),
        consumed=recorder.consumed,
        consumer_errors=tuple(recorder.consumer_errors),
    )
    jobs, consumers = recorder.unresolved_jobs(), recorder.unresolved_consumers()
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
    reject_in_loop("await drain(…) instead of calling drain_sync(…)")

    async def work() -> Drained:
        try:
            return await drain(app, queues=queues, slots=slots, scheduled=scheduled, raise_failures=raise_failures)
        finally:
            await app.close()

    return run_in_thread(work())


async def _run_nodes(
    app: Howdah, options: WorkerOptions, queues: list[str] | None, scheduled: bool, recorder: DrainRecorder
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
            if scheduled and (await conn.fetchval(statements["hasten"], queues, kinds) or recorder.to_retry(most)):
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
    """Class name of the error."""
    message: str
    traceback: str

    def __str__(self) -> str:
        fate = "waits to be retried" if self.outcome is Outcome.RETRY else "failed"
        text = self.traceback.rstrip() or f"{self.error}: {self.message}"
        where = f"queue {self.queue}, attempt {self.attempt} of {self.max_attempts}"
        return f"job {self.id}: {call(self.kind, self.args)}, {where}, {fate}\n{text}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerFailure:
    """A consumer that raised."""

    consumer: str
    part: int
    position: int
    """Position of the event."""
    failures: int
    """Consecutive failures on this event."""
    fate: Literal["waits to be retried", "halted", "parked"]
    error: str
    """Class name of the error."""
    message: str
    traceback: str

    def __str__(self) -> str:
        times = "once" if self.failures == 1 else f"{self.failures} times"
        text = self.traceback.rstrip() or f"{self.error}: {self.message}"
        return f"consumer {self.consumer}: event {self.position}, raised {times}, {self.fate}\n{text}"


class DrainRecorder:
    """Records the telemetry of one drain; the context tells its nodes from others in the process."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.consumed = 0
        self.errors: list[Failure] = []
        self.consumer_errors: list[ConsumerFailure] = []
        self._jobs: dict[int, Failure] = {}
        self._unresolved: dict[Partition, ConsumerFailure] = {}
        self._parked: list[ConsumerFailure] = []
        self._tries: Counter[tuple[Partition, int]] = Counter()

    def record(self, name: str, facts: dict[str, Any]) -> None:
        """Record an event if it belongs to this drain."""
        if current.get(None) is not self:
            return
        if name == "job.ack":
            for ack in facts["acks"]:
                self._acked(ack)
        elif name == "consumer.batch":
            self._consumed(facts)
        elif name in ("consumer.fail", "consumer.halt", "consumer.park"):
            self._failed(name, facts)

    def unresolved_jobs(self) -> list[Failure]:
        """Return the last attempt of each job that did not succeed later."""
        return list(self._jobs.values())

    def unresolved_consumers(self) -> list[ConsumerFailure]:
        """Return the events that a consumer stopped at or parked."""
        return [*self._parked, *self._unresolved.values()]

    def to_retry(self, most: Mapping[str, int]) -> bool:
        """Return whether a consumer still has a retry; ``most`` is the maximum number of tries of each."""
        return any(
            failure.fate == "waits to be retried" and self._tries[partition, failure.position] < most[partition[0]]
            for partition, failure in self._unresolved.items()
        )

    def _acked(self, ack: Ack) -> None:
        if ack.outcome is Outcome.RELEASED:
            return
        self.counts[ack.outcome] += 1
        self._jobs.pop(ack.job.id, None)
        if ack.outcome in RAISED:
            failure = self._jobs[ack.job.id] = _failure(ack)
            self.errors.append(failure)

    def _consumed(self, facts: Mapping[str, Any]) -> None:
        self.consumed += facts["events"]
        partition = facts["consumer"], facts["part"]
        if partition in self._unresolved and self._unresolved[partition].position <= facts["position"]:
            del self._unresolved[partition]

    def _failed(self, name: str, facts: Mapping[str, Any]) -> None:
        partition: Partition = facts["consumer"], facts["part"]
        error, message, traceback = describe(facts["error"])
        failure = ConsumerFailure(
            consumer=partition[0],
            part=partition[1],
            position=facts["position"],
            failures=facts["failures"],
            fate={"consumer.halt": "halted", "consumer.park": "parked"}.get(name, "waits to be retried"),  # type: ignore[arg-type]
            error=error,
            message=message,
            traceback=traceback,
        )
        if name == "consumer.halt":  # emitted after its failure
            self.consumer_errors.pop()
        else:
            self._tries[partition, failure.position] += 1
        self.consumer_errors.append(failure)
        if name == "consumer.park":
            self._unresolved.pop(partition, None)
            self._parked.append(failure)
        else:
            self._unresolved[partition] = failure


current: ContextVar[DrainRecorder] = ContextVar("howdah_drain")


def _failure(ack: Ack) -> Failure:
    job = ack.job
    return Failure(
        id=job.id,
        kind=job.kind,
        queue=job.queue,
        args=masked(job.args, marks(job.meta_json)),
        attempt=job.attempt,
        max_attempts=job.max_attempts,
        outcome=ack.outcome,
        error=ack.error or "",
        message=ack.message or "",
        traceback=ack.traceback or "",
    )
