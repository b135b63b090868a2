"""What admins see: jobs, attempts, queues and nodes as values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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
    error: str | None = None
    """Why its job could not be enqueued at the last try."""


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a job that somebody acted on."""

    id: int
    said: str

    @property
    def did(self) -> bool:
        """Whether it was done, or asked of the node that runs the job."""
        return self.said in ("queued", "cancelled", "asked", "deleted", "reprioritized", "moved")


class Page(list[JobRow]):
    """A list of jobs that knows how it came about."""

    def __init__(self, rows: Iterable[JobRow], *, looked: int, next: int | None, cut: bool) -> None:
        super().__init__(rows)
        self.looked = looked
        """Jobs that were looked at to find these."""
        self.next = next
        """Pass it as ``before`` to get the next page; ``None``: there are no more."""
        self.cut = cut
        """Whether looking took too long, so that only the newest ``looked`` jobs were looked at."""


class Count(msgspec.Struct, frozen=True, kw_only=True):
    """How many jobs there are, as far as was counted.

    >>> str(Count(jobs=1234, more=False)), str(Count(jobs=10_000, more=True))
    ('1,234', '10,000+')
    """

    jobs: int
    more: bool
    """Whether there are more: counting stopped here."""

    def __str__(self) -> str:
        return f"{self.jobs:,}{'+' if self.more else ''}"


class FailureGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Failed jobs of one kind whose errors differ only in numbers and names."""

    kind: str
    error: str | None
    """The class of the error."""
    fingerprint: str
    """What the errors have in common; ``Filter(state="failed", kind=…, fingerprint=…)`` finds the jobs."""
    message: str
    """The error of the example."""
    count: int
    first_at: datetime
    last_at: datetime
    example: int
    """The newest of them."""
    queues: Sequence[str]


class Failures(msgspec.Struct, frozen=True, kw_only=True):
    """The newest failures, grouped; the largest group first."""

    groups: Sequence[FailureGroup]
    more: int
    """Groups that are not listed."""
    looked: int
    """Failed jobs that were looked at, newest first."""
    cut: bool
    """Whether there are older ones that were not."""
    oldest: datetime | None
    """When the oldest of those looked at failed."""


def _decode(data: bytes | None) -> Any:
    if data is None:
        return None
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return data.decode("utf-8", "replace")  # json of another writer: numbers or escapes we cannot hold
