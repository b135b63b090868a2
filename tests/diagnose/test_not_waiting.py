"""A job that does not wait: it runs, and who holds it; or it is over, and whether it can be retried."""

from __future__ import annotations

from typing import Any

import pytest

from howdah import Howdah, Poison
from howdah.node.registry import node_name
from kit.node import drain, eventually, node, state

pytestmark = pytest.mark.anyio


@pytest.fixture
def send(app: Howdah) -> Any:
    @app.task
    async def send(fail: bool = False) -> None:
        if fail:
            raise Poison("user 13 has\nno address")

    return send


async def test_a_running_job_and_whether_its_node_still_beats(app: Howdah, long: Any, ask: Any, conn: Any) -> None:
    slow = long()
    async with node(app, heartbeat=15, lease=60) as running_node:
        id = await slow.start()
        await eventually(lambda: conn.fetchval("select beat_at > started_at from howdah.node"))
        [lease] = (await ask(id)).values()
        where = f"it is running on node {running_node.node} ({node_name()}) since 20"
        assert (lease.name, lease.open) == ("lease", False)
        assert lease.fact.startswith(where)
        assert ", attempt 1 of 5; that node sent a heartbeat " in lease.fact
        assert "; its lease lasts until 20" in lease.fact

        await conn.execute("update howdah.node set beat_at = now() - interval '40 seconds'")
        [silent] = (await ask(id)).values()
        assert "; that node has sent no heartbeat for 40 s; its lease lasts until 20" in silent.fact
        assert silent.fact.endswith(", then the job returns to its queue")

        await conn.execute("update howdah.node set state = 'offline'")
        [offline] = (await ask(id)).values()
        assert "; that node is offline; its lease lasts until 20" in offline.fact
        slow.go.set()


async def test_a_lease_that_ended_and_that_nobody_takes_back(app: Howdah, long: Any, ask: Any, conn: Any) -> None:
    slow = long()
    async with node(app, upkeep=False, heartbeat=15, lease=60):
        id = await slow.start()
        await conn.execute("update howdah.lease set expires_at = now() - interval '3 minutes'")
        [lease] = (await ask(id)).values()
        slow.go.set()

    assert lease.fact.endswith("(3 min ago), and no node has reset it")
    assert lease.fix == "start a worker: its maintenance loop returns the job to the queue"


async def test_a_running_job_that_was_asked_to_cancel(app: Howdah, long: Any, ask: Any, conn: Any) -> None:
    slow = long()
    async with node(app, heartbeat=15, lease=60):
        id = await slow.start()
        await eventually(lambda: conn.fetchval("select beat_at > started_at from howdah.node"))
        await app.admin.cancel([id])
        gates = await ask(id)
        slow.go.set()

    assert list(gates) == ["lease", "cancel"]
    assert not gates["cancel"].open
    assert gates["cancel"].fact.endswith("with its next heartbeat")


async def test_a_job_that_is_over_says_how_and_when(app: Howdah, send: Any, ask: Any, conn: Any) -> None:
    good, bad, gone = (await send.enqueue()).id, (await send.enqueue(fail=True)).id, (await send.enqueue()).id
    await app.admin.cancel([gone])
    await drain(app)

    [done], [failed], [cancelled] = [(await ask(id)).values() for id in (good, bad, gone)]
    assert {done.name, failed.name, cancelled.name} == {"over"}
    assert done.fact.startswith("it is done since 20")
    node = await conn.fetchval("select id from howdah.node")
    assert done.fact.endswith(f" on node {node} ({node_name()}), attempt 1 of 5")
    assert done.fix is None
    assert failed.fact.endswith("attempt 1 of 5: Poison: user 13 has no address")
    assert failed.fix == f"howdah retry {bad}"
    assert cancelled.fact.endswith("attempt 0 of 5: cancelled while waiting")


async def test_the_key_of_a_failed_job_is_held_by_another(app: Howdah, send: Any, ask: Any, conn: Any) -> None:
    failed = (await send.using(key="user-13").enqueue(fail=True)).id
    await drain(app)
    assert (await ask(failed))["key"].open

    holder = (await send.using(key="user-13").enqueue()).id
    key = (await ask(failed))["key"]
    assert not key.open
    assert key.fact == f"its key 'user-13' is held by job {holder}, so it cannot be retried"
    assert key.fix == f"wait until that job has finished, or `howdah cancel {holder}`"
    assert [each.result for each in await app.admin.retry([failed])] == [f"key held by job {holder}"]

    await app.admin.cancel([holder])
    assert (await ask(failed))["key"].open
    assert [each.result for each in await app.admin.retry([failed])] == ["queued"]
    assert await state(conn, failed) == "queued"


async def test_a_job_that_is_nowhere_is_a_bug_and_said_so(send: Any, ask: Any, conn: Any) -> None:
    made = await send.enqueue()
    await conn.execute("delete from howdah.ready")

    [gate] = (await ask(made.id)).values()
    assert (gate.name, gate.open) == ("place", False)
