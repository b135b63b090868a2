"""Jobs API: enqueue, inspect and cancel jobs over HTTP, read their logs and runs."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any

import msgspec

from howdah.app import Howdah
from howdah.control_plane.auth import Caller
from howdah.control_plane.errors import RequestRejected, invalid, unknown
from howdah.control_plane.reports import json_or_none
from howdah.errors import ArgumentError, ConfigError
from howdah.handler import check_name
from howdah.job import PLATFORM_PREFIX
from howdah.jobs.rows import JobRow, shown
from howdah.postgres import sql
from howdah.postgres.database import Database, Session
from howdah.redact import readable_json
from howdah.remote import messages as m
from howdah.secrets import marked, marks
from howdah.task import TaskSettings

MAX_LINES = 1000
"""Log lines in one response."""
SETTINGS = ("queue", "priority", "run_at", "delay", "max_attempts", "timeout", "key", "requires")
"""Settings of a task that a request may override."""


class JobStatus(m.Message):
    """State of one job."""

    id: m.Id
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


class CancelResponse(m.Message):
    """Result of a cancel: cancelled, asked (it runs), over, or changed (it is not in the given state)."""

    id: m.Id
    result: str


class LogLine(m.Message):
    """One line of a job's log."""

    seq: int
    attempt: int
    at: datetime
    stream: str
    line: str


class LogPage(m.Message):
    """A page of a job's log; the next one follows the last ``seq``."""

    lines: list[LogLine]


class RunInfo(m.Message):
    """One run of a build or a command: its worker, spec and result."""

    attempt: int
    kind: str
    worker: int | None
    state: str
    """running, done, failed, or lost: its worker sent no more heartbeats."""
    code: str | None
    spec: Any
    result: Any
    started_at: datetime
    finished_at: datetime | None


class RunList(m.Message):
    """The runs of a job, in order."""

    runs: list[RunInfo]


class QueueStats(m.Message):
    """Number of jobs in one queue, by state."""

    queue: str
    queued: int
    scheduled: int
    running: int


class WorkerStats(m.Message):
    """Number of nodes in one state, with their slots and running jobs."""

    status: str
    nodes: int
    slots: int
    running: int


class StatsResponse(m.Message):
    """Jobs by queue and nodes by state."""

    queues: list[QueueStats]
    workers: list[WorkerStats]


class JobsApi:
    """Serves clients that enqueue and inspect jobs."""

    def __init__(self, app: Howdah, database: Database, session: Session) -> None:
        self._app = app
        self._session = session
        self._sql = sql.load("howdah.control_plane", schema=database.schema)

    async def enqueue(self, caller: Caller, body: m.EnqueueRequest) -> m.EnqueueResponse:
        """Enqueue one job; its arguments are checked if the application knows its kind."""
        if body.kind.startswith(PLATFORM_PREFIX):
            message = f"kinds that start with {PLATFORM_PREFIX!r} are Howdah's own and cannot be enqueued"
            raise RequestRejected(403, "FORBIDDEN", message, field="kind")
        task = self._app.tasks.get(body.kind)
        given = {name: value for name in SETTINGS if (value := getattr(body, name)) is not None}
        settings = replace(task.settings if task else TaskSettings(), **given)
        if not caller.may_use(settings.queue):
            raise RequestRejected(
                403, "FORBIDDEN", f"the token is not valid for queue {settings.queue!r}", field="queue"
            )
        payload, meta = json_or_none(body.args, "args") or b"{}", json_or_none(body.meta, "meta")
        for field, value in (("args", payload), ("meta", meta or b"{}")):
            if not value.startswith(b"{"):
                raise invalid(f"{field} must be a JSON object", field)
        try:
            job = settings.job(body.kind)
        except ConfigError as error:
            raise invalid(str(error), "requires") from None
        try:
            if task is not None:
                task.handler.arguments.decode(payload)
                if secrets := task.handler.arguments.secrets:
                    meta = msgspec.json.encode(marked(msgspec.json.decode(meta or b"{}"), secrets))
            check_name("kind", job.kind)
            check_name("queue", job.queue)
            job.payload, job.meta = payload, meta
            job.check()
        except (ArgumentError, ConfigError) as error:
            raise invalid(str(error), _field(str(error))) from None
        made = await self._app.enqueue(job)
        return m.EnqueueResponse(id=made.id, fresh=made.fresh)

    async def job(self, caller: Caller, id: int) -> JobStatus:
        """Return the state of one job."""
        row = await self._row(caller, id)
        seen = shown(row, self._app.redact)
        progress = await self._session.fetchrow(self._sql["progress"], id)
        return JobStatus(
            id=row.id,
            kind=row.kind,
            queue=row.queue,
            state=row.state or "queued",
            attempt=row.attempt or 0,
            max_attempts=row.max_attempts,
            enqueued_at=row.enqueued_at,
            run_at=row.run_at,
            started_at=row.started_at,
            finished_at=row.finished_at,
            worker=row.node,
            result=seen.result,
            error=seen.error,
            progress=progress["share"] if progress else None,
            note=progress["note"] if progress else None,
        )

    async def cancel(self, caller: Caller, id: int, state: str | None = None) -> CancelResponse:
        """Cancel one job: a queued one at once, a running one with the next heartbeat; only in ``state`` if given."""
        if state not in (None, "queued", "running"):
            raise invalid(f"state must be queued or running, got {state[:40]!r}", "state")
        if caller.queues is not None:
            await self._row(caller, id)
        [cancelled] = await self._app.admin.cancel([id], state=state)
        if cancelled.result == "unknown":
            raise unknown(f"job {id}")
        return CancelResponse(id=id, result=cancelled.result)

    async def log(self, caller: Caller, id: int, after: int) -> LogPage:
        """Return the lines of a job's log after a line."""
        await self._row(caller, id)
        rows = await self._session.fetch(self._sql["read_log"], id, after, MAX_LINES)
        return LogPage(lines=[LogLine(**row) for row in rows])

    async def runs(self, caller: Caller, id: int) -> RunList:
        """Return the runs of a job, in order."""
        job = await self._row(caller, id)
        rows = [_decoded(row) for row in await self._session.fetch(self._sql["runs"], id)]
        redact, places = self._app.redact, marks(job.meta)
        for row in rows:
            row["spec"] = redact(row["spec"], places, kind=job.kind)
            row["result"] = redact(row["result"], kind=job.kind, part="result")
        return RunList(runs=[RunInfo(**row) for row in rows])

    async def stats(self, caller: Caller) -> StatsResponse:
        """Return the jobs of the queues that the caller may use, and by state the nodes that serve one of them."""
        queues = [
            QueueStats(queue=row.name, queued=row.queued, scheduled=row.scheduled, running=row.running)
            for row in await self._app.admin.queues()
            if caller.may_use(row.name)
        ]
        rows: list[Any] = await self._session.fetch(self._sql["stats"], caller.queues)
        return StatsResponse(queues=queues, workers=[WorkerStats(**row) for row in rows])

    async def _row(self, caller: Caller, id: int) -> JobRow:
        row = await self._app.admin.get(id)
        if row is None or not caller.may_use(row.queue):
            raise unknown(f"job {id}")
        return row


def _field(message: str) -> str:
    """Return the field of a request that an error message begins with."""
    word = message.split()[0]
    return word if word in m.EnqueueRequest.__struct_fields__ else "run_at" if "run_at" in message else "args"


def _decoded(row: Any) -> dict[str, Any]:
    """Return a row with its JSON values decoded."""
    return {name: readable_json(value) if isinstance(value, bytes) else value for name, value in row.items()}
