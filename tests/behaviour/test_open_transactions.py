"""A transaction of the user's that acts on jobs and stays open holds up no outcome of their node."""

from __future__ import annotations

import asyncio

import pytest

from kit.node import eventually, node

pytestmark = pytest.mark.anyio

ACTS = {
    "retry": "select * from howdah.retry($1)",
    "cancel": "select * from howdah.cancel($1)",
    "delete": "select * from howdah.delete($1)",
}
WAITS = """
select count(*) > 0 from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()
"""
DONE = "select count(*) = 8 from howdah.done where state = 'd'"


@pytest.mark.parametrize("act", ACTS)
async def test_an_open_act_on_jobs_of_a_lease_holds_up_no_outcome_of_the_others(app, conn, direct, act):
    """The jobs end in every way: plain, keyed, with a result, by an error; all of them were claimed together."""
    go = asyncio.Event()

    @app.task(max_attempts=1)
    async def fail() -> None:
        raise ValueError("on purpose")

    @app.task(max_attempts=1)
    async def plain() -> None:
        await go.wait()

    @app.task(max_attempts=1)
    async def tell() -> int:
        await go.wait()
        return 1

    @app.task(max_attempts=1)
    async def break_down() -> None:
        await go.wait()
        raise ValueError("on purpose")

    jobs = [fail.job(), *(plain.using(key=f"k{n}").job() for n in range(2)), *(plain.job() for _ in range(3))]
    made = await app.enqueue_many([*jobs, *(tell.job() for _ in range(3)), break_down.job()])
    ids = [each.id for each in made]
    async with node(app, slots=20):
        await eventually(lambda: conn.fetchval("select count(*) = 1 from howdah.done where state = 'f'"))
        holder = await direct.connect("holder")
        held = holder.transaction()
        await held.start()
        # not only the job that is over: those that run are named, too
        await holder.fetch(ACTS[act], [ids[0], ids[1], ids[3]])
        go.set()
        await eventually(lambda: conn.fetchval(DONE))
        await eventually(lambda: conn.fetchval("select count(*) = 9 from howdah.done where id <> $1", ids[0]))
        await held.rollback()
        holder.terminate()
    assert await conn.fetchval("select state from howdah.done where id = $1", ids[-1]) == b"f"


async def test_an_open_enqueue_of_a_running_key_holds_up_no_outcome(app, conn, direct):
    go = asyncio.Event()

    @app.task(max_attempts=1)
    async def plain() -> None:
        await go.wait()

    await app.enqueue_many(plain.using(key=f"k{n}").job() for n in range(8))
    async with node(app, slots=20) as working:
        await eventually(lambda: _runs(working, 8))
        holder = await direct.connect("holder")
        held = holder.transaction()
        await held.start()
        await holder.fetch("select * from howdah.enqueue('plain', key => 'k3')")
        go.set()
        await eventually(lambda: conn.fetchval(DONE))
        await held.rollback()
        holder.terminate()


async def test_a_lock_on_the_lease_itself_would_hold_them_up(app, conn, direct):
    """The control: no function for users takes this lock, so the tests above would see one that did."""
    go = asyncio.Event()

    @app.task(max_attempts=1)
    async def plain() -> None:
        await go.wait()

    await app.enqueue_many(plain.job() for _ in range(8))
    async with node(app, slots=20) as working:
        await eventually(lambda: _runs(working, 8))
        holder = await direct.connect("holder")
        held = holder.transaction()
        await held.start()
        await holder.fetch("select from howdah.lease for update")
        go.set()
        await eventually(lambda: conn.fetchval(WAITS))
        assert not await conn.fetchval(DONE)
        await held.rollback()
        await eventually(lambda: conn.fetchval(DONE))
        holder.terminate()


async def _runs(working, count):
    return len(working.running) == count
