"""Job: one enqueued run of a task, as a worker holds it and a handler sees it."""

from __future__ import annotations

from contextvars import ContextVar
from enum import StrEnum
from typing import Any

import msgspec

from howdah.errors import HowdahError
from howdah.secrets import MARK


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


current: ContextVar[Job] = ContextVar("howdah_job")


def current_job() -> Job:
    """The job whose handler is running here."""
    try:
        return current.get()
    except LookupError:
        raise HowdahError("no job is running here; call current_job() inside a handler") from None
