"""Jobs: as they are enqueued, and as a worker holds them and a handler sees them."""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec

from howdah.errors import ArgumentError, HowdahError
from howdah.secrets import MARK

LONGEST_NAME = 100
"""Characters of the name of a kind, a queue and other things that are declared."""
PLATFORM_PREFIX = "howdah:"
"""Kinds with this prefix are Howdah's own; they cannot be enqueued over HTTP, in SQL or by the command line."""
PLATFORM_QUEUE = "howdah"
"""The only queue from which jobs of such kinds run."""


class State(StrEnum):
    """State of a job. ``queued`` includes scheduled jobs and jobs waiting for a retry."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Job(msgspec.Struct, gc=False):
    """One job under lease. ``token`` rises with every claim: pass it along to fence external effects."""

    id: Any
    """A number; for rows of your own table, the value of its primary key."""
    queue: str
    kind: str
    attempt: int
    max_attempts: int
    token: int
    payload: bytes
    key: str | None = None
    timeout: float | None = None
    meta_json: bytes | None = None
    trace: str | None = None
    waited: float | None = None

    @property
    def args(self) -> Any:
        """The arguments as plain JSON values."""
        return msgspec.json.decode(self.payload)

    @property
    def meta(self) -> dict[str, Any]:
        """The metadata given at enqueue."""
        given = msgspec.json.decode(self.meta_json, type=dict[str, Any]) if self.meta_json else {}
        given.pop(MARK, None)
        return given

    def __repr__(self) -> str:
        # without the payload, which may hold secrets
        return f"Job({self.id!r}, {self.kind!r}, queue={self.queue!r}, attempt={self.attempt}, token={self.token})"

    @property
    def is_last_attempt(self) -> bool:
        return self.attempt >= self.max_attempts


class JobBatch(Job, gc=False):
    """The jobs of one call of a batch handler in place of a single job; the other fields are those of the first."""

    jobs: tuple[Job, ...] = ()

    @classmethod
    def of(cls, jobs: Sequence[Job]) -> JobBatch:
        """Put these jobs together."""
        first = jobs[0]
        return cls(
            id=first.id,
            queue=first.queue,
            kind=first.kind,
            attempt=first.attempt,
            max_attempts=first.max_attempts,
            token=first.token,
            payload=b"{}",
            trace=first.trace if all(job.trace == first.trace for job in jobs) else None,
            jobs=tuple(jobs),
        )

    @property
    def traces(self) -> tuple[str, ...]:
        """The trace contexts of the jobs, each once."""
        return tuple(dict.fromkeys(job.trace for job in self.jobs if job.trace))


current: ContextVar[Job] = ContextVar("howdah_job")


def current_job() -> Job:
    """The job whose handler is running here."""
    job = current.get(None)
    if job is None:
        raise HowdahError("no job is running here; call current_job() inside a handler")
    if isinstance(job, JobBatch):
        raise HowdahError("a batch of jobs is running here; take them as a parameter `jobs: list[Job]`")
    return job


LONGEST_KEY = 300
LONGEST_TIMEOUT = 1e9
LONGEST_WAIT = 100 * 365 * 86400.0
EARLIEST, LATEST = datetime(1, 1, 2, tzinfo=UTC), datetime(9999, 12, 30, tzinfo=UTC)
"""Bounds of ``run_at``: every moment between them can be read in every time zone."""


class Enqueued(NamedTuple):
    """The result of an enqueue."""

    id: int
    fresh: bool
    """False: a live job already held the unique key; ``id`` is that job."""


class NewJob(msgspec.Struct, gc=False, kw_only=True):
    """The immutable facts of a job."""

    kind: str
    payload: bytes = b"{}"
    queue: str = "default"
    priority: int = 0
    """From -100 to 100, larger first."""
    run_at: datetime | None = None
    delay: float | None = None
    """Seconds from now, by the server's clock."""
    max_attempts: int = 5
    timeout: float | None = None
    key: str | None = None
    """At most one live job has this key."""
    meta: bytes | None = None
    trace: str | None = None

    def __repr__(self) -> str:
        # without the payload, which may contain secrets
        return f"NewJob({self.kind!r}, queue={self.queue!r})"

    def check(self) -> None:
        """Raise :class:`ArgumentError` for values that the database would reject."""
        for what, name in (("kind", self.kind), ("queue", self.queue)):
            if not 1 <= len(name) <= LONGEST_NAME or not name.isprintable():
                raise ArgumentError(f"{what} must be 1 to {LONGEST_NAME} printable characters, got {name!r}")
        if self.kind.startswith(PLATFORM_PREFIX) and self.queue != PLATFORM_QUEUE:
            raise ArgumentError(
                f"kind {self.kind!r} is Howdah's own and runs only in queue {PLATFORM_QUEUE!r}, got {self.queue!r}"
            )
        if not -100 <= self.priority <= 100:
            raise ArgumentError(f"priority must be from -100 to 100, got {self.priority!r}")
        if not 1 <= self.max_attempts <= 1000:
            raise ArgumentError(f"max_attempts must be from 1 to 1000, got {self.max_attempts!r}")
        if self.timeout is not None and not 0 < self.timeout <= LONGEST_TIMEOUT:
            raise ArgumentError(f"timeout must be above zero and at most 1e9 seconds, got {self.timeout!r}")
        if self.delay is not None and not 0 <= self.delay <= LONGEST_WAIT:
            raise ArgumentError(f"delay must be from zero to {LONGEST_WAIT:.0f} seconds, got {self.delay!r}")
        if self.run_at is not None:
            if self.delay is not None:
                raise ArgumentError("give either run_at or delay, not both")
            if self.run_at.tzinfo is None:
                raise ArgumentError(f"run_at must name its time zone, got {self.run_at!r}; add tzinfo")
            if not EARLIEST <= self.run_at < LATEST:
                raise ArgumentError(f"run_at must be from 0001-01-02 to 9999-12-29, got {self.run_at.isoformat()}")
        if self.key is not None and (not 1 <= len(self.key) <= LONGEST_KEY or not self.key.isprintable()):
            raise ArgumentError(f"key must be 1 to {LONGEST_KEY} printable characters, got {self.key!r}")
