"""Foreign: enqueue through a connection of another library, in its owner's transaction."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Any, cast

import msgspec

from howdah import telemetry
from howdah.jobs.new import Enqueued, NewJob
from howdah.pg.borrow import Borrow, borrowed
from howdah.pg.sql import render

STATEMENT = """
select made.id, made.fresh
from rows from (json_to_recordset(cast(:jobs as json)) as (
        kind text, args json, queue text, priority int, run_at timestamptz, delay float8, max_attempts int,
        timeout float8, key text, meta json, trace text)) with ordinality
    as job(kind, args, queue, priority, run_at, delay, max_attempts, timeout, key, meta, trace, place)
cross join lateral {schema}.enqueue(
    job.kind, job.args, job.queue, job.priority, job.run_at, job.delay, job.max_attempts,
    job.timeout, job.key, job.meta, job.trace) made
order by job.place
"""


class Foreign:
    """Enqueues by the SQL function, so that only the schema must be known. One statement, however many jobs."""

    def __init__(self, schema: str, borrow: Borrow) -> None:
        self._statement = render(STATEMENT, {"schema": schema})
        self._borrow = borrow

    async def enqueue(self, jobs: Sequence[NewJob], conn: object) -> list[Enqueued]:
        """Enqueue through an asynchronous connection."""
        through = borrowed(self._borrow, conn, is_async=True, verb="enqueue")
        return _made(await cast("Awaitable[Any]", through.run(self._statement, _params(jobs))))

    def enqueue_sync(self, jobs: Sequence[NewJob], conn: object) -> list[Enqueued]:
        """Enqueue through a synchronous connection."""
        through = borrowed(self._borrow, conn, is_async=False, verb="enqueue")
        return _made(through.run(self._statement, _params(jobs)))


def _params(jobs: Sequence[NewJob]) -> dict[str, Any]:
    for job in jobs:
        job.check()
    rows = [
        {
            **{name: getattr(job, name) for name in _PLAIN},
            "args": msgspec.Raw(job.payload),
            "meta": msgspec.Raw(job.meta) if job.meta else None,
        }
        for job in jobs
    ]
    return {"jobs": msgspec.json.encode(rows).decode()}


_PLAIN = ("kind", "queue", "priority", "run_at", "delay", "max_attempts", "timeout", "key", "trace")


def _made(rows: Any) -> list[Enqueued]:
    made = [Enqueued(int(id), bool(fresh)) for id, fresh in rows]
    telemetry.emit("job.enqueue", jobs=sum(each.fresh for each in made))
    return made
