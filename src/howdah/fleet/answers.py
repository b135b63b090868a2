"""Answers: what can be looked at over HTTP, as JSON: nodes, jobs, what they said, counts."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from howdah.fleet.messages import Id, Message


class Worker(Message):
    """One node, local or over HTTP."""

    id: int
    name: str
    status: str
    remote: bool
    version: str
    queues: Sequence[str] | None
    kinds: Sequence[str] | None
    tables: Sequence[str]
    labels: Sequence[str]
    slots: int
    running: int
    started_at: datetime
    beat_at: datetime
    silent: float
    """Seconds since its last heartbeat."""


class Workers(Message):
    """All of them, newest first."""

    workers: list[Worker]


class JobStatus(Message):
    """How one job stands."""

    id: Id
    kind: str
    queue: str
    state: str
    attempt: int
    max_attempts: int
    enqueued_at: datetime
    run_at: datetime
    started_at: datetime | None = None
    finished_at: datetime | None = None
    worker: int | None = None
    result: Any = None
    error: str | None = None
    progress: float | None = None
    note: str | None = None


class Said(Message):
    """What became of a job: cancelled, asked (it runs), over, or changed (it is not in the state that was given)."""

    id: Id
    said: str


class Line(Message):
    """One line of what a job said."""

    seq: int
    attempt: int
    at: datetime
    stream: str
    line: str


class Lines(Message):
    """What a job said; ask again after the last ``seq``."""

    lines: list[Line]


class RunRecord(Message):
    """One run of a build or a command: who ran what, and what came of it."""

    attempt: int
    kind: str
    worker: int | None
    state: str
    """running, done, failed, or lost: its worker went silent."""
    code: str | None
    spec: Any
    result: Any
    started_at: datetime
    finished_at: datetime | None


class Runs(Message):
    """The runs of a job, in order."""

    runs: list[RunRecord]


class QueueStats(Message):
    """How much is in one queue."""

    queue: str
    queued: int
    scheduled: int
    running: int


class WorkerStats(Message):
    """How many nodes are in one state."""

    status: str
    nodes: int
    slots: int
    running: int


class Stats(Message):
    """How much waits and runs, and how many nodes there are."""

    queues: list[QueueStats]
    workers: list[WorkerStats]
