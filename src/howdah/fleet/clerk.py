"""Clerk: jobs over HTTP: enqueue, look, cancel, read what they say."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec

from howdah.app import Howdah
from howdah.errors import ArgumentError, ConfigError
from howdah.fleet import answers
from howdah.fleet import messages as m
from howdah.fleet.door import Caller
from howdah.fleet.refusal import Refused, bad, unknown
from howdah.fleet.wire import raw
from howdah.handler import check_name
from howdah.jobs.rows import JobRow
from howdah.jobs.shown import shown
from howdah.pg import sql
from howdah.pg.database import Database, Session
from howdah.secret import marked, marks
from howdah.task import Settings

MOST_LINES = 1000
GIVEN = ("queue", "priority", "run_at", "delay", "max_attempts", "timeout", "key", "requires")
"""What may be said of a job instead of what its task says."""


class Clerk:
    """Serves those who have jobs rather than run them."""

    def __init__(self, app: Howdah, database: Database, session: Session) -> None:
        self._app = app
        self._session = session
        self._sql = sql.load("howdah.fleet", schema=database.schema)

    async def enqueue(self, caller: Caller, body: m.Enqueue) -> m.Enqueued:
        """Enqueue one job; its arguments are checked where the app knows its kind."""
        task = self._app.tasks.get(body.kind)
        given = {name: value for name in GIVEN if (value := getattr(body, name)) is not None}
        say = replace(task.settings if task else Settings(), **given)
        if not caller.sees(say.queue):
            raise Refused(403, "FORBIDDEN", f"the token is not good for queue {say.queue!r}", field="queue")
        payload, meta = raw(body.args, "args") or b"{}", raw(body.meta, "meta")
        for field, value in (("args", payload), ("meta", meta or b"{}")):
            if not value.startswith(b"{"):
                raise bad(f"{field} must be an object, its values by name", field)
        try:
            job = say.job(body.kind)
        except ConfigError as error:
            raise bad(str(error), "requires") from None
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
            raise bad(str(error), _field(str(error))) from None
        made = await self._app.enqueue(job)
        return m.Enqueued(id=made.id, fresh=made.fresh)

    async def job(self, caller: Caller, id: int) -> answers.JobStatus:
        """How one job stands."""
        row = await self._row(caller, id)
        seen = shown(row, self._app.redact)
        progress = await self._session.fetchrow(self._sql["progress"], id)
        return answers.JobStatus(
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

    async def cancel(self, caller: Caller, id: int, state: str | None = None) -> answers.Said:
        """Cancel one job: at once while it waits, by the next heartbeat while it runs; only in ``state`` if given."""
        if state not in (None, "queued", "running"):
            raise bad(f"state must be queued or running, got {state[:40]!r}", "state")
        if caller.queues is not None:
            await self._row(caller, id)
        [said] = await self._app.admin.cancel([id], state=state)
        if said.said == "unknown":
            raise unknown(f"job {id}")
        return answers.Said(id=id, said=said.said)

    async def log(self, caller: Caller, id: int, after: int) -> answers.Lines:
        """What a job said, after a line."""
        await self._row(caller, id)
        rows = await self._session.fetch(self._sql["read_log"], id, after, MOST_LINES)
        return answers.Lines(lines=[answers.Line(**row) for row in rows])

    async def runs(self, caller: Caller, id: int) -> answers.Runs:
        """The runs of a job, in order."""
        job = await self._row(caller, id)
        rows = [_decoded(row) for row in await self._session.fetch(self._sql["runs"], id)]
        redact, places = self._app.redact, marks(job.meta)
        for row in rows:
            row["spec"] = redact(row["spec"], places, kind=job.kind)
            row["result"] = redact(row["result"], kind=job.kind, part="result")
        return answers.Runs(runs=[answers.RunRecord(**row) for row in rows])

    async def stats(self, caller: Caller) -> answers.Stats:
        """How much waits and runs in the queues the caller sees, and how many nodes there are."""
        queues = [
            answers.QueueStats(queue=row.name, queued=row.queued, scheduled=row.scheduled, running=row.running)
            for row in await self._app.admin.queues()
            if caller.sees(row.name)
        ]
        rows: list[Any] = await self._session.fetch(self._sql["stats"])
        return answers.Stats(queues=queues, workers=[answers.WorkerStats(**row) for row in rows])

    async def _row(self, caller: Caller, id: int) -> JobRow:
        row = await self._app.admin.get(id)
        if row is None or not caller.sees(row.queue):
            raise unknown(f"job {id}")
        return row


def _field(message: str) -> str:
    """Which part of a job a message is about: it begins with its name."""
    word = message.split()[0]
    return word if word in m.Enqueue.__struct_fields__ else "run_at" if "run_at" in message else "args"


def _decoded(row: Any) -> dict[str, Any]:
    """A row with its JSON read."""
    return {name: msgspec.json.decode(value) if isinstance(value, bytes) else value for name, value in row.items()}
