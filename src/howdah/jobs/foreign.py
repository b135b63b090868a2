"""Foreign: enqueue through a connection of another library, in its owner's transaction."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol, cast

import msgspec

from howdah import telemetry
from howdah.errors import ConfigError
from howdah.jobs.new import Enqueued, NewJob
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


class Borrowed(Protocol):
    """A connection of another library, through which one statement can be run."""

    is_async: bool

    def run(self, statement: str, params: Mapping[str, Any]) -> Any:
        """Run a statement with ``:name`` parameters; rows, or an awaitable of rows if ``is_async``."""
        ...


Borrow = Callable[[object], Borrowed | None]


class Foreign:
    """Enqueues by the SQL function, so that only the schema must be known. One statement, however many jobs."""

    def __init__(self, schema: str, borrow: Borrow) -> None:
        self._statement = render(STATEMENT, {"schema": schema})
        self._borrow = borrow

    async def enqueue(self, jobs: Sequence[NewJob], conn: object) -> list[Enqueued]:
        """Enqueue through an asynchronous connection."""
        borrowed = self._adapt(conn)
        if not borrowed.is_async:
            raise ConfigError(f"{type(conn).__name__} is synchronous; call enqueue_sync, or give an async connection")
        return _made(await cast("Awaitable[Any]", borrowed.run(self._statement, _params(jobs))))

    def enqueue_sync(self, jobs: Sequence[NewJob], conn: object) -> list[Enqueued]:
        """Enqueue through a synchronous connection."""
        borrowed = self._adapt(conn)
        if borrowed.is_async:
            raise ConfigError(f"{type(conn).__name__} is asynchronous; await enqueue(...) instead")
        return _made(borrowed.run(self._statement, _params(jobs)))

    def _adapt(self, conn: object) -> Borrowed:
        borrowed = self._borrow(conn)
        if borrowed is None:
            raise ConfigError(
                f"cannot enqueue through a {type(conn).__module__}.{type(conn).__name__}; give an asyncpg, psycopg,"
                " SQLAlchemy or Django connection, or call the SQL function enqueue yourself"
            )
        return borrowed


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
