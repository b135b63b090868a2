"""Many jobs that are due at the same second become ready as runs, in whatever order they were scheduled."""

from __future__ import annotations

from typing import Any

import pytest

from howdah.postgres import sql

pytestmark = pytest.mark.anyio

PROMOTE = sql.load("howdah.jobs", schema="howdah")["promote"]
MANY = 5000
FILL = """
insert into howdah.later (id, due_at, priority, attempt, queue, kind)
select i, {due}, 0, 0, {queue}, 'work' from generate_series(1, $1::int) i
"""
SHUFFLED = "date_trunc('second', now()) - interval '1 minute' + (i * 7919 % 10007) * interval '90 microseconds'"
"""A moment within one second that does not rise with the id."""


@pytest.fixture
async def session(database):
    session = await database.connect("claim")
    yield session
    await session.close()


async def fill(conn: Any, due: str, queue: str = "'default'") -> None:
    await conn.execute(FILL.format(due=due, queue=queue), MANY)


async def promote_all(session: Any) -> list[int]:
    """Promote until nothing is due; returns how many each time."""
    promoted: list[int] = []
    while count := (await session.fetchrow(PROMOTE, None, 1000))["promoted"]:
        promoted.append(count)
    return promoted


async def ready(conn: Any) -> list[Any]:
    return await conn.fetch("select lo, hi, queue from howdah.ready order by rid")


async def test_jobs_due_at_the_same_second_become_runs(session, conn):
    await fill(conn, SHUFFLED)

    promoted = await promote_all(session)

    assert sum(promoted) == MANY
    assert len(promoted) <= MANY / 1000
    runs = await ready(conn)
    assert sorted(id for run in runs for id in range(run["lo"], run["hi"])) == list(range(1, MANY + 1))
    assert len(runs) < MANY / 20, f"{len(runs)} runs"
    assert await conn.fetchval("select count(*) from howdah.later") == 0


async def test_neighbours_that_are_due_later_or_in_another_queue_stay_in_their_order(session, conn):
    await fill(conn, f"case when i % 3 = 0 then now() + interval '1 hour' else {SHUFFLED} end", "'q' || i % 2")

    assert sum(await promote_all(session)) == MANY - MANY // 3

    runs = await ready(conn)
    assert all(run["queue"] == f"q{id % 2}" and id % 3 for run in runs for id in range(run["lo"], run["hi"]))
    assert await conn.fetchval("select count(*) from howdah.later") == MANY // 3


async def test_the_order_of_due_times_is_kept_but_for_a_second(session, conn):
    await fill(conn, "now() - (1 + i * 7919 % 10007) * interval '1 second' / 10")
    due = dict(await conn.fetch("select id, due_at from howdah.later"))

    assert sum(await promote_all(session)) == MANY

    latest = None
    for run in await ready(conn):
        earliest = min(due[id] for id in range(run["lo"], run["hi"]))
        assert latest is None or (latest - earliest).total_seconds() <= 1.0
        latest = max(latest or earliest, earliest)
