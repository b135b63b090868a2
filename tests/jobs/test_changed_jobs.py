"""JobActions by filter on jobs that change between the search and the act: what changed is left alone and reported."""

from __future__ import annotations

import asyncio

import pytest

from howdah import ConfigError, Poison
from howdah.job import State
from howdah.jobs.actions import ExpectedJob
from howdah.jobs.search import Filter
from kit.node import drain

pytestmark = pytest.mark.anyio


@pytest.fixture
async def shop(app):
    """An application whose jobs fail, or succeed with a result."""

    @app.task
    async def fail(n: int = 0) -> None:
        raise Poison("on purpose")

    @app.task
    async def note(n: int = 0) -> int:
        return n

    yield app
    await app.close()


@pytest.fixture
async def between(shop, monkeypatch):
    """Runs something once, after the search of an act and before the act."""
    search = shop.admin._search
    find = search.find
    waiting = []

    async def then(*args, **options):
        found = await find(*args, **options)
        while waiting:
            await waiting.pop()()
        return found

    monkeypatch.setattr(search, "find", then)
    return waiting.append


async def state(conn, id: int) -> str | None:
    return await conn.fetchval("select state from howdah.jobs where id = $1", id)


async def failed(shop) -> int:
    made = await shop.tasks["fail"].enqueue()
    await drain(shop)
    return made.id


async def claimed(conn, id: int) -> None:
    """A node claims a waiting job."""
    await conn.execute(
        """
        with run as (delete from howdah.ready where lo = $1 returning *)
        insert into howdah.lease (node, expires_at, first_id, end_id, rids, los, his, attempts)
        select 1, now() + interval '1 hour', lo, hi, array[rid], array[lo], array[hi], '{1}' from run
        """,
        id,
    )


async def test_a_failed_job_that_is_retried_meanwhile_is_not_deleted(shop, conn, between):
    id = await failed(shop)
    between(lambda: conn.execute("select howdah.retry(array[$1::int8])", id))

    acted = await shop.admin.act("delete", Filter(state="failed"))

    assert (acted.did, acted.left) == (0, 1)
    assert [each.result for each in acted.chunk] == ["changed"]
    assert await state(conn, id) == "queued"
    assert await shop.admin.audit(verb="delete") == []


async def test_a_job_that_was_retried_and_failed_again_meanwhile_is_not_deleted(shop, conn, between):
    id = await failed(shop)

    async def once_more() -> None:
        await conn.execute("select howdah.retry(array[$1::int8])", id)
        await drain(shop)

    between(once_more)

    acted = await shop.admin.act("delete", Filter(state="failed"))

    assert (acted.did, acted.left) == (0, 1)
    assert await state(conn, id) == "failed"


@pytest.mark.parametrize("verb", ["retry", "delete"])
async def test_the_end_that_was_seen_is_acted_on(shop, conn, between, verb):
    """The negative control: nothing changed."""
    id = await failed(shop)
    between(lambda: conn.execute("select 1"))

    acted = await shop.admin.act(verb, Filter(state="failed"))

    assert (acted.did, acted.left) == (1, 0)
    assert await state(conn, id) == ("queued" if verb == "retry" else None)


async def test_a_queued_job_that_succeeds_meanwhile_is_not_deleted(shop, conn, between):
    made = await shop.tasks["note"].enqueue(7)
    between(lambda: drain(shop))

    acted = await shop.admin.act("delete", Filter(state="queued"))

    assert (acted.did, acted.left) == (0, 1)
    row = await shop.admin.get(made.id)
    assert (row.state, row.result) == ("done", 7)


async def test_a_queued_job_that_runs_meanwhile_is_not_cancelled(shop, conn, between):
    made = await shop.tasks["note"].enqueue(7)
    between(lambda: claimed(conn, made.id))

    acted = await shop.admin.act("cancel", Filter(state="queued"))

    assert (acted.did, acted.left) == (0, 1)
    assert [each.result for each in acted.chunk] == ["changed"]
    assert await conn.fetchval("select count(*) from howdah.cancel_request") == 0


async def test_a_running_job_that_waits_again_meanwhile_is_not_cancelled(shop, conn, between):
    made = await shop.tasks["note"].enqueue(7)
    await claimed(conn, made.id)
    between(lambda: conn.execute("select howdah.release(1, array(select token from howdah.lease))"))

    acted = await shop.admin.act("cancel", Filter(state="running"))

    assert (acted.did, acted.left) == (0, 1)
    assert await state(conn, made.id) == "queued"
    assert await conn.fetchval("select count(*) from howdah.cancel_request") == 0


async def test_a_running_job_is_asked_to_end(shop, conn, between):
    """The negative control: it still runs."""
    made = await shop.tasks["note"].enqueue(7)
    await claimed(conn, made.id)

    acted = await shop.admin.act("cancel", Filter(state="running"))

    assert [(each.id, each.result) for each in acted.chunk] == [(made.id, "asked")]
    assert await conn.fetchval("select id from howdah.cancel_request") == made.id


@pytest.mark.parametrize("verb", ["delete", "cancel", "move", "reprioritize"])
async def test_a_job_that_was_moved_elsewhere_meanwhile_is_left_alone(shop, conn, between, verb):
    made = await shop.tasks["note"].enqueue(7)
    later = await shop.tasks["note"].using(delay=1000).enqueue(8)
    ids = [made.id, later.id]
    between(lambda: conn.execute("select howdah.move($1, 'elsewhere')", ids))

    to = {"move": "bulk", "reprioritize": 5}.get(verb)
    acted = await shop.admin.act(verb, Filter(state="queued", queue="default"), to=to)

    assert {each.id: each.result for each in acted.chunk} == dict.fromkeys(ids, "changed")
    rows = await conn.fetch("select queue, priority, state, cancel_asked from howdah.jobs")
    assert rows == [("elsewhere", 0, "queued", False)] * 2


async def test_a_retry_of_an_end_that_is_another_one_now_is_left_alone(shop, conn, between):
    id = await failed(shop)

    async def otherwise() -> None:
        await conn.execute("select howdah.retry(array[$1::int8])", id)
        await conn.execute("select howdah.cancel(array[$1::int8])", id)

    between(otherwise)

    result = await shop.admin.retry_where()

    assert [each.result for each in result] == ["changed"]
    assert await state(conn, id) == "cancelled"


async def test_cancel_where_leaves_what_runs_now_alone(shop, conn, between):
    made = await shop.tasks["note"].enqueue(7)
    between(lambda: claimed(conn, made.id))

    assert [each.result for each in await shop.admin.cancel_where()] == ["changed"]
    assert await conn.fetchval("select count(*) from howdah.cancel_request") == 0


# -------------------------------------------------------------------- jobs that were looked at before


async def test_a_row_carries_the_state_that_was_seen(shop, conn):
    one, two = await failed(shop), await failed(shop)
    seen = await shop.admin.list("failed")
    await conn.execute("select howdah.retry(array[$1::int8])", two)

    result = await shop.admin.delete(seen)

    assert {each.id: each.result for each in result} == {one: "deleted", two: "changed"}
    assert (await state(conn, one), await state(conn, two)) == (None, "queued")


async def test_ids_with_a_state_are_acted_on_in_that_state_only(shop, conn):
    bad = await failed(shop)
    waits = await shop.tasks["note"].enqueue(1)

    result = await shop.admin.delete([bad, waits.id, 999], state="failed")

    assert {each.id: each.result for each in result} == {bad: "deleted", waits.id: "changed", 999: "unknown"}


@pytest.mark.parametrize(("verb", "to", "did"), [("move", "other", "moved"), ("reprioritize", 7, "reprioritized")])
async def test_a_job_that_was_not_seen_waiting_is_not_rearranged(shop, conn, verb, to, did):
    bad, retried = await failed(shop), await failed(shop)
    runs, waits = [(await shop.tasks["note"].enqueue(n)).id for n in range(2)]
    await claimed(conn, runs)
    seen = [await shop.admin.get(id) for id in (bad, retried, runs, waits)]
    await conn.execute("select howdah.retry(array[$1::int8])", retried)
    act = getattr(shop.admin, verb)
    results = {each.id: each.result for each in await act([*seen, ExpectedJob(999, "failed")], to)}

    assert results == {bad: "over", retried: "changed", runs: "running", waits: did, 999: "unknown"}
    assert [each.result for each in await act([retried], to, state="queued")] == [did], "a state may be given with ids"
    with pytest.raises(ConfigError, match="only queued jobs"):
        await act([retried], to, state="failed")


async def test_ids_alone_are_acted_on_whatever_their_state(shop, conn):
    """The negative control, and what the SQL functions of old do."""
    id = await failed(shop)
    await conn.execute("select howdah.retry(array[$1::int8])", id)

    assert [each.result for each in await shop.admin.delete([id])] == ["deleted"]


# -------------------------------------------------------------------- all at once


async def race(shop, delete, rounds: int) -> tuple[int, int]:
    """Delete failed jobs while they are retried; jobs that were retried and are gone, and jobs both wanted."""
    lost = met = 0
    for _ in range(rounds):
        ids = [each.id for each in await shop.enqueue_many(shop.tasks["note"].job(n) for n in range(100))]
        await shop.admin.cancel(ids)
        go = asyncio.Event()

        async def retry(ids=ids, go=go):
            await go.wait()
            calls = []
            for start in range(0, len(ids), 10):
                calls += await shop.admin.retry(ids[start : start + 10])
            return {each.id for each in calls if each.result == "queued"}

        retrying = asyncio.create_task(retry())
        go.set()
        deleted = {each.id for each in await delete() if each.result == "deleted"}
        queued = await retrying
        lost += len(queued & deleted)
        met += bool(queued) and bool(deleted)
        await shop.admin.delete(ids)
    return lost, met


async def test_a_job_whose_retry_was_accepted_is_never_deleted(shop):
    async def by_filter():
        return (await shop.admin.act("delete", Filter(state=State.CANCELLED))).chunk

    lost, met = await race(shop, by_filter, 25)

    assert lost == 0
    assert met > 0, "the two never met"


async def test_the_race_is_one(shop):
    """The negative control: by bare ids, a retry that comes between is undone."""

    async def by_ids():
        found = [row.id for row in await shop.admin.list("cancelled", limit=1000)]
        return await shop.admin.delete(found)

    lost = 0
    for _ in range(20):
        lost += (await race(shop, by_ids, 5))[0]
        if lost:
            break

    assert lost > 0
