"""Herds: many nodes that come back at once, and many jobs that fall due at once."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import asynccontextmanager

import asyncpg
import pytest

from howdah import Howdah
from howdah import loops as service
from howdah.postgres import migrate
from howdah.postgres.database import Database
from howdah_lab.torture.context import through
from howdah_lab.torture.proxy import Proxy
from howdah_lab.torture.servers.ports import free_ports
from howdah_lab.torture.servers.single import Single
from kit.node import eventually, quick
from kit.node_processes import NodeProcesses, plain
from kit.node_processes import app as farm_app

pytestmark = [pytest.mark.anyio, pytest.mark.stories]

NODES = 20
"""Whole nodes with all of their connections, in one process: twenty processes are more than a small machine bears."""
DOWN = 10.0
REFUSED, ACCEPTED = 20, 7
"""Connections a node may try to open per second: while none is accepted, and from the moment they are again. It has
seven, each with a backoff of its own: three tries in the first second, one in any second later on."""
BACK = 5.0
"""Seconds after which every node works again."""


@pytest.fixture(scope="module")
async def own_server():
    async with Single({"fsync": "off", "max_connections": "500"}) as own_server:
        await migrate.migrate(Database(own_server.dsn))
        yield own_server


class Herd:
    """Nodes behind one line, and work for all of them."""

    def __init__(self, own_server, proxy, loop, app, nodes):
        self._own_server, self._proxy, self._loop = own_server, proxy, loop
        self._server = proxy.to
        self._nodes = [app.node(quick(slots=2, lease=60.0, poll=1.0, heartbeat=1.0)) for _ in range(nodes)]
        self._over = False
        self._opened: list[tuple[float, int]] = []

    async def run(self):
        """Start everybody, and see all of them work."""
        self._conn = await Database(self._own_server.dsn).connect("test")
        self._running = [asyncio.create_task(running_node.run()) for running_node in self._nodes]
        self._beside = [asyncio.create_task(self._feed()), asyncio.create_task(self._count())]
        await self.all_work()

    async def end(self):
        self._over = True
        for running_node in self._nodes:
            running_node.stop(now=True)
        await asyncio.gather(*self._running, *self._beside)
        await self._conn.execute("truncate howdah.ready")
        await self._conn.close()

    def refuse(self):
        """From now on nobody is accepted, and nobody stays connected."""
        [nobody] = free_ports(1)
        self._proxy.to = ("127.0.0.1", nobody)
        self._loop.call_soon_threadsafe(self._proxy.cut)

    def accept(self):
        self._proxy.to = self._server

    async def all_work(self, seconds=90.0):
        """Wait until each of them has finished something that it began from now on; returns the seconds it took."""
        began = time.monotonic()
        since = await self._conn.fetchval("select clock_timestamp()")

        async def all_do():
            return await self._conn.fetchval(
                "select count(distinct node) from howdah.done where finished_at > $1", since
            ) == len(self._nodes)

        await eventually(all_do, seconds)
        return time.monotonic() - began

    def peak(self, since, until):
        """Most attempts to connect in any second in between, per node."""
        inside = [each for each in self._opened if since <= each[0] <= until]
        most = first = 0
        for at, opened in inside:
            while at - inside[first][0] > 1.0:
                first += 1
            most = max(most, opened - inside[first][1])
        return most / len(self._nodes)

    async def _feed(self):
        conn = await Database(self._own_server.dsn).connect("feed")
        while not self._over:
            # little enough that nothing piles up while nobody works
            if await conn.fetchval("select count(*) from howdah.ready") < 10 * len(self._nodes):
                await conn.execute("select howdah.enqueue('step') from generate_series(1, $1)", len(self._nodes))
            await asyncio.sleep(0.05)
        await conn.close()

    async def _count(self):
        while not self._over:
            self._opened.append((time.monotonic(), self._proxy.opened))
            await asyncio.sleep(0.02)


@asynccontextmanager
async def proxy_to(own_server):
    """A line in a thread of its own: nodes that end wait for their hearts, and these for the line."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    proxy = Proxy(own_server.address)
    try:
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(proxy.__aenter__(), loop))
        yield proxy, loop
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(proxy.__aexit__(), loop))
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@asynccontextmanager
async def herd(own_server, nodes):
    async with proxy_to(own_server) as (proxy, loop):
        app = Howdah(through(own_server.dsn, proxy))

        @app.task
        async def step() -> None:
            await asyncio.sleep(0.02)

        together = Herd(own_server, proxy, loop, app, nodes)
        try:
            await together.run()
            yield together
        finally:
            together.accept()
            await together.end()
            await app.close()


@pytest.mark.timeout(300)
async def test_a_server_that_comes_back_is_not_trampled_and_all_nodes_are_back_soon(own_server):
    async with herd(own_server, NODES) as nodes:
        calm = await nodes.all_work()
        down = time.monotonic()
        nodes.refuse()
        await asyncio.sleep(DOWN)
        nodes.accept()
        up = time.monotonic()
        took = await nodes.all_work()
        await asyncio.sleep(1.0)
        refused, accepted = nodes.peak(down, up), nodes.peak(up, up + took + 1)

    message = (
        f"{refused:.1f} and {accepted:.1f} attempts per node and second, back in {took:.1f} s ({calm:.1f} when calm)"
    )
    print(message)
    assert 0 < refused <= REFUSED, message
    assert 0 < accepted <= ACCEPTED, message
    # what takes long when nothing is wrong is not owed to the outage
    assert took < BACK + 10 * calm, message


@pytest.mark.parametrize("pause", [0.0, 9.0], ids=["none", "far-too-long"])
async def test_without_the_backoff_it_would_be_seen(own_server, monkeypatch, pause):
    """The controls: nodes that try again at once, and nodes that take their time."""
    async with herd(own_server, 3) as nodes:
        with monkeypatch.context() as patch:
            patch.setattr(service.Outage, "fail", lambda _self, _error: pause)
            down = time.monotonic()
            nodes.refuse()
            await asyncio.sleep(2.0)
            nodes.accept()
            up = time.monotonic()
            if pause:
                with pytest.raises(AssertionError, match="did not come true"):
                    await nodes.all_work(BACK)
            else:
                assert nodes.peak(down, up) > REFUSED


def test_no_wait_is_longer_than_what_nodes_have_to_be_back():
    outage = service.Outage("a test")
    waits = [outage.fail(OSError()) for _ in range(1000)]
    assert max(waits) < 0.9 * BACK
    assert max(waits[:3]) < 1.0, "a short outage is over soon"
    assert len({round(wait, 3) for wait in waits}) > 100, "nobody keeps step with another"


@pytest.mark.timeout(300)
async def test_ten_thousand_jobs_due_in_one_second_are_drained_without_a_deadlock(database, conn):
    farm_app.connect_to(database.dsn)
    before = await deadlocks(conn)
    with NodeProcesses(database.dsn, SLOTS="10", LEASE="30") as processes:
        for _ in range(3):
            processes.start()
        await eventually(lambda: _nodes(conn, 3), 60)
        # all due at the same moment, in a queue that all of them serve
        due = await conn.fetchval("select clock_timestamp() + interval '4 seconds'")
        jobs = [plain.using(run_at=due).job(n) for n in range(10_000)]
        made = await farm_app.enqueue_many(jobs)
        assert len(made) == 10_000
        await eventually(lambda: _done(conn, 10_000), 120)
        busy = await conn.fetchval("select count(distinct node) from howdah.done")
    await eventually(lambda: _alone(conn))

    rows = await conn.fetch("select state, attempt, count(*) from howdah.jobs group by 1, 2")
    assert [tuple(row) for row in rows] == [("done", 1, 10_000)]
    assert await conn.fetchval("select count(*) from howdah.done where finished_at < $1", due) == 0
    assert busy > 1
    assert await deadlocks(conn) == before
    await farm_app.close()


async def test_a_deadlock_would_be_counted(direct, conn):
    """The control."""
    before = await deadlocks(conn)
    await conn.execute("create table two (n int); insert into two values (1), (2)")

    async def lock(first, second, locked, other):
        mine = await direct.connect("test")
        try:
            async with mine.transaction():
                await mine.execute("select from two where n = $1 for update", first)
                locked.set()
                await other.wait()
                await mine.execute("select from two where n = $1 for update", second)
        finally:
            await mine.close()

    one, two = asyncio.Event(), asyncio.Event()
    ends = await asyncio.gather(lock(1, 2, one, two), lock(2, 1, two, one), return_exceptions=True)
    assert [type(end) for end in ends if end] == [asyncpg.DeadlockDetectedError]

    async def counted():
        return await deadlocks(conn) == before + 1

    await eventually(counted)


async def deadlocks(conn):
    return await conn.fetchval("select deadlocks from pg_stat_database where datname = current_database()")


async def _nodes(conn, n):
    return await conn.fetchval("select count(*) from howdah.node") == n


async def _done(conn, n):
    return await conn.fetchval("select count(*) from howdah.done") == n


async def _alone(conn):
    """What others counted is known once they are gone."""
    return await conn.fetchval(
        "select count(*) = 0 from pg_stat_activity where datname = current_database()"
        " and application_name ~ '^howdah (claim|ack|heartbeat|reset|upkeep)$' and pid <> pg_backend_pid()"
    )
