"""A single job without a key that may start at once takes a shorter way, and arrives where the function puts it."""

from __future__ import annotations

import asyncpg
import pytest

from howdah import telemetry

pytestmark = pytest.mark.anyio

SEEN = """
select j.kind, j.args, j.queue, j.priority, j.max_attempts, j.timeout, j.key, j.meta, j.trace, j.run_at,
    (select array_agg((r.lo - j.id, r.hi - j.id, r.queue, r.kind, r.priority, r.attempt)::text)
     from howdah.ready r where j.id >= r.lo and j.id < r.hi) as runs,
    (select count(*) from howdah.lane l where l.queue = j.queue and l.priority = j.priority) as lanes
from howdah.job j where j.id = $1
"""


@pytest.fixture
def work(app):
    @app.task
    async def work(n: int = 0, text: str = "") -> None: ...

    return work


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"queue": "other", "priority": -7, "max_attempts": 2, "timeout": 1.5, "meta": {"who": "a\\b"}},
        {"delay": 0.0},
    ],
    ids=["plain", "everything", "no delay"],
)
async def test_it_is_the_job_the_function_makes(work, conn, settings):
    short = await work.using(**settings).enqueue(1, "tab\t back\\slash")
    again = await work.using(**settings).enqueue(2)
    async with conn.transaction():
        made = await work.using(**settings, conn=conn).enqueue(1, "tab\t back\\slash")
    assert short.fresh
    assert again.fresh
    assert again.id > short.id
    ours, function = await conn.fetchrow(SEEN, short.id), await conn.fetchrow(SEEN, made.id)
    assert dict(ours) == dict(function)
    assert (len(ours["runs"]), ours["lanes"]) == (1, 1)


async def test_each_is_told_once(work):
    emitted = []
    unsubscribe = telemetry.subscribe(lambda name, facts: emitted.append(facts) if name == "job.enqueue" else None)
    await work.enqueue()
    await work.using(key="k").enqueue()
    await work.using(key="k").enqueue()
    unsubscribe()
    assert emitted == [{"jobs": 1}, {"jobs": 1}, {"jobs": 0}]


@pytest.mark.parametrize("asleep", [True, False], ids=["somebody sleeps", "nobody sleeps"])
async def test_the_bell_rings_while_somebody_sleeps(work, conn, database, asleep):
    listener = await asyncpg.connect(database.dsn)
    heard: list[str] = []
    await listener.add_listener(
        await conn.fetchval("select howdah.channel()"), lambda *notification: heard.append(notification[-1])
    )
    await conn.fetch("select * from howdah.announce_sleep(array['default'], $1)", 600_000 if asleep else 0)
    await work.enqueue()
    await conn.execute("select pg_notify(howdah.channel(), 'the end')")
    while "the end" not in heard:
        await listener.fetchval("select 1")
    await listener.close()
    assert heard == ["default", "the end"][not asleep :]
