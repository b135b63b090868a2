"""`howdah why`: explains why a job does not run, a consumer does not advance, or a table's row is not claimed.

Reads the tables that a claim reads, and returns each condition (gate) with the fact that decides it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Literal

import asyncpg

from howdah.diagnose.finding import LONGEST, Gate, ordered
from howdah.diagnose.why import consumer, job, row
from howdah.diagnose.why.facts import ClaimFacts, HeldKind, JobFacts, JobsAhead, Locker, NodeFacts
from howdah.errors import DatabaseUnreachable, HowdahError, SchemaError
from howdah.postgres import migrate, sql
from howdah.postgres.database import BROKEN, Database
from howdah.postgres.dsn import hide_password
from howdah.table.options import TableOptions

QUERY_TIMEOUT = 5.0
"""Statement timeout in seconds."""
MOST_NODES = 1000
MOST_LEASES = 10_000
LAST = 2**63 - 1
BY_INDEX = """
select set_config('statement_timeout', $1, true), set_config('enable_seqscan', 'off', true),
    set_config('enable_bitmapscan', 'off', true)
"""
"""Forces index scans: few rows in tables of any size, whatever the statistics."""


class Why:
    """Explains why a job does not run, a consumer does not advance, or a row is not claimed. Changes nothing."""

    def __init__(self, database: Database, pool: Callable[[], Any]) -> None:
        self._database = database
        self._pool = pool
        self._sql = sql.load("howdah.diagnose.why", schema=database.schema)

    async def job(self, id: int) -> list[Gate]:
        """Every gate a claim has for a job: those in its way first. :class:`HowdahError` when there is no such job."""
        async with self._read_only("repeatable_read") as conn:
            schema = await migrate.state(self._database, conn)
            if wrong := self._mismatch(schema):
                return [wrong]
            found = await conn.fetchrow(self._sql["job"], id, LONGEST * 2) if abs(id) <= LAST else None
            if found is None:
                raise await self._no_job(conn, id)
            facts = JobFacts(**found)
            match facts.state:
                case "queued":
                    return ordered(job.waiting(await self._claim_facts(conn, facts), schema.version))
                case "running":
                    return job.running(facts)
                case None:
                    return job.nowhere()
                case _:
                    return job.finished(facts)

    async def consumer(self, name: str) -> list[Gate]:
        """Every gate between a consumer and the next event. :class:`ConfigError` when there is no such consumer."""
        async with self._read_only("read_committed") as conn:
            if wrong := self._mismatch(await migrate.state(self._database, conn)):
                return [wrong]
            return ordered(await consumer.gates(conn, self._database.schema, name))

    async def row(self, options: TableOptions, id: Any) -> list[Gate]:
        """Every gate a claim has for a row of a table of yours. :class:`HowdahError` when there is no such row."""
        async with self._read_only("read_committed") as conn:
            if wrong := self._mismatch(await migrate.state(self._database, conn)):
                return [wrong]
            nodes = await self._nodes(conn)
            return ordered(await row.gates(conn, self._database.schema, options, id, nodes))

    def _mismatch(self, schema: migrate.SchemaState) -> Gate | None:
        try:
            migrate.refuse(self._database, schema)
        except SchemaError as error:
            fact, _, fix = str(error).partition("; ")
            return Gate("schema", False, f"{fact}, so no worker with this code starts", fix)
        return None

    async def _claim_facts(self, conn: Any, facts: JobFacts) -> ClaimFacts:
        found = ClaimFacts(job=facts, nodes=await self._nodes(conn))
        held = await conn.fetch(self._sql["held"], [node.id for node in found.able], MOST_LEASES)
        place = (facts.rid, facts.lo) if facts.rid is not None else (LAST, LAST)
        ahead = await conn.fetch(self._sql["ahead"], facts.queue, facts.priority, *place, facts.due_at, job.MOST_RUNS)
        locker = await conn.fetchrow(self._sql["locked"], facts.id)
        return ClaimFacts(
            job=facts,
            nodes=found.nodes,
            held=[HeldKind(**each) for each in held],
            ahead=[JobsAhead(**each) for each in ahead],
            locker=Locker(**locker) if locker else None,
        )

    async def _nodes(self, conn: Any) -> list[NodeFacts]:
        return [NodeFacts.of(each) for each in await conn.fetch(self._sql["nodes"], MOST_NODES)]

    async def _no_job(self, conn: Any, id: int) -> HowdahError:
        given = abs(id) <= LAST and await conn.fetchval(self._sql["given"], id)
        reason = (
            "the transaction that enqueued it is open or was rolled back, or it was deleted or pruned"
            if given
            else "no job has had this id yet"
        )
        return HowdahError(f"there is no job {id}; {reason}")

    @asynccontextmanager
    async def _read_only(self, isolation: Literal["repeatable_read", "read_committed"]) -> AsyncIterator[Any]:
        """Open a connection with a read-only transaction and a statement timeout."""
        try:
            async with (
                (await self._pool()).acquire() as conn,
                conn.transaction(isolation=isolation, readonly=True),
            ):
                await conn.execute(BY_INDEX, str(int(QUERY_TIMEOUT * 1000)))
                yield conn
        except asyncpg.QueryCanceledError:
            raise HowdahError(
                f"the query took longer than {QUERY_TIMEOUT:g} s and was cancelled; try again when the server is less"
                " busy, and check `howdah doctor` for dead rows"
            ) from None
        except BROKEN as error:
            raise DatabaseUnreachable(f"lost {hide_password(self._database.dsn)}: {error}") from error
