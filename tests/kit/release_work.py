"""The work of a release: an application, and the rows its nodes leave in a database.

``python -m kit.release_work 15 > upgrade/0.2.sql``, run in ``tests`` with the code of a release, writes the rows down,
so that later releases can be tested with them. The number is the major version of a PostgreSQL on this machine that has
pg_dump.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import asyncpg

from howdah import Backoff, Event, Howdah, NewEvent, Transaction
from howdah.postgres import migrate
from howdah.postgres.database import Database
from howdah.postgres.embedded import server as embedded
from kit.node import eventually, quick

TABLES = """
create table mark (n int primary key);
create table seen (position bigint primary key);
create table switch (broken boolean not null);
"""
"""The application's own tables: one row for each effect, which must not happen twice."""
DONE, QUEUED, DELAYED, PAUSED, RUNNING = range(8), range(10, 18), (20,), range(30, 33), range(50, 53)
KEYED, FAILED, CANCELLED, RETRIED, SCHEDULED = 40, 60, 70, 80, 99
"""The numbers of the jobs, by the state they are left in."""
EVENTS = 10
HANDLED = 6
"""So many of the events are handled."""
TAKEN_AT = re.compile(r"^-- taken at (.+)$", re.MULTILINE)
SKIP = re.compile(r"^(?:--.*|SET .*|\\.*|SELECT pg_catalog\.set_config.*|)$", re.MULTILINE)
SHIFT = """
do $$
declare
    each record;
begin
    for each in
        select format('update howdah.%I set %s', c.relname,
            string_agg(format('%1$I = %1$I + %2$L', a.attname, '{by}'), ', ')) as change
        from pg_class c join pg_attribute a on a.attrelid = c.oid
        where c.relnamespace = 'howdah'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition
          and a.atttypid = 'timestamptz'::regtype and a.attnum > 0 and not a.attisdropped
        group by c.relname
    loop
        execute each.change;
    end loop;
end $$
"""
"""Move every moment in the tables by an interval."""


def application(dsn: str) -> Howdah:
    """An application that uses jobs, keys, retries, schedules, events and consumers."""
    app = Howdah(dsn)

    @app.task(transactional=True)
    async def note(tx: Transaction, n: int) -> None:
        await tx.execute("insert into mark (n) values ($1)", n)

    @app.task(transactional=True, max_attempts=3)
    async def slow(tx: Transaction, n: int) -> None:
        await tx.execute("insert into mark (n) values ($1)", n)
        if (await tx.fetch("select broken from switch"))[0]["broken"]:
            await asyncio.sleep(3600)

    @app.task(transactional=True, max_attempts=1)
    async def fragile(tx: Transaction, n: int) -> None:
        await tx.execute("insert into mark (n) values ($1)", n)
        if (await tx.fetch("select broken from switch"))[0]["broken"]:
            raise ValueError("it is broken")

    @app.task(transactional=True, max_attempts=3, retry=Backoff(first=3600))
    async def flaky(tx: Transaction, n: int) -> None:
        await tx.execute("insert into mark (n) values ($1)", n)
        if (await tx.fetch("select broken from switch"))[0]["broken"]:
            raise ValueError("it is broken")

    @app.consumer("totals", partitions=2)
    async def totals(event: Event, tx: Transaction) -> None:
        await tx.execute("insert into seen (position) values ($1)", event.position)

    app.schedule("yearly", note.job(SCHEDULED), cron="0 0 1 1 *")
    return app


async def prepare(dsn: str) -> None:
    """Make the application's tables, and the work that nodes do before they are killed."""
    app = application(dsn)
    conn = await asyncpg.connect(dsn)
    await conn.execute(TABLES)
    await conn.execute("insert into switch values (true)")
    note, slow, fragile, flaky = (app.tasks[name] for name in ("note", "slow", "fragile", "flaky"))
    await app.enqueue_many([note.job(n) for n in DONE])
    await app.enqueue_many([slow.job(n) for n in RUNNING])
    await fragile.enqueue(FAILED)
    await flaky.enqueue(RETRIED)
    cancelled = await note.using(delay=3600).enqueue(CANCELLED)
    await app.admin.cancel([cancelled.id])
    await app.log.append("Order-1", [NewEvent(type="Placed", data={"n": n}) for n in range(HANDLED)])
    await conn.close()
    await app.close()


async def leave(dsn: str) -> None:
    """Add the work that waits while no node runs."""
    app = application(dsn)
    note = app.tasks["note"]
    await app.admin.pause("mail", by="ada")
    await app.enqueue_many([note.job(n) for n in QUEUED])
    await app.enqueue_many([note.using(queue="mail").job(n) for n in PAUSED])
    for n in DELAYED:
        await note.using(delay=86400).enqueue(n)
    await note.using(key="one").enqueue(KEYED)
    await app.log.append("Order-2", [NewEvent(type="Placed", data={"n": n}) for n in range(HANDLED, EVENTS)])
    await app.close()


async def load(conn: Any, dump: str) -> None:
    """Put the rows of a dump into the tables, as if it had been taken just now."""
    [taken] = TAKEN_AT.findall(dump)
    await conn.execute(TABLES)
    async with conn.transaction():
        await conn.execute("set local session_replication_role = replica")  # triggers have done their work
        await conn.execute("delete from howdah.leader; delete from howdah.repair_state")
        await conn.execute(SKIP.sub("", dump))
        by = await conn.fetchval("select (clock_timestamp() - $1::text::timestamptz)::text", taken)
        await conn.execute(SHIFT.replace("{by}", by))


async def busy(conn: Any) -> bool:
    """Whether a node has done what it can, and is in the middle of the rest."""
    return bool(
        await conn.fetchval(
            "select (select count(*) from howdah.done) = $1 and (select count(*) from seen) = $2"
            " and (select count(*) from howdah.jobs where state = 'running') = $3"
            " and (select count(*) from howdah.attempt where outcome = 'retry') = 1"
            " and (select count(*) from howdah.schedule where slot_at is not null) = 1",
            len(DONE) + 2,
            HANDLED,
            len(RUNNING),
        )
    )


async def work(dsn: str) -> None:
    """Be a node."""
    await application(dsn).work(quick(slots=8))


async def take(server: embedded.Server) -> str:
    """Let a node work, kill it, and return what is in the tables."""
    conn = await asyncpg.connect(server.dsn)
    await conn.execute("create database work")
    await conn.close()
    dsn = server.dsn_for("work")
    await migrate.migrate(Database(dsn))
    await prepare(dsn)
    conn = await asyncpg.connect(dsn)
    node = subprocess.Popen([sys.executable, "-m", "kit.release_work", dsn])
    try:
        await eventually(lambda: busy(conn))
    finally:
        node.send_signal(signal.SIGKILL)
        node.wait()
    await leave(dsn)
    taken = await conn.fetchval("select clock_timestamp()::text")
    await conn.close()
    # every row by its columns: a later release may have added some
    options = ["--data-only", "--column-inserts", "--load-via-partition-root", "--no-unlogged-table-data"]
    dump = embedded.find(server.major).folder / "pg_dump"
    made = subprocess.run([dump, *options, "-T", "howdah.migration", dsn], check=True, capture_output=True, text=True)
    text = re.sub(r"\n{2,}", "\n", SKIP.sub("", made.stdout)).strip()
    for here, there in ((str(Path(__file__).parents[2]), "/srv/app"), (socket.gethostname(), "web-1")):
        text = text.replace(here, there)
    return f"-- Rows that nodes left in a database; kit/release_work.py\n-- taken at {taken}\n\n{text}\n"


if __name__ == "__main__":
    if sys.argv[1].isdecimal():
        os.environ["PYTHONPATH"] = str(Path(__file__).parents[1])
        with embedded.start(version=int(sys.argv[1])) as server:
            sys.stdout.write(asyncio.run(take(server)))
    else:
        asyncio.run(work(sys.argv[1]))
