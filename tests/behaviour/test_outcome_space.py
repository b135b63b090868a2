"""Endings drawn at random, on every front: each job gets the state it deserves, none holds up its neighbours, and a
node stops in time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest
from hypothesis import strategies as st

from howdah import Backoff, Howdah
from kit import outcome_handlers
from kit.control_plane import run_remote_node, serving
from kit.node import EVENTUALLY_TIMEOUT, eventually, node
from kit.outcome_strategies import ACTS, DEATHS, DONE, HOLDS, KNOWN, LONG, PLAIN, Ending, Fate, endings, explore, fate
from table.ddl import ddl

pytestmark = pytest.mark.anyio
EXAMPLES = 6
SECONDS = 12.0
"""Draw no more examples after so long: on a slow machine there are fewer of them."""
GRACE = 1.0
PROMPT = EVENTUALLY_TIMEOUT / 2
"""Seconds a stop may take longer than its grace; the handlers that hang would take ten minutes."""
FRESH = Fate("queued", 0)
OPTIONS: dict[str, Any] = {"max_attempts": 2, "retry": Backoff(first=LONG, cap=LONG)}
JOBS = """
select j.id, case when l.due_at > now() + interval '30 minutes' then 'waits' else j.state end as state,
    (select count(*) from howdah.attempt a where a.id = j.id and a.outcome <> 'cancelled') as failures
from howdah.jobs j left join howdah.later l on l.id = j.id where j.id = any($1::bigint[])
"""
ROWS = """
select id, num_failures as failures, case
    when state in ('queued', 'errored') and process_after > now() + interval '30 minutes' then 'waits'
    when state = 'completed' then 'done' when state = 'canceled' then 'cancelled'
    when state = 'processing' then 'running'
    else state end as state
from ends where id = any($1::bigint[])
"""
FUNCTIONS = {
    "async": outcome_handlers.on_loop,
    "thread": outcome_handlers.in_thread,
    "process": outcome_handlers.in_process,
}
Found = dict[int, Fate]


class Jobs:
    """Jobs of one executor."""

    def __init__(self, app: Howdah, conn: Any, executor: str) -> None:
        self._app, self._conn = app, conn
        self._transactional = executor == "transactional"
        how: dict[str, Any] = {"transactional": True} if self._transactional else {"executor": executor}
        function = FUNCTIONS.get(executor, outcome_handlers.in_transaction)
        self._task = app.task(name=executor, **how, **OPTIONS)(function)
        # a kind for each example: the hold of one example must not keep the jobs of the next one waiting
        self._holding = [app.task(name=f"{executor}_hold_{n}", **how, **OPTIONS)(function) for n in range(EXAMPLES)]
        common = ACTS.keys() - HOLDS.keys() - DEATHS.keys()
        self.acts = common | DEATHS.keys() if executor == "process" else common

    async def submit(self, batch: Sequence[Ending], hold: Ending | None = None) -> Found:
        """Enqueue jobs that end so; returns what must become of each."""
        jobs = [self._task.job(each.act, each.value) for each in batch]
        if hold:
            jobs.append(self._holding.pop().job(hold.act, hold.value))
        made = await self._app.enqueue_many(jobs)
        wanted = [fate(each) for each in [*batch, *([hold] if hold else [])]]
        return {job.id: each for job, each in zip(made, wanted, strict=True)}

    async def found(self, ids: Sequence[int]) -> Found:
        """What has become of them."""
        return {row["id"]: Fate(row["state"], row["failures"]) for row in await self._conn.fetch(JOBS, list(ids))}

    async def error(self, id: int) -> Any:
        return await self._conn.fetchval("select error from howdah.jobs where id = $1", id)

    async def verify(self, wanted: Found) -> None:
        """No lease is left or ran out, no wait is beyond ten years, and effects are those of the jobs that are done."""

        async def free() -> bool:
            return not await self._conn.fetchval("select count(*) from howdah.lease")

        assert await eventually(free)
        assert not await self._conn.fetchval("select count(*) from howdah.jobs where resets > 0"), "a lease ran out"
        assert not await self._conn.fetchval(
            "select count(*) from howdah.later where due_at > now() + interval '3660 days'"
        )
        sql = "select kind from howdah.hold where until > now() + interval '90 minutes' or kind not like '%hold%'"
        assert await self._conn.fetch(sql) == []
        if self._transactional:
            await verify_effects(self._conn, wanted)


class Rows:
    """Rows of a table of the user's."""

    acts = ACTS.keys() - DEATHS.keys()

    def __init__(self, app: Howdah, conn: Any, *, transactional: bool = False) -> None:
        self._conn, self._transactional = conn, transactional
        table = app.table("ends", transactional=transactional, stalled_after=60.0, **OPTIONS)
        table.handler(outcome_handlers.row_in_transaction if transactional else outcome_handlers.row)

    async def submit(self, batch: Sequence[Ending], hold: Ending | None = None) -> Found:
        """Insert rows that end so; returns what must become of each."""
        both = [*batch, *([hold] if hold else [])]
        sql = "insert into ends (act, value) select * from unnest($1::text[], $2::text[]) returning id"
        rows = await self._conn.fetch(sql, [each.act for each in both], [each.value for each in both])
        return {row["id"]: fate(each) for row, each in zip(rows, both, strict=True)}

    async def found(self, ids: Sequence[int]) -> Found:
        """What has become of them."""
        return {row["id"]: Fate(row["state"], row["failures"]) for row in await self._conn.fetch(ROWS, list(ids))}

    async def error(self, id: int) -> Any:
        return await self._conn.fetchval("select failure_message from ends where id = $1", id)

    async def verify(self, wanted: Found) -> None:
        """No row was reset, no wait is beyond ten years, and effects are those of the rows that are done."""
        sql = "select count(*) from ends where num_resets > 0 or process_after > now() + interval '3660 days'"
        assert await self._conn.fetchval(sql) == 0
        if self._transactional:
            await verify_effects(self._conn, wanted)


Front = Jobs | Rows


async def verify_effects(conn: Any, wanted: Found) -> None:
    rows = await conn.fetch("select id from effect where id = any($1::bigint[])", list(wanted))
    assert sorted(row["id"] for row in rows) == sorted(id for id, each in wanted.items() if each == DONE)


async def check(
    fronts: Sequence[Front], batch: Sequence[Ending], hold: Ending | None, timeout: float = EVENTUALLY_TIMEOUT
) -> None:
    """Let a batch end between plain neighbours, and compare what becomes of each with what it deserves."""
    batch = [each for ending in batch for each in (ending, PLAIN)]
    for front, wanted in [(front, await front.submit(batch, hold)) for front in fronts]:
        last = time.monotonic() + timeout
        while (found := await front.found(list(wanted))) != wanted and time.monotonic() < last:
            await asyncio.sleep(0.05)
        ended = dict(zip(wanted, [*batch, hold], strict=False))
        wrong = [id for id in wanted if found.get(id) != wanted[id]]
        details = [(ended[id], found.get(id), wanted[id], await front.error(id)) for id in wrong[:5]]
        assert not wrong, f"{len(wrong)}; ending, what became of it, what it deserves, its error: {details}"
        await front.verify(wanted)


async def examine(fronts: Sequence[Front], working: AbstractAsyncContextManager[Any]) -> None:
    """Draw batches for each of the fronts while a node works, then stop it with handlers that do not end."""
    acts = set.intersection(*(set(front.acts) for front in fronts))
    drawn = st.tuples(st.lists(endings(acts), min_size=20, max_size=40), st.none() | endings(HOLDS))

    async def each(example: tuple[list[Ending], Ending | None]) -> None:
        await check(fronts, *example)

    outcome_handlers.released.clear()
    async with working:
        await check(fronts, KNOWN, None)
        await explore(drawn, each, examples=EXAMPLES, seconds=SECONDS)
        last = [(front, await front.submit([outcome_handlers.HANG, *[PLAIN] * 20])) for front in fronts]

        async def hang() -> bool:
            return all([(await front.found(list(ids)))[min(ids)].state == "running" for front, ids in last])

        assert await eventually(hang)
        began = time.monotonic()
    took = time.monotonic() - began
    outcome_handlers.released.set()  # the event loop of the test is not closed before they end
    for front, ids in last:
        found = await front.found(list(ids))
        assert found.pop(min(ids)) == FRESH, "a handler that was stopped is charged for it"
        assert set(found.values()) <= {DONE, FRESH}
    assert took < GRACE + PROMPT


@pytest.fixture
async def tables_conn(conn: Any) -> Any:
    """The connection to a database with the tables of these tests."""
    await conn.execute(f"create table effect (id bigint); {ddl('ends', extra='act text, value text')}")
    return conn


def working(app: Howdah) -> AbstractAsyncContextManager[Any]:
    return node(app, slots=8, lease=60.0, grace=GRACE)


@asynccontextmanager
async def remote(app: Howdah, worker: Howdah) -> AsyncIterator[None]:
    async with (
        serving(app, heartbeat=1.0, offline_after=60.0) as plane,
        run_remote_node(worker, plane, slots=8, grace=GRACE),
    ):
        yield


@pytest.mark.parametrize("executor", [*FUNCTIONS, "transactional"])
async def test_jobs_get_the_state_their_endings_deserve(app, tables_conn, executor):
    await examine([Jobs(app, tables_conn, executor)], working(app))


@pytest.mark.parametrize("transactional", [False, True], ids=["plain", "transactional"])
async def test_rows_get_the_state_their_endings_deserve(app, tables_conn, transactional):
    await examine([Rows(app, tables_conn, transactional=transactional)], working(app))


async def test_over_http_jobs_and_rows_get_the_state_their_endings_deserve(app, tables_conn):
    worker = Howdah()
    for each in (worker, app):
        fronts = [*(Jobs(each, tables_conn, executor) for executor in FUNCTIONS), Rows(each, tables_conn)]
    await examine(fronts, remote(app, worker))


async def test_control_a_batch_that_is_not_split_holds_up_its_neighbours(app, tables_conn, monkeypatch):
    """Results are checked before they reach the database; without that it refuses this one."""
    fronts = [Jobs(app, tables_conn, "async")]
    refused = [Ending("return", "raw: no JSON at all")]
    monkeypatch.setattr("howdah.arguments._ONE_VALUE", Unchecked)
    async with working(app):
        with monkeypatch.context() as patch:
            patch.setattr("howdah.jobs.ack.is_rejection", lambda error: False)
            with pytest.raises(AssertionError, match="what it deserves"):
                await check(fronts, refused, None, timeout=2.0)
        await check(fronts, refused, None)


async def test_control_an_unchecked_result_changes_the_outcome_over_http(app, tables_conn, monkeypatch):
    worker = Howdah()
    for each in (worker, app):
        fronts = [Jobs(each, tables_conn, "async")]
    monkeypatch.setattr("howdah.arguments._ONE_VALUE", Unchecked)
    async with remote(app, worker):
        with pytest.raises(AssertionError, match="what it deserves"):
            await check(fronts, [Ending("return", "raw: two values")], None, timeout=2.0)


class Unchecked:
    """In the place of the check that a result is one JSON value."""

    @staticmethod
    def decode(_data: bytes) -> None: ...
