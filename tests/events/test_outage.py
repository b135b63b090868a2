"""The database is away while consumers wait for events: they are there when it is back."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import psycopg
import pytest
from psycopg import sql

from howdah import NewEvent, telemetry
from kit.consumers import following, held
from kit.node import eventually, node, quick

pytestmark = pytest.mark.anyio


@pytest.fixture
def gate(server, direct):
    """Lets nobody into the database any more, and throws out who is in it; or opens it again."""
    name = urlsplit(direct.dsn).path[1:]

    def move(*, open: bool) -> None:
        with psycopg.connect(server.dsn, autocommit=True) as conn:
            change = sql.SQL("alter database {} allow_connections {}")
            conn.execute(change.format(sql.Identifier(name), sql.Literal(open)))
            if not open:
                leave = "select pg_terminate_backend(pid) from pg_stat_activity where datname = %s"
                conn.execute(leave + " and application_name <> 'howdah test'", [name])

    yield move
    move(open=True)


@asynccontextmanager
async def failures():
    """The loops that say they fail, while the block lasts."""
    names: set[str] = set()

    def note(event: str, facts: dict[str, object]) -> None:
        if event == "loop.fail":
            names.add(str(facts["loop"]))

    undo = telemetry.subscribe(note)
    try:
        yield names
    finally:
        undo()


async def test_a_consumer_that_waits_outlives_the_database_being_away(database, conn, gate):
    app, seen = following(database.dsn, "mirror", poll=0.05, max_poll=0.05)

    async with node(app) as running_node, failures() as names:
        await eventually(held(conn, running_node))
        await app.log.append("Order-1", NewEvent(type="Placed"))
        await eventually(lambda: asyncio.sleep(0, len(seen) == 1))

        gate(open=False)
        await eventually(lambda: asyncio.sleep(0, "consumer mirror" in names))
        gate(open=True)

        async def append() -> bool:
            try:
                await app.log.append("Order-1", NewEvent(type="Shipped"))
            except Exception:
                return False
            return True

        await eventually(append)
        await eventually(lambda: asyncio.sleep(0, len(seen) == 2))
    await app.close()


async def test_a_node_that_drains_outlives_a_look_at_the_log_that_fails(database, conn):
    app, seen = following(database.dsn, "mirror", poll=0.05, max_poll=0.05)
    released = asyncio.Event()

    @app.task
    async def busy() -> None:
        await released.wait()

    await app.log.append("Order-1", NewEvent(type="Placed"))
    await busy.enqueue()
    async with failures() as names:
        draining = asyncio.create_task(app.node(quick(drain=True, lease=60.0), upkeep=False).run())
        await eventually(lambda: asyncio.sleep(0, len(seen) == 1))

        await conn.execute("alter function howdah.frontier rename to frontier_away")
        await conn.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where datname = current_database() and application_name = 'howdah frontier'"
        )
        await eventually(lambda: asyncio.sleep(0, "consumers" in names))
        await conn.execute("alter function howdah.frontier_away rename to frontier")
        released.set()
        await asyncio.wait_for(draining, 60)
    assert await conn.fetchval("select count(*) from howdah.done") == 1
    await app.close()


NO_ROOM = """
create table view (position bigint);
create function no_room() returns trigger language plpgsql as $$
begin
    raise exception using errcode = 'disk_full', message = 'could not extend file: No space left on device';
end $$;
create trigger no_room before insert on view for each row execute function no_room()
"""


@pytest.mark.parametrize("events", [1, 3])
@pytest.mark.parametrize("policy", ["halt", "park", "stop_worker"])
async def test_a_consumer_is_not_to_blame_for_a_server_without_room(database, direct, conn, policy, events):
    async def insert(_name, event, tx):
        await tx.execute("insert into view values ($1)", event.position)

    await conn.execute(NO_ROOM)
    app, seen = following(database.dsn, "mirror", handler=insert, max_failures=1, on_failure=policy)
    await app.log.append("Order-1", [NewEvent(type="Placed") for _ in range(events)])

    async with node(app) as running_node, failures() as names:
        await eventually(held(conn, running_node))
        await eventually(lambda: asyncio.sleep(0, "consumer mirror" in names))
        await conn.execute("drop trigger no_room on view")
        await eventually(lambda: asyncio.sleep(0, len(seen) >= events))
    state = await conn.fetchrow("select failures, halted from howdah.checkpoint where consumer = 'mirror'")
    assert tuple(state) == (0, False)
    assert await conn.fetchval("select count(*) from view") == events
    await app.close()
