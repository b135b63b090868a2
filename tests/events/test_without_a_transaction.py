"""A consumer that does not take the transaction: none is held for it, and its checkpoint is as safe."""

from __future__ import annotations

import pytest

from kit.node import drain, eventually, node

pytestmark = pytest.mark.anyio
HELD = """
select count(*) from pg_stat_activity
where datname = current_database() and application_name = 'howdah pool' and state like 'idle in transaction%'
"""
STEAL = "update howdah.consumer_partition set epoch = epoch + 1 where consumer = 'reader'"


@pytest.mark.parametrize("takes", ["event", "event, tx"])
async def test_a_transaction_is_open_only_for_a_handler_that_takes_it(app, conn, takes):
    held = []

    async def check():
        held.append(await conn.fetchval(HELD))

    async def alone(event):
        await check()

    async def with_tx(event, tx):
        await check()

    app.consumer("reader")(alone if takes == "event" else with_tx)
    await app.log.append("Order-1", [{"type": "Placed"}, {"type": "Paid"}])
    await drain(app)
    assert held == [0, 0] if takes == "event" else held == [1, 1]


@pytest.mark.parametrize("batches", [False, True], ids=["one by one", "batches"])
async def test_one_whose_share_was_taken_moves_no_checkpoint(app, conn, connect, batches):
    handled = []
    thief = await connect()

    async def handle(position):
        if not handled:
            await thief.execute(STEAL)
        handled.append(position)

    async def one(event):
        await handle(event.position)

    async def many(events):
        for event in events:
            await handle(event.position)

    app.consumer("reader")(many if batches else one)
    last = (await app.log.append("Order-1", {"type": "Placed"})).position

    async def settled():
        return await conn.fetchval("select position from howdah.checkpoint where consumer = 'reader'") == last

    async with node(app):
        await eventually(settled, 30)
    assert handled == [last, last]  # what the first did no longer counted


async def test_what_it_could_not_handle_is_tried_again_and_what_came_before_is_not(app, conn):
    handled = []

    @app.consumer("reader")
    async def reader(event):
        handled.append(event.version)
        if event.version == 3 and handled.count(3) < 3:
            raise ValueError("not yet")

    await app.log.append("Order-1", [{"type": "Placed"}] * 5)

    async def over():
        return handled[-1:] == [5] and (await app.log.admin.consumers("reader"))[0].failures == 0

    async with node(app):
        await eventually(over, 60)
    assert handled.count(5) == 1
    assert handled[-3:] == [3, 4, 5]
