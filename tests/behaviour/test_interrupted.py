"""Transactions that the server or the connection broke off: no attempt is charged, and nothing happens twice."""

from __future__ import annotations

import time

import asyncpg
import pytest

from howdah import Backoff, Transaction, current_job, telemetry
from kit.node import ended, eventually, job, node

pytestmark = pytest.mark.anyio

RAISE = "do $$ begin raise exception 'on purpose' using errcode = '{}'; end $$"
UNCHARGED = {
    "disk full": "53100",
    "out of memory": "53200",
    "too many connections": "53300",
    "shutting down": "57P01",
    "starting": "57P03",
    "connection failure": "08006",
    "read only": "25006",
}
CHARGED = {
    "temporary files beyond their limit": "53400",
    "statement timeout": "57014",
    "serialization failure": "40001",
    "a raise": "P0001",
}


@pytest.fixture
async def ledger(conn):
    await conn.execute("create table ledger (note text)")

    async def rows():
        return [row["note"] for row in await conn.fetch("select note from ledger")]

    return rows


async def hang_up(app, tx):
    """End the connection of a transaction."""
    pid = await tx.fetchval("select pg_backend_pid()")  # behind a pooler the connection knows another number
    other = await asyncpg.connect(app.database.dsn, statement_cache_size=0)
    await other.execute("select pg_terminate_backend($1, 10000)", pid)
    await other.close()


async def recorded(conn, id):
    """State, attempts used, resets and attempts that failed of a job that is over."""
    row = await ended(conn, id)
    failed = await conn.fetchval("select count(*) from howdah.attempt where id = $1", id)
    return row["state"], row["attempt"], row["resets"], failed


async def test_errors_of_the_server_are_not_charged_and_those_of_the_handler_are(app, conn, ledger):
    runs: list[str] = []

    @app.task(transactional=True, max_attempts=1)
    async def write(tx: Transaction, code: str) -> None:
        await tx.execute("insert into ledger values ($1)", code)
        runs.append(code)
        if runs.count(code) == 1:
            await tx.execute(RAISE.format(code))

    free = [await write.enqueue(code) for code in UNCHARGED.values()]
    paid = [await write.enqueue(code) for code in CHARGED.values()]
    async with node(app, lease=10.0):
        assert [await recorded(conn, each.id) for each in free] == [("done", 1, 0, 0)] * len(free)
        assert [await recorded(conn, each.id) for each in paid] == [("failed", 1, 0, 1)] * len(paid)
    assert sorted(await ledger()) == sorted(UNCHARGED.values())


@pytest.mark.parametrize("how", ["bare", "wrapped", "in a group"])
async def test_a_lost_connection_is_not_charged_however_the_handler_tells_of_it(app, conn, ledger, how):
    runs: list[int] = []

    @app.task(transactional=True, max_attempts=1)
    async def write(tx: Transaction) -> None:
        await tx.execute("insert into ledger values ('once')")
        runs.append(current_job().attempt)
        if len(runs) > 1:
            return
        if how == "wrapped":  # a long statement is not mistaken for a blocked event loop
            await tx.execute("select pg_sleep(4.2)")
        await hang_up(app, tx)
        try:
            await tx.execute("select 1")
        except Exception as error:
            if how == "bare":
                raise
            if how == "wrapped":
                raise RuntimeError("could not write") from error
            raise ExceptionGroup("several", [ValueError("x"), error]) from None

    made = await write.enqueue()
    async with node(app, lease=4.0 if how == "wrapped" else 10.0):
        assert await recorded(conn, made.id) == ("done", 1, 0, 0)
    assert runs == [1, 1]
    assert await ledger() == ["once"]


async def test_what_a_handler_raises_by_itself_is_charged_even_if_its_connection_is_lost(app, conn):
    @app.task(transactional=True, max_attempts=1)
    async def refuse(tx: Transaction) -> None:
        await hang_up(app, tx)
        raise ValueError("no such order")

    @app.task(transactional=True, max_attempts=1)
    async def elsewhere(tx: Transaction) -> None:
        other = await asyncpg.connect(app.database.dsn)
        try:
            await other.execute(RAISE.format("53100"))
        finally:
            await other.close()

    made = [await refuse.enqueue(), await elsewhere.enqueue()]
    async with node(app, lease=10.0):
        rows = [await ended(conn, each.id) for each in made]
    assert [row["error"] for row in rows] == ["ValueError: no such order", "DiskFullError: on purpose"]


async def test_a_connection_lost_in_the_commit_is_not_charged(app, conn, ledger):
    await conn.execute(
        """
        create sequence commits;
        create function hang_up() returns trigger language plpgsql as $$
        begin
            if nextval('commits') = 1 then
                perform pg_terminate_backend(pg_backend_pid());
            end if;
            return null;
        end $$;
        create constraint trigger hang_up after insert on ledger deferrable initially deferred
            for each row execute function hang_up();
        """
    )

    @app.task(transactional=True, max_attempts=1)
    async def write(tx: Transaction) -> None:
        await tx.execute("insert into ledger values ('once')")

    made = await write.enqueue()
    async with node(app, lease=10.0):
        assert await recorded(conn, made.id) == ("done", 1, 0, 0)
    assert await conn.fetchval("select last_value from commits") == 2
    assert await ledger() == ["once"]


async def test_a_commit_whose_reply_is_lost_is_not_done_again(app, conn, ledger, monkeypatch):
    execute, cut, runs, outcomes = asyncpg.Connection.execute, [], [], []
    unsubscribe = telemetry.subscribe(
        lambda name, facts: outcomes.extend(ack.outcome.value for ack in facts["acks"]) if name == "job.ack" else None
    )

    async def cut_off(self, statement, *args, **options):
        status = await execute(self, statement, *args, **options)
        if statement.endswith("; commit") and not cut:
            cut.append(1)
            self.terminate()
            raise asyncpg.ConnectionDoesNotExistError("connection was closed in the middle of operation")
        return status

    monkeypatch.setattr(asyncpg.Connection, "execute", cut_off)

    @app.task(transactional=True, max_attempts=1)
    async def write(tx: Transaction) -> None:
        await tx.execute("insert into ledger values ('once')")
        runs.append(1)

    made = await write.enqueue()
    async with node(app, lease=10.0):
        assert await recorded(conn, made.id) == ("done", 1, 0, 0)
        await eventually(lambda: _some(outcomes))
        await eventually(lambda: _no_lease(conn))
    unsubscribe()
    assert (cut, runs, outcomes) == ([1], [1], ["ok"])
    assert await ledger() == ["once"]


async def _some(things):
    return things


async def _no_lease(conn):
    return not await conn.fetchval("select count(*) from howdah.lease")


async def test_a_job_that_is_always_broken_off_is_tried_ever_less_often(app, conn):
    starts: list[float] = []

    @app.task(transactional=True, max_attempts=1, retry=Backoff(first=0))
    async def doomed(tx: Transaction) -> None:
        starts.append(time.monotonic())
        await tx.execute(RAISE.format("53100"))

    made = await doomed.enqueue()
    async with node(app, lease=10.0):
        await eventually(lambda: _three(starts))
    assert starts[1] - starts[0] >= 0.5
    assert starts[2] - starts[1] >= 1.0
    row = await job(conn, made.id)
    assert (row["state"], row["attempt"]) == ("queued", 0)


async def _three(starts):
    return len(starts) >= 3
