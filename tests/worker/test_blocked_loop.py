"""A handler that blocks the event loop does not keep the jobs claimed with it from other nodes."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections import Counter
from contextlib import suppress
from functools import partial

import pytest

from howdah import Howdah
from howdah.job import Job
from howdah.worker.capacity import OVERDUE, Prefetched
from kit.node import drain, eventually, quick

pytestmark = pytest.mark.anyio

JOBS = 9
LONG = 30.0
"""Seconds the blocking handler waits at most; also the heartbeat is far away."""


class Blocking:
    """A task whose job 0 blocks the event loop of its node until all others have run elsewhere."""

    def __init__(self) -> None:
        self.ran: list[tuple[int, str]] = []
        self.blocked = threading.Event()
        self.others_done = threading.Event()
        self.in_time = False

    def declare(self, app: Howdah) -> Howdah:
        @app.task(name="work")
        async def work(n: int) -> None:
            self.ran.append((n, threading.current_thread().name))
            if n == 0:
                self.blocked.set()
                self.in_time = self.others_done.wait(LONG)
            elif len(self.ran) == JOBS:
                self.others_done.set()

        self.task = work
        return app


async def test_other_nodes_run_the_jobs_it_has_not_started(app, database, conn):
    blocking = Blocking()
    blocking.declare(app)
    other = blocking.declare(Howdah(database.dsn))
    made = await app.enqueue_many([blocking.task.job(n) for n in range(JOBS)])

    def work_elsewhere() -> None:
        blocking.blocked.wait(LONG)
        stop = threading.Event()

        async def run() -> None:
            node = other.node(quick(slots=2), upkeep=False)
            running = asyncio.create_task(node.run())
            while not blocking.others_done.is_set() and not stop.is_set():
                await asyncio.sleep(0.05)
            node.stop()
            await running

        threading.Timer(LONG, stop.set).start()
        asyncio.run(run())

    elsewhere = threading.Thread(target=work_elsewhere, name="elsewhere")
    elsewhere.start()
    await drain(app, slots=JOBS, lease=120.0, heartbeat=60.0)
    await asyncio.to_thread(elsewhere.join)

    assert blocking.in_time
    assert Counter(n for n, _ in blocking.ran) == Counter(range(JOBS)), "each ran once"
    assert {n for n, where in blocking.ran if where == "elsewhere"} == set(range(1, JOBS))
    states = await conn.fetch("select id, state, attempt from howdah.jobs order by id")
    assert [(row["id"], row["state"], row["attempt"]) for row in states] == [(each.id, "done", 1) for each in made]
    assert await conn.fetchval("select count(*) from howdah.lease") == 0
    assert await conn.fetchval("select count(*) from howdah.gone") == 0


async def test_alone_it_runs_them_itself_when_the_event_loop_is_free_again(app, conn):
    ran: list[int] = []

    @app.task(name="work")
    async def work(n: int) -> None:
        ran.append(n)
        if n == 0:
            time.sleep(2 * OVERDUE + 1)

    await app.enqueue_many([work.job(n) for n in range(JOBS)])
    await drain(app, slots=JOBS, lease=120.0, heartbeat=60.0)

    assert sorted(ran) == list(range(JOBS))
    assert await conn.fetchval("select count(*) from howdah.jobs where state = 'done' and attempt = 1") == JOBS
    assert await conn.fetchval("select count(*) from howdah.lease") == 0


async def test_when_they_cannot_be_released_the_event_loop_releases_them(app, conn, caplog):
    ran: list[int] = []

    @app.task(name="work")
    async def work(n: int) -> None:
        ran.append(n)
        if n == 0:
            time.sleep(2 * OVERDUE + 1)

    await app.enqueue_many([work.job(n) for n in range(JOBS)])
    node = app.node(quick(slots=JOBS, lease=120.0, heartbeat=60.0, drain=True), upkeep=False)
    running = asyncio.create_task(node.run())
    await eventually(lambda: asyncio.sleep(0, bool(node.renewals)))
    node.renewals[0]._release = "select 1 / 0"
    await running

    assert "could not release 8 prefetched jobs" in caplog.text
    assert sorted(ran) == list(range(JOBS))
    assert await conn.fetchval("select count(*) from howdah.jobs where state = 'done' and attempt = 1") == JOBS


def test_two_threads_never_take_the_same_job():
    """The event loop and the heartbeat thread take jobs at the same time, in every way there is."""
    switching = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(20):
            _take_from_two_threads()
    finally:
        sys.setswitchinterval(switching)


def _take_from_two_threads() -> None:
    prefetched = Prefetched({})
    overdue = time.monotonic() - 2 * OVERDUE
    prefetched.jobs.extend((Job(n, "default", "work", 1, 5, n % 100, b"{}"), overdue) for n in range(500))
    ways = [prefetched.pop_all, *(partial(prefetched.pop_leases, {token}) for token in range(99))]
    ways += [lambda: [prefetched.pop()], partial(prefetched.pop_kind, "work", 2)] * 50
    taken: list[Job] = []
    taker = threading.Thread(target=lambda: taken.extend(prefetched.pop_overdue()))
    mine: list[Job] = []
    taker.start()
    while ways:
        with suppress(IndexError):
            mine += ways.pop()()
    taker.join()

    assert sorted(job.id for job in mine + taken) == list(range(500))
