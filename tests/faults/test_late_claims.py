"""A claim whose answer comes when its lease is over: somebody else may have the jobs, so none of them is started."""

from __future__ import annotations

import asyncpg
import pytest

from howdah import Howdah, telemetry
from howdah_lab.torture.context import through
from howdah_lab.torture.proxy import Proxy
from howdah_lab.torture.servers.single import Single
from kit.node import ended, eventually, node

pytestmark = pytest.mark.anyio

LEASE = 2.0
TIMES = {"lease": LEASE, "heartbeat": LEASE / 4}


async def test_what_was_claimed_too_long_ago_is_not_started():
    async with Single({"fsync": "off"}) as own_server, Proxy(own_server.address) as proxy:
        near, far = Howdah(own_server.dsn), Howdah(through(own_server.dsn, proxy))
        await near.migrate()
        ran: list[str] = []
        heard_of: list[str] = []
        over = telemetry.subscribe(lambda name, _facts: heard_of.append(name))

        @near.task(name="small")
        async def here() -> None:
            ran.append("near")

        @far.task(name="small")
        async def there() -> None:
            ran.append("far")

        conn = await asyncpg.connect(own_server.dsn)

        async def heard() -> bool:
            return "far" in ran or "job.release" in heard_of

        async with node(far, upkeep=False, **TIMES):
            await ended(conn, (await here.enqueue()).id)
            assert ran.pop() == "far"
            proxy.delay = 0.8 * LEASE
            made = await here.enqueue()
            await eventually(lambda: conn.fetchval("select count(*) from howdah.lease"))
            async with node(near, **TIMES):
                assert (await ended(conn, made.id))["state"] == "done"
                await eventually(heard)
            proxy.delay = 0.0
        over()
        await conn.close()
        await near.close()
        await far.close()
    assert ran == ["near"]
