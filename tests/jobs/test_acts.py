"""Delete, reprioritize, move: what becomes of jobs, and of all that was written of them."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from howdah import Backoff, ConfigError, Poison
from howdah.worker.job_log import job_log, progress
from kit.node import drain, eventually, node

pytestmark = pytest.mark.anyio

WRITTEN = ("job", "done", "attempt", "job_log", "progress", "job_key", "cancel_request", "ready", "later", "run")


@pytest.fixture
async def shop(app):
    """An application with tasks that end in every way; ``order`` is the order they ran in."""
    app.gate, app.order = asyncio.Event(), []

    @app.task
    async def note(n: int = 0) -> int:
        app.order.append(n)
        return n

    @app.task
    async def poison() -> None:
        job_log("a last word")
        progress(0.5)
        raise Poison("never")

    @app.task(max_attempts=2, retry=Backoff(first=3600, jitter=0))
    async def stumble() -> None:
        raise ValueError("not yet")

    @app.task(queue="slow")
    async def wait() -> None:
        await app.gate.wait()

    yield app
    app.gate.set()
    await app.close()


def results_by_id(answers) -> dict[int, str]:
    return {each.id: each.result for each in answers}


async def rows(conn, *ids: int) -> Counter[str]:
    """How many rows each table has of these jobs."""
    found = Counter()
    for table in WRITTEN:
        if table == "ready":
            where = "exists (select from unnest($1::int8[]) i where i >= lo and i < hi)"
        elif table == "job_key":
            where = "id = any($1)"
        else:
            where = f"{'job' if table == 'run' else 'id'} = any($1)"
        if n := await conn.fetchval(f"select count(*) from howdah.{table} where {where}", list(ids)):
            found[table] = n
    return found


# -------------------------------------------------------------------- delete


async def test_delete_says_what_became_of_each_and_leaves_nothing_of_it(shop, conn):
    note, poison, wait = (shop.tasks[name] for name in ("note", "poison", "wait"))
    done, failed = await note.enqueue(1), await poison.enqueue()
    await drain(shop)
    await conn.execute("insert into howdah.run (job, attempt, kind, spec) values ($1, 1, 'build', '{}')", failed.id)
    queued, keyed, later = (
        await note.enqueue(),
        await note.using(key="k").enqueue(),
        await note.using(delay=99).enqueue(),
    )
    stays = await note.enqueue(7)
    running = await wait.enqueue()
    async with node(shop, queues={"slow": None}):
        await eventually(lambda: shop.admin.list("running"))
        written = await rows(conn, failed.id)
        ids = [done.id, failed.id, queued.id, keyed.id, later.id, running.id, 999]
        answers = await shop.admin.delete(ids)
        shop.gate.set()

    assert set(written) == {"job", "done", "attempt", "job_log", "progress", "run"}
    assert results_by_id(answers) == dict.fromkeys(ids[:5], "deleted") | {running.id: "running", 999: "unknown"}
    assert [each.did for each in answers] == [True] * 5 + [False] * 2
    assert await rows(conn, *ids[:5]) == {}
    assert [row.id for row in await shop.admin.list()] == [running.id, stays.id]
    again = await note.using(key="k").enqueue()
    assert again.fresh, "its key is free"
    await drain(shop)
    assert shop.order == [1, 7, 0]


async def test_jobs_around_a_deleted_one_keep_their_place(shop, conn):
    made = [each.id for each in await shop.enqueue_many(shop.tasks["note"].job(n) for n in range(10))]

    await shop.admin.delete([made[0], made[4], made[5], made[9]])
    await drain(shop, slots=1)

    assert shop.order == [1, 2, 3, 6, 7, 8]
    assert await conn.fetchval("select count(*) from howdah.done") == 6


async def test_a_finished_job_of_an_open_lease_is_deleted_and_no_longer_counted(shop, conn):
    [bad, good, runs] = [each.id for each in await shop.enqueue_many(shop.tasks["wait"].job() for _ in range(3))]
    await conn.execute("delete from howdah.ready")
    await conn.execute(
        "insert into howdah.lease (node, expires_at, first_id, end_id, rids, los, his, attempts)"
        " values (1, now() + interval '1 h', $1, $2, '{1}', array[$1::int8], array[$2::int8], '{1}')",
        bad,
        runs + 1,
    )
    await conn.execute("insert into howdah.done (id, attempt, state) values ($1, 1, 'f'), ($2, 1, 'd')", bad, good)

    answers = await shop.admin.delete([bad, good, runs])
    [slow] = await shop.admin.queues()
    count = await shop.admin.count("running", queue="slow", kind="wait")
    await conn.execute("update howdah.done set finished_at = now() - interval '2 minutes'")
    later = await shop.admin.delete([good])

    assert results_by_id(answers) == {bad: "deleted", good: "fresh", runs: "running"}
    assert (slow.running, count.jobs) == (1, 1)
    assert [row.id for row in await shop.admin.list("running")] == [runs]
    assert results_by_id(later) == {good: "deleted"}
    await conn.execute("update howdah.lease set expires_at = now() - interval '1 s'")
    assert await conn.fetchrow("select leases, requeued from howdah.reset()") == (1, 1), "only the one that ran"


# -------------------------------------------------------------------- reprioritize and move


async def test_a_higher_priority_comes_first_and_the_others_keep_their_order(shop, conn):
    made = [each.id for each in await shop.enqueue_many(shop.tasks["note"].job(n) for n in range(8))]
    single = await shop.tasks["note"].enqueue(8)

    answers = await shop.admin.reprioritize([single.id, made[5], made[2], made[6]], 10)
    await drain(shop, slots=1)

    assert results_by_id(answers) == dict.fromkeys([made[2], made[5], made[6], single.id], "reprioritized")
    assert shop.order == [2, 5, 6, 8, 0, 1, 3, 4, 7]
    assert await conn.fetchval("select array_agg(priority order by id) from howdah.job") == [
        0,
        0,
        10,
        0,
        0,
        10,
        10,
        0,
        10,
    ]


@pytest.mark.parametrize(("verb", "to", "column"), [("reprioritize", 7, "priority"), ("move", "bulk", "queue")])
async def test_what_waits_to_retry_and_what_is_retried_keeps_it(shop, conn, verb, to, column):
    stumbled = await shop.tasks["stumble"].enqueue()
    await drain(shop)
    answers = await getattr(shop.admin, verb)([stumbled.id], to)
    waiting = await conn.fetchrow("select * from howdah.later")
    await conn.execute("update howdah.later set due_at = now()")
    await drain(shop)
    row = await shop.admin.get(stumbled.id)
    await shop.admin.retry([stumbled.id])

    assert [each.did for each in answers] == [True]
    assert (waiting[column], waiting["attempt"]) == (to, 1)
    assert waiting["due_at"] > (await conn.fetchval("select now()")), "it waits as long as before"
    assert (row.state, getattr(row, column)) == ("failed", to), "it was claimed from there"
    assert await conn.fetchval(f"select {column} from howdah.ready") == to


@pytest.mark.parametrize(("verb", "to", "did"), [("reprioritize", 7, "reprioritized"), ("move", "bulk", "moved")])
async def test_only_waiting_jobs_can_be_rearranged(shop, verb, to, did):
    note, wait = shop.tasks["note"], shop.tasks["wait"]
    done = await note.enqueue()
    await drain(shop)
    there = await note.using(queue="bulk", priority=7, delay=99).enqueue()
    queued = await note.enqueue()
    running = await wait.enqueue()
    async with node(shop, queues={"slow": None}):
        await eventually(lambda: shop.admin.list("running"))
        answers = await getattr(shop.admin, verb)([done.id, there.id, queued.id, running.id, 999], to)
        shop.gate.set()

    assert results_by_id(answers) == {
        done.id: "over",
        there.id: "same",
        queued.id: did,
        running.id: "running",
        999: "unknown",
    }
    assert {each.id for each in answers if each.did} == {queued.id}


async def test_a_node_that_sleeps_hears_of_a_job_moved_to_its_queue(shop, conn):
    """Also of a queue nobody used before, with a poll that does not come."""
    made = await shop.tasks["note"].enqueue(3)
    async with node(shop, queues={"bulk": None}, poll=100):
        await eventually(lambda: conn.fetchval("select count(*) > 0 from howdah.node where state = 'idle'"))
        await asyncio.sleep(0.3)  # long enough to fall asleep; too short only makes this test easier
        await shop.admin.move([made.id], "bulk")
        await eventually(lambda: shop.admin.list("done"), 20)

    assert shop.order == [3]


@pytest.mark.parametrize(
    ("verb", "to", "message"),
    [
        ("reprioritize", 101, "priority must be from -100 to 100, got 101"),
        ("reprioritize", True, "priority must be from -100 to 100, got True"),
        ("move", "", "queue must be 1 to 100 printable characters"),
        ("move", "a\nb", "queue must be 1 to 100 printable characters"),
    ],
    ids=["too high", "no number", "no queue", "no name"],
)
async def test_what_cannot_be_is_refused(shop, verb, to, message):
    with pytest.raises(ConfigError, match=message):
        await getattr(shop.admin, verb)([1], to)


async def test_more_jobs_than_one_transaction_takes(shop, conn):
    made = [each.id for each in await shop.enqueue_many(shop.tasks["note"].job(n) for n in range(2300))]

    moved = await shop.admin.move(made[::2], "bulk")
    deleted = await shop.admin.delete(made)

    assert {each.result for each in moved} == {"moved"}
    assert [each.id for each in deleted] == made
    assert await rows(conn, *made) == {}


async def test_the_functions_refuse_in_sql_what_cannot_be(conn):
    import asyncpg

    for call in ("howdah.move('{1}', '')", "howdah.reprioritize('{1}', 1000)"):
        with pytest.raises(asyncpg.InvalidParameterValueError):
            await conn.fetch(f"select * from {call}")
    for call in ("howdah.move('{1}', 'q')", "howdah.delete('{1}')"):
        with pytest.raises(asyncpg.PostgresError, match="READ COMMITTED"):
            async with conn.transaction(isolation="repeatable_read"):
                await conn.fetch(f"select * from {call}")
