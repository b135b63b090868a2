"""Event loops that come and go, in many threads: every enqueue happens, and connections end with their loop."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import Callable
from urllib.parse import urlsplit

import psycopg
import pytest

from howdah import ConfigError, Howdah
from howdah.clients import MOST_STOPPED, ClientsByLoop

THREADS, LOOPS = 8, 15
THREAD_TIMEOUT = 30.0


@pytest.fixture
def shop(direct):
    app = Howdah(direct.dsn)

    @app.task
    async def pack(n: int) -> None: ...

    app.pack = pack
    return app


class Watch:
    """Counts the connections of Howdah's pools to one database."""

    def __init__(self, server, database) -> None:
        self._conn = psycopg.connect(server.dsn, autocommit=True)
        self._name = urlsplit(database.dsn).path[1:]
        self.most = 0

    def count(self) -> int:
        [found] = self._conn.execute(
            "select count(*) from pg_stat_activity where datname = %s and application_name like 'howdah%%'",
            [self._name],
        ).fetchone()
        self.most = max(self.most, found)
        return found

    def settles_at(self, most: int) -> bool:
        return wait_for(lambda: self.count() <= most)

    def during(self, work: Callable[[], None]) -> None:
        """Do ``work`` in another thread, and count until it is done."""
        working = threading.Thread(target=work)
        working.start()
        while working.is_alive():
            self.count()
            time.sleep(0.02)
        working.join()


@pytest.fixture
def watch(server, direct):
    watch = Watch(server, direct)
    yield watch
    watch._conn.close()


def wait_for(check: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + THREAD_TIMEOUT
    while time.monotonic() < deadline:
        if check():
            return True
        time.sleep(0.05)
    return check()


def with_run(work) -> None:
    asyncio.run(work())


def by_hand(work) -> None:
    """A loop that is closed without being shut down in an orderly way."""
    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(work())
    finally:
        loop.close()


def with_uvloop(work) -> None:
    uvloop = pytest.importorskip("uvloop")
    loop = uvloop.new_event_loop()
    try:
        loop.run_until_complete(work())
    finally:
        loop.close()


@pytest.mark.parametrize("how", [with_run, by_hand, with_uvloop])
def test_short_loops_in_many_threads_all_enqueue_and_leave_no_connection(shop, watch, how):
    errors: list[Exception] = []

    def visit(first: int) -> None:
        for n in range(first, first + LOOPS):
            try:
                how(lambda n=n: shop.enqueue(shop.pack.job(n)))
            except Exception as error:
                errors.append(error)

    def visit_all() -> None:
        threads = [threading.Thread(target=visit, args=(first * LOOPS,)) for first in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    watch.during(visit_all)

    assert not errors
    assert enqueued(shop) == THREADS * LOOPS
    assert watch.most <= 3 * THREADS  # of each thread: one in use, one being opened, one that the server is ending
    assert watch.settles_at(0)


def test_two_loops_that_take_turns_keep_their_connections(shop, watch):
    loops = [asyncio.new_event_loop() for _ in range(2)]

    for turn in range(40):
        loops[turn % 2].run_until_complete(shop.enqueue(shop.pack.job(turn)))
        watch.count()

    assert enqueued(shop) == 40
    assert watch.most <= 4
    for loop in loops:
        loop.run_until_complete(shop.close())
        loop.close()
    assert watch.settles_at(0)


def test_control_two_loops_with_the_clients_of_one_fail(shop, monkeypatch):
    here = ClientsByLoop._here
    monkeypatch.setattr(
        ClientsByLoop, "_here", lambda clients: next(iter(clients._by_loop.values()), None) or here(clients)
    )
    first, second = (asyncio.new_event_loop() for _ in range(2))
    first.run_until_complete(shop.enqueue(shop.pack.job(1)))

    with pytest.raises(Exception, match=r"different loop|another operation|timeout|^$"):
        second.run_until_complete(asyncio.wait_for(shop.enqueue(shop.pack.job(2)), 1))
    first.run_until_complete(shop.close())
    first.close()
    second.close()


@pytest.mark.parametrize("kind", ["asyncio", "uvloop"])
def test_loops_that_nobody_closes_keep_a_bounded_number_of_connections(shop, watch, kind):
    new_loop = pytest.importorskip(kind).new_event_loop
    loops = []
    for n in range(MOST_STOPPED + 10):
        loops.append(new_loop())
        loops[-1].run_until_complete(shop.enqueue(shop.pack.job(n)))

    assert watch.settles_at(MOST_STOPPED + 1)
    # those that lost their connections and run again get new ones
    for loop in loops[:5] * 2:
        loop.run_until_complete(shop.enqueue(shop.pack.job(99)))
    assert enqueued(shop) == MOST_STOPPED + 20
    for loop in loops:
        loop.close()
    assert watch.settles_at(0)


def test_a_loop_goes_on_after_its_generators_were_shut_down(shop, watch):
    async def work() -> None:
        await shop.enqueue(shop.pack.job(1))
        await asyncio.get_running_loop().shutdown_asyncgens()
        await shop.enqueue(shop.pack.job(2))

    with pytest.warns(ResourceWarning, match="after loop.shutdown_asyncgens"):
        asyncio.run(work())

    assert enqueued(shop) == 2
    assert watch.settles_at(0)


def test_many_calls_in_one_loop_share_a_connection(shop, watch):
    async def work() -> None:
        for n in range(50):
            await asyncio.gather(*(shop.enqueue(shop.pack.job(n)) for _ in range(10)))

    watch.during(lambda: asyncio.run(work()))

    assert enqueued(shop) == 500
    assert watch.most <= 3


def test_turning_to_a_database_leaves_no_thread_and_no_connection_behind(shop, direct, watch):
    shop.enqueue_sync(shop.pack.job(0))
    threads = threading.active_count()

    for n in range(1, 10):
        shop.connect_to(direct.dsn)
        shop.enqueue_sync(shop.pack.job(n))
        assert watch.settles_at(1)

    assert enqueued(shop) == 10
    assert threading.active_count() == threads
    shop.connect_to(direct.dsn)
    assert watch.settles_at(0)


async def turn_in_the_loop(shop, dsn: str) -> None:
    await shop.enqueue(shop.pack.job(1))
    for steps in range(5):  # each at another moment of the call
        slow = asyncio.gather(*(shop.enqueue(shop.pack.job(n)) for n in range(5)))
        for _ in range(steps):
            await asyncio.sleep(0)
        shop.connect_to(dsn)
        await slow


def test_calls_under_way_while_the_database_is_turned_to_end_well(shop, direct, watch):
    asyncio.run(turn_in_the_loop(shop, direct.dsn))

    assert enqueued(shop) == 26
    assert watch.settles_at(0)


def test_synchronous_calls_of_many_threads_share_one_bridge(shop, watch):
    def work() -> None:
        threads = [
            threading.Thread(target=lambda: [shop.enqueue_sync(shop.pack.job(n)) for n in range(10)]) for _ in range(16)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    watch.during(work)

    assert enqueued(shop) == 160
    assert watch.most <= 11
    assert sum(thread.name == "howdah-bridge" for thread in threading.enumerate()) == 1


def test_jobs_that_call_back_while_they_are_produced_are_refused(shop):
    with pytest.raises(ConfigError, match="while the jobs of another one are being produced"):
        shop.enqueue_many_sync(shop.pack.job(shop.enqueue_sync(shop.pack.job(n)).id) for n in range(3))

    assert enqueued(shop) == 0


def test_a_closed_loop_and_its_clients_can_be_collected(shop):
    import weakref

    loop = asyncio.new_event_loop()
    loop.run_until_complete(shop.enqueue(shop.pack.job(1)))
    loop.close()
    gone = weakref.ref(loop)
    del loop
    gc.collect()

    assert gone() is None
    assert not shop._clients._by_loop


def enqueued(app: Howdah) -> int:
    with psycopg.connect(app.database.dsn) as conn:
        [found] = conn.execute("select count(*) from howdah.job").fetchone()
    return found
