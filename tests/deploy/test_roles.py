"""deploy/roles.sql: every role can do its work, and nothing else."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import psycopg
import pytest

from deploy.job_partitions import FAR, grew, partitions
from howdah import Event, Howdah, NewEvent, Poison, Transaction, WorkerOptions
from howdah.maintenance.pruner import Pruner, Retention
from howdah.observe.sampler import QueueDepth
from howdah.postgres import migrate
from howdah.postgres.database import Database
from kit.node import eventually, node
from kit.roles import ROLES, as_role, drop_roles, give_passwords, refuses, run_roles
from table.ddl import ddl

pytestmark = pytest.mark.anyio

HERE = "select oid::regclass::text from pg_class where relnamespace = 'howdah'::regnamespace"
TABLES, SEQUENCES = f"{HERE} and relkind in ('r', 'p', 'v')", f"{HERE} and relkind = 'S'"
FUNCTIONS = """
    select proname from pg_proc
    where pronamespace = 'howdah'::regnamespace and has_function_privilege($1, oid, 'execute') order by 1"""


async def allowed(conn: Any, role: str, kind: str, things: str, *rights: str) -> set[tuple[str, str]]:
    """Which of these rights a role has on which of these things."""
    rows = await conn.fetch(
        f"select t.name, r.name from ({things}) t(name), unnest($2::text[]) r(name)"
        f" where has_{kind}_privilege($1, t.name, r.name)",
        role,
        list(rights),
    )
    return {(row[0], row[1]) for row in rows}


async def counted(app: Howdah) -> Any:
    """What a node counts for its metrics."""
    depth, over = QueueDepth(app.database), asyncio.Event()
    counting = asyncio.create_task(depth.run(over))

    async def known() -> Any:
        return depth.queues

    try:
        return await eventually(known)
    finally:
        over.set()
        await counting


# -------------------------------------------------------------------- the file


def test_a_new_database_starts_with_the_roles_and_the_owner_does_the_rest(server):
    name = "howdah_roles_anew"
    with psycopg.connect(server.dsn, autocommit=True) as conn:
        conn.execute(f"create database {name}")
    dsn = server.dsn_for(name)
    try:
        run_roles(dsn)
        give_passwords(dsn)
        owner = as_role(dsn, "howdah_owner")
        asyncio.run(migrate.migrate(Database(owner)))
        run_roles(owner)
        run_roles(owner)
        assert asyncio.run(_work(as_role(dsn, "howdah_worker"))) == 1
    finally:
        drop_roles(dsn)
        with psycopg.connect(server.dsn, autocommit=True) as conn:
            conn.execute(f"drop database {name} with (force)")


async def _work(dsn: str) -> int:
    app, ran = Howdah(dsn), []

    @app.task
    async def note() -> None:
        ran.append(1)

    await note.enqueue()
    await app.work(WorkerOptions(drain=True))
    await app.close()
    return len(ran)


async def test_what_a_superuser_migrated_belongs_to_the_owner_afterwards(roles, conn):
    owners = await conn.fetch(
        """select distinct relowner::regrole::text from pg_class where relnamespace = 'howdah'::regnamespace
        union select proowner::regrole::text from pg_proc where pronamespace = 'howdah'::regnamespace
        union select nspowner::regrole::text from pg_namespace where nspname = 'howdah'"""
    )

    assert [row[0] for row in owners] == ["howdah_owner"]


async def test_what_works_with_the_rights_of_the_owner_fixes_its_search_path(roles, conn):
    rows = await conn.fetch(
        "select proname, proconfig from pg_proc where pronamespace = 'howdah'::regnamespace and prosecdef order by 1"
    )

    assert {"enqueue", "grow", "prune_partition"} <= {row["proname"] for row in rows}
    for row in rows:
        assert "search_path=pg_catalog, pg_temp" in row["proconfig"], row["proname"]


async def test_nobody_is_more_than_a_role_and_the_public_has_nothing(roles, conn):
    rows = await conn.fetch(
        """select rolsuper or rolcreatedb or rolcreaterole or rolreplication or rolbypassrls
        from pg_roles where rolname = any($1)""",
        list(ROLES),
    )
    assert [row[0] for row in rows] == [False] * len(ROLES)
    await conn.execute("create role howdah_stranger")
    try:
        assert not await conn.fetchval("select has_schema_privilege('howdah_stranger', 'howdah', 'usage')")
        assert await allowed(conn, "howdah_stranger", "table", TABLES, "select", "insert", "update", "delete") == set()
        assert await conn.fetch(FUNCTIONS, "howdah_stranger") == []
    finally:
        await conn.execute("drop role howdah_stranger")


async def test_a_second_run_changes_nothing(roles, direct, conn):
    everything = """
        select relname::text, relacl::text from pg_class where relnamespace = 'howdah'::regnamespace
        union all select oid::regprocedure::text, proacl::text || prosecdef from pg_proc
        where pronamespace = 'howdah'::regnamespace order by 1, 2"""
    before = await conn.fetch(everything)

    run_roles(roles("howdah_owner"))
    assert await conn.fetch(everything) == before


# -------------------------------------------------------------------- worker


async def test_a_worker_runs_a_node_with_jobs_a_table_and_a_consumer(roles, conn, caplog):
    await conn.execute(ddl())
    await conn.execute("grant select, update on uploads to howdah_worker")
    await conn.execute("create table effect (n int); grant select, insert on effect to howdah_worker")
    await conn.execute("select howdah.grow(), setval('howdah.job_id', $1)", FAR)
    assert min(await partitions(conn)) < FAR
    app, seen = Howdah(roles("howdah_worker")), list[Any]()
    await conn.execute("insert into uploads default values")

    @app.task
    async def plain(n: int) -> int:
        return n

    @app.task
    async def fails() -> None:
        raise Poison("no")

    @app.task(transactional=True)
    async def writes(n: int, tx: Transaction) -> None:
        await tx.execute("insert into effect values ($1)", n)

    app.schedule("beat", plain.job(3), cron="0 0 1 1 *")

    @app.table("uploads").handler
    async def upload(row: dict[str, Any]) -> None:
        seen.append("row")

    @app.consumer("reader", start="beginning")
    async def read(event: Event, tx: Transaction) -> None:
        seen.append(event.position)

    async with node(app, rebalance=0.2):
        await plain.enqueue(1)
        await plain.using(key="k").enqueue(2)
        await app.enqueue_many(plain.job(n) for n in range(50))
        await fails.enqueue()
        await writes.enqueue(7)
        [waits] = await app.enqueue_many([plain.using(delay=3600).job(1)])
        await app.admin.cancel([waits.id])
        await app.log.append("Order-1", NewEvent(type="Placed", data={}))
        await eventually(lambda: conn.fetchval("select count(*) = 55 from howdah.done"), 20)
        await eventually(lambda: conn.fetchval("select n = 7 from effect"))
        await eventually(lambda: conn.fetchval("select state = 'completed' from uploads"))
        await eventually(lambda: conn.fetchval("select position > 0 from howdah.checkpoint"), 20)
        await eventually(lambda: grew(conn))
        await app.admin.pause("mail", by="me")
        await app.admin.queues()
        assert await counted(app)
    await Pruner(app.database, Retention(done=0.001, failed=0.001)).prune()
    await app.close()

    assert len(seen) == 2
    assert await conn.fetchval("select count(*) from howdah.done") == 0, "pruned"
    assert min(await partitions(conn)) > FAR, "closed partitions are dropped"
    assert "permission denied" not in caplog.text
    made = "select distinct relowner::regrole::text from pg_class c join pg_inherits i on i.inhrelid = c.oid"
    assert [row[0] for row in await conn.fetch(made)] == ["howdah_owner"]


async def test_a_worker_cannot_touch_the_schema_the_tokens_or_history(roles, conn):
    await refuses(
        roles("howdah_worker"),
        "create table howdah.mine ()",
        "drop table howdah.job",
        "alter table howdah.job add column x int",
        "truncate howdah.event",
        "update howdah.event set type = 'x'",
        "delete from howdah.event",
        "select hash from howdah.api_token",
        "insert into howdah.api_token (name, hash, hint, scopes) values ('x', '', '', '{admin}')",
        "insert into howdah.migration (number, name, checksum) values (999, '', '')",
        "create schema mine",
        "alter function howdah.grow security invoker",
    )


# -------------------------------------------------------------------- enqueue


async def test_enqueue_only_enqueues(roles, conn):
    app = Howdah(roles("howdah_enqueue"))

    @app.task(queue="mail")
    async def note(n: int) -> None: ...

    made = await note.enqueue(1)
    same = await note.using(key="k").enqueue(2), await note.using(key="k", delay=60).enqueue(3)
    await app.close()
    other = await asyncpg.connect(roles("howdah_enqueue"))
    async with other.transaction():
        by_sql = await other.fetchrow("select * from howdah.enqueue('note', '{\"n\": 4}', queue => 'mail')")
    await other.close()

    assert made.fresh
    assert [each.fresh for each in same] == [True, False]
    assert await conn.fetchval("select array_agg(id order by id) from howdah.job") == [
        made.id,
        same[0].id,
        by_sql["id"],
    ]


async def test_enqueue_only_enqueues_many_calls_of_one_moment(roles, conn):
    app = Howdah(roles("howdah_enqueue"))

    @app.task
    async def note(n: int) -> None: ...

    made = await asyncio.gather(*(note.enqueue(n) for n in range(20)))
    await app.close()
    assert len({each.id for each in made}) == await conn.fetchval("select count(*) from howdah.job") == 20


async def test_enqueue_only_has_one_function_and_nothing_else(roles, conn):
    role = "howdah_enqueue"
    rights = ("select", "insert", "update", "delete", "truncate", "references", "trigger")
    assert await allowed(conn, role, "table", TABLES, *rights) == set()
    assert await allowed(conn, role, "sequence", SEQUENCES, "select", "usage", "update") == set()
    assert [row["proname"] for row in await conn.fetch(FUNCTIONS, role)] == ["enqueue"]
    await refuses(
        roles(role),
        "select * from howdah.jobs",
        "insert into howdah.ready (lo, hi, priority, attempt, queue, kind) values (1, 9, 0, 0, 'q', 'k')",
        "select nextval('howdah.job_id')",
        "select howdah.grow()",
        "select howdah.cancel('{1}')",
        "create table howdah.mine ()",
    )


# -------------------------------------------------------------------- read


async def test_read_only_sees_all_but_the_hashes(roles, conn):
    app = Howdah(roles("howdah_read"))
    await conn.execute("select howdah.enqueue('note')")
    reader = await asyncpg.connect(roles("howdah_read"))
    try:
        assert await reader.fetchval("select count(*) from howdah.jobs") == 1
        for table in await conn.fetchval(f"select array_agg(x) from ({TABLES}) t(x)"):
            if table not in ("howdah.api_token", "howdah.login", "howdah.node"):
                await reader.fetch(f"select * from {table} limit 1")
        await reader.fetch("select id, name, hint, scopes, queues, expires_at from howdah.api_token")
        await reader.fetch("select who, level, began_at, expires_at from howdah.login")
    finally:
        await reader.close()
    await migrate.check(app.database)
    assert [queue.name for queue in await app.admin.queues()] == ["default"]
    assert [each.kind for each in await app.admin.list()] == ["note"]
    await app.admin.nodes(all=True)
    await app.log.admin.consumers()
    assert await counted(app)
    await app.close()


async def test_read_only_writes_nothing(roles, conn):
    role = "howdah_read"
    assert await allowed(conn, role, "table", TABLES, "insert", "update", "delete", "truncate", "trigger") == set()
    assert await allowed(conn, role, "sequence", SEQUENCES, "usage", "update") == set()
    await refuses(
        roles(role),
        "select howdah.enqueue('note')",
        "select howdah.grow()",
        "select howdah.cancel('{1}')",
        "select hash from howdah.api_token",
        "select * from howdah.api_token",
        "select hash from howdah.login",
        "select credential from howdah.node",
        "select nextval('howdah.job_id')",
        "select setval('howdah.sleep_marker_0', 1)",
        "delete from howdah.job",
    )
