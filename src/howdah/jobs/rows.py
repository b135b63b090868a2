"""What admins see: jobs, attempts, queues and nodes as values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt that did not succeed."""

    attempt: int
    outcome: str
    """retry, failed, cancelled or lost."""
    node: int | None
    node_name: str | None
    started_at: datetime | None
    ended_at: datetime
    error: str | None
    """The class of the error."""
    message: str | None
    traceback: str | None


class JobRow(msgspec.Struct, frozen=True, kw_only=True):
    """Everything known about one job."""

    id: int
    kind: str
    queue: str
    state: str | None
    """``None`` only while a job is on its way from one place to the next."""
    priority: int
    attempt: int | None
    max_attempts: int
    resets: int
    """Attempts that ended because a node went silent."""
    key: str | None
    args: Any
    meta: Any
    trace: str | None
    timeout: float | None
    enqueued_at: datetime
    run_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    node: int | None
    node_name: str | None
    token: int | None
    expires_at: datetime | None
    result: Any
    error: str | None
    cancel_asked: bool
    attempts: Sequence[Attempt] = ()
    """The attempts that did not succeed, oldest first; empty in lists."""

    @classmethod
    def of(cls, row: Mapping[str, Any], attempts: Sequence[Attempt] = ()) -> JobRow:
        """From a row of the view."""
        facts = dict(row)
        for name in ("args", "meta", "result"):
            facts[name] = _decode(facts[name])
        return cls(**facts, attempts=attempts)


class QueueRow(msgspec.Struct, frozen=True, kw_only=True):
    """One queue: what waits, what runs, what lately finished."""

    name: str
    queued: int
    """Due now."""
    scheduled: int
    """Not due yet, or waiting to retry."""
    running: int
    oldest_age: float | None
    """Seconds the first in line has waited."""
    paused: bool
    paused_at: datetime | None
    paused_by: str | None
    done_hour: int
    done_day: int
    failed_hour: int
    failed_day: int


class NodeRow(msgspec.Struct, frozen=True, kw_only=True):
    """One process that works, or worked, here."""

    id: int
    name: str
    state: str
    version: str
    queues: Sequence[str] | None
    """``None``: every queue."""
    kinds: Sequence[str] | None
    slots: int
    running: int
    deaf: bool
    started_at: datetime
    beat_at: datetime
    beat_age: float
    """Seconds since its last heartbeat, by the server's clock."""
    stopped_at: datetime | None
    leases: int


class ScheduleRow(msgspec.Struct, frozen=True, kw_only=True):
    """One recurring job."""

    name: str
    kind: str
    cron: str
    zone: str
    next_at: datetime
    last_at: datetime | None
    """The last slot a job was enqueued for."""
    last_job: int | None
    last_state: str | None
    paused: bool


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a job that somebody wanted retried or cancelled."""

    id: int
    said: str

    @property
    def did(self) -> bool:
        """Whether it was done, or asked of the node that runs the job."""
        return self.said in ("queued", "cancelled", "asked")


def _decode(data: bytes | None) -> Any:
    if data is None:
        return None
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return data.decode("utf-8", "replace")  # json of another writer: numbers or escapes we cannot hold
