"""Recorder of the outcomes of jobs and consumers during a drain."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Literal

from howdah.outcome import Ack, Outcome
from howdah.redact import describe
from howdah.secrets import marks, masked
from howdah.testing.wording import call

RAISED = (Outcome.RETRY, Outcome.FAILED, Outcome.POISON)
Share = tuple[str, int]
"""A consumer and one of its partitions."""


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
        said = self.traceback.rstrip() or f"{self.error}: {self.message}"
        where = f"queue {self.queue}, attempt {self.attempt} of {self.max_attempts}"
        return f"job {self.id}: {call(self.kind, self.args)}, {where}, {fate}\n{said}"


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
        said = self.traceback.rstrip() or f"{self.error}: {self.message}"
        return f"consumer {self.consumer}: event {self.position}, raised {times}, {self.fate}\n{said}"


class DrainRecorder:
    """Records the telemetry of one drain; the context tells its nodes from others in the process."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.consumed = 0
        self.errors: list[Failure] = []
        self.consumer_errors: list[ConsumerFailure] = []
        self._jobs: dict[int, Failure] = {}
        self._shares: dict[Share, ConsumerFailure] = {}
        self._parked: list[ConsumerFailure] = []
        self._tries: Counter[tuple[Share, int]] = Counter()

    def hear(self, name: str, facts: dict[str, Any]) -> None:
        """Record an event if it belongs to this drain."""
        if current.get(None) is not self:
            return
        if name == "job.ack":
            for ack in facts["acks"]:
                self._ended(ack)
        elif name == "consumer.batch":
            self._went_on(facts)
        elif name in ("consumer.fail", "consumer.halt", "consumer.park"):
            self._failed(name, facts)

    def unresolved_jobs(self) -> list[Failure]:
        """Return the last attempt of each job that did not succeed later."""
        return list(self._jobs.values())

    def unresolved_consumers(self) -> list[ConsumerFailure]:
        """Return the events that a consumer stopped at or parked."""
        return [*self._parked, *self._shares.values()]

    def to_retry(self, most: Mapping[str, int]) -> bool:
        """Return whether a consumer still has a retry; ``most`` is the maximum number of tries of each."""
        return any(
            failure.fate == "waits to be retried" and self._tries[share, failure.position] < most[share[0]]
            for share, failure in self._shares.items()
        )

    def _ended(self, ack: Ack) -> None:
        if ack.outcome is Outcome.RELEASED:
            return
        self.counts[ack.outcome] += 1
        self._jobs.pop(ack.job.id, None)
        if ack.outcome in RAISED:
            failure = self._jobs[ack.job.id] = _failure(ack)
            self.errors.append(failure)

    def _went_on(self, facts: Mapping[str, Any]) -> None:
        self.consumed += facts["events"]
        share = facts["consumer"], facts["part"]
        if share in self._shares and self._shares[share].position <= facts["position"]:
            del self._shares[share]

    def _failed(self, name: str, facts: Mapping[str, Any]) -> None:
        share: Share = facts["consumer"], facts["part"]
        error, message, traceback = describe(facts["error"])
        failure = ConsumerFailure(
            consumer=share[0],
            part=share[1],
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
            self._tries[share, failure.position] += 1
        self.consumer_errors.append(failure)
        if name == "consumer.park":
            self._shares.pop(share, None)
            self._parked.append(failure)
        else:
            self._shares[share] = failure


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
