"""Admin: what people see of jobs, queues and nodes, and what they can do."""

from __future__ import annotations

import asyncio
import random
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from howdah import Backoff, ConfigError, Howdah, HowdahError, Poison, State
from howdah.jobs import search
from howdah.jobs.search import FIRST_WINDOW, NEWEST
from kit.node import drain, eventually, node

pytestmark = pytest.mark.anyio


@pytest.fixture
async def busy(app):
    """An application with tasks that end in every way; ``wait`` runs until the gate opens."""
    app.gate = asyncio.Event()

    @app.task(queue="mail")
    async def send(n: int = 0) -> int:
        return n

    @app.task(queue="mail", max_attempts=2, retry=Backoff(first=0, jitter=0))
    async def stumble() -> None:
        raise ValueError("no\nletters")

    @app.task
    async def poison() -> None:
        raise Poison("never")

    @app.task(queue="slow")
    async def wait() -> None:
        await app.gate.wait()

    yield app
    app.gate.set()
    await app.close()


async def ids(app: Howdah, *args, **filters) -> list[int]:
    return [row.id for row in await app.admin.list(*args, **filters)]


async def test_get_tells_everything_about_a_job(busy):
    made = await busy.tasks["stumble"].using(key="k", priority=7, meta={"a": [1]}, timeout=9).enqueue()
    waiting = await busy.admin.get(made.id)
    await drain(busy)

    row = await busy.admin.get(made.id)

    assert (waiting.state, waiting.attempt, waiting.args, waiting.meta) == ("queued", 0, {}, {"a": [1]})
    assert (row.kind, row.queue, row.state, row.priority, row.key) == ("stumble", "mail", "failed", 7, "k")
    assert (row.attempt, row.max_attempts, row.timeout, row.resets) == (2, 2, 9, 0)
    assert row.error == "ValueError: no\nletters"
    assert row.node_name is not None
    assert row.enqueued_at <= row.started_at <= row.finished_at
    assert [(each.attempt, each.outcome, each.error) for each in row.attempts] == [
        (1, "retry", "ValueError"),
        (2, "failed", "ValueError"),
    ]
    assert 'raise ValueError("no\\nletters")' in row.attempts[0].traceback


async def test_get_of_an_unknown_job_is_none(busy):
    assert await busy.admin.get(99) is None
    assert await busy.admin.get(-1) is None


async def test_list_knows_each_state(busy):
    done = await busy.tasks["send"].enqueue(1)
    failed = await busy.tasks["poison"].enqueue()
    await drain(busy)
    queued = await busy.tasks["send"].enqueue(2)
    scheduled = await busy.tasks["send"].using(delay=1000).enqueue(3)
    cancelled = await busy.tasks["send"].enqueue(4)
    await busy.admin.cancel([cancelled.id])
    running = await busy.tasks["wait"].enqueue()
    async with node(busy, queues={"slow": None}):
        await eventually(lambda: ids(busy, "running"))

        found = {str(state): await ids(busy, state) for state in State}
        everything = await busy.admin.list()
        busy.gate.set()

    assert found == {
        "queued": [scheduled.id, queued.id],
        "running": [running.id],
        "done": [done.id],
        "failed": [failed.id],
        "cancelled": [cancelled.id],
    }
    assert [row.state for row in everything] == ["running", "cancelled", "queued", "queued", "failed", "done"]


@pytest.mark.parametrize("state", [None, "queued", "done", "failed", "cancelled"])
async def test_pages_have_no_gap_and_no_overlap(busy, conn, state):
    jobs = [busy.tasks["send" if state != "failed" else "poison"].job() for _ in range(90)]
    late = [busy.tasks["send"].using(delay=1000).job() for _ in range(10)] if state in (None, "queued") else []
    made = [each.id for each in await busy.enqueue_many(jobs + late)]
    if state == "cancelled":
        await busy.admin.cancel(made)
    elif state in ("done", "failed"):
        await drain(busy)

    pages, before = [], None
    while page := await ids(busy, state, before=before, limit=7):
        pages.append(page)
        before = page[-1]

    assert [id for page in pages for id in page] == sorted(made, reverse=True)
    assert all(len(page) == 7 for page in pages[:-1])


async def test_pages_of_running_jobs_leave_out_what_left_the_lease(busy, conn):
    made = [each.id for each in await busy.enqueue_many([busy.tasks["wait"].job() for _ in range(20)])]
    await conn.execute("delete from howdah.ready")
    lease = (
        "insert into howdah.lease (node, expires_at, first_id, end_id, rids, los, his, attempts)"
        " values (1, now() + interval '1 hour', $1, $2, '{1}', array[$1::int8], array[$2::int8], '{1}') returning token"
    )
    token = await conn.fetchval(lease, made[0], made[-1] + 1)
    await conn.execute("insert into howdah.done (id, attempt, state) values ($1, 1, 'd')", made[3])
    await conn.execute("insert into howdah.gone values ($1, $2)", token, made[5])

    first = await ids(busy, "running", limit=10)
    second = await ids(busy, "running", limit=10, before=first[-1])

    assert first + second == sorted(set(made) - {made[3], made[5]}, reverse=True)
    assert await ids(busy, "running", kind="send") == []


async def test_lists_are_filtered_by_queue_kind_and_key(busy):
    send, wait, poison = (busy.tasks[name] for name in ("send", "wait", "poison"))
    failed = await poison.using(key="old").enqueue()
    done = await send.using(key="old2").enqueue()
    await drain(busy)
    one, two = await send.using(key="a").enqueue(), await wait.using(key="b").enqueue()
    three = await send.using(delay=100, queue="slow").enqueue()

    assert await ids(busy, queue="slow") == [three.id, two.id]
    assert await ids(busy, kind="send") == [three.id, one.id, done.id]
    assert await ids(busy, "queued", queue="slow", kind="send") == [three.id]
    assert await ids(busy, "queued", key="a") == [one.id]
    assert await ids(busy, "queued", key="a", queue="slow") == []
    assert await ids(busy, "running", key="a") == []
    assert await ids(busy, key="b") == [two.id]
    assert await ids(busy, "failed", key="old") == [failed.id]
    assert await ids(busy, "done", key="old2", kind="send") == [done.id]
    assert await ids(busy, "failed", kind="send") == []


async def test_lists_leave_out_large_values_and_get_does_not(busy, app):
    @app.task
    async def letter(text: str) -> None: ...

    made = [await letter.enqueue(text) for text in ("x" * 50_000, random.randbytes(5_000).hex(), "short")]

    assert [row.args for row in await app.admin.list()] == [{"text": "short"}, None, None]
    assert (await app.admin.get(made[0].id)).args == {"text": "x" * 50_000}


async def test_json_of_another_writer_does_not_break_the_view(busy, conn):
    await conn.execute("""select howdah.enqueue('send', '{"n": 1e999, "s": "\\ud800"}')""")

    [row] = await busy.admin.list()

    assert row.args == '{"n": 1e999, "s": "\\ud800"}'


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"state": "ready"}, "no state 'ready'; use queued, running, done, failed, cancelled"),
        ({"limit": 0}, "limit must be from 1 to 1000, got 0"),
        ({"limit": 5000}, "limit must be from 1 to 1000, got 5000"),
    ],
)
async def test_lists_refuse_what_they_do_not_know(busy, options, message):
    with pytest.raises(ConfigError, match=message):
        await busy.admin.list(**options)


async def test_a_look_that_takes_too_long_is_stopped_and_says_so(busy, conn, monkeypatch):
    monkeypatch.setattr(search, "READ_TIMEOUT", 0.2)
    async with conn.transaction():
        await conn.execute("lock table howdah.job in access exclusive mode")

        with pytest.raises(HowdahError, match=r"took longer than 0\.2 s and was stopped"):
            await busy.admin.list(kind="send")

    assert await busy.admin.list(kind="send") == []


async def test_queues_are_counted(busy, conn):
    for _ in range(3):
        await busy.tasks["send"].enqueue()
    await busy.enqueue_many(busy.tasks["send"].job(i) for i in range(100))
    await busy.tasks["send"].using(delay=500).enqueue()
    await busy.tasks["wait"].using(run_at=datetime.now(UTC) - timedelta(days=9)).enqueue()
    await conn.execute("update howdah.job set enqueued_at = now() - interval '1 hour' where id = 1")
    await busy.admin.pause("mail", by="ada")
    for age, outcome, jobs in (
        ("1 minute", "ok", 5),
        ("2 hours", "ok", 7),
        ("3 hours", "poison", 1),
        ("2 days", "ok", 9),
    ):
        await conn.execute(
            "insert into howdah.tally values (now() - $1::text::interval, 'mail', 'send', $2, $3, 0)",
            age,
            outcome,
            jobs,
        )

    mail, slow = await busy.admin.queues()

    assert (mail.name, mail.queued, mail.scheduled, mail.running) == ("mail", 103, 1, 0)
    assert mail.oldest_age == pytest.approx(3600, abs=30)
    assert (mail.paused, mail.paused_by) == (True, "ada")
    assert mail.paused_at is not None
    assert (mail.done_hour, mail.done_day, mail.failed_hour, mail.failed_day) == (5, 12, 0, 1)
    assert (slow.name, slow.queued, slow.paused) == ("slow", 1, False)
    assert slow.oldest_age < 30, "a time in the past is no waiting time"


async def test_running_jobs_are_counted_by_queue(busy):
    await busy.enqueue_many(busy.tasks["wait"].job() for _ in range(5))
    async with node(busy, slots=3):
        await eventually(lambda: ids(busy, "running"))
        [slow] = await busy.admin.queues()
        [alive] = await busy.admin.nodes()
        busy.gate.set()

    assert (slow.running, slow.queued) == (3, 2)
    assert (alive.state in ("idle", "busy"), alive.slots, alive.queues) == (True, 3, None)
    assert set(alive.kinds) >= {"send", "stumble", "poison", "wait"}
    assert alive.leases >= 1
    assert await busy.admin.nodes() == []
    [gone] = await busy.admin.nodes(all=True)
    assert (gone.id, gone.state) == (alive.id, "offline")
    assert gone.stopped_at is not None


async def test_nodes_are_listed_newest_first_whatever_their_ids(app, conn):
    await conn.execute(
        """insert into howdah.node (id, name, started_at)
        values (2000000001, 'old:1', now() - interval '2 hours'), (1500000001, 'new:3', now()),
            (1800000001, 'middle:2', now() - interval '1 hour')"""
    )
    assert [each.name for each in await app.admin.nodes()] == ["new:3", "middle:2", "old:1"]


async def test_retry_says_what_became_of_each(busy):
    done = await busy.tasks["send"].enqueue()
    failed = await busy.tasks["poison"].enqueue()
    keyed = await busy.tasks["poison"].using(key="k").enqueue()
    await drain(busy)
    holder = await busy.tasks["poison"].using(key="k").enqueue()

    result = await busy.admin.retry([done.id, failed.id, keyed.id, holder.id, 999])

    assert {each.id: (each.result, each.did) for each in result} == {
        done.id: ("done", False),
        failed.id: ("queued", True),
        keyed.id: (f"key held by job {holder.id}", False),
        holder.id: ("live", False),
        999: ("unknown", False),
    }
    assert (await busy.admin.get(failed.id)).attempt == 0


async def test_cancel_says_what_became_of_each(busy):
    running = await busy.tasks["wait"].enqueue()
    async with node(busy, queues={"slow": None}):
        await eventually(lambda: ids(busy, "running"))
        queued = await busy.tasks["send"].enqueue()
        result = await busy.admin.cancel([running.id, queued.id, 999])
        again = await busy.admin.cancel([queued.id])
        await eventually(lambda: ids(busy, "cancelled", kind="wait"))

    assert {each.id: each.result for each in result} == {running.id: "asked", queued.id: "cancelled", 999: "unknown"}
    assert [each.result for each in again] == ["over"]


async def test_many_are_retried_and_cancelled_by_filter(busy):
    await busy.enqueue_many(busy.tasks["poison"].job() for _ in range(30))
    await drain(busy)
    await busy.enqueue_many(busy.tasks["send"].job() for _ in range(2500))

    retried = await busy.admin.retry_where(kind="poison", limit=20)
    rest = await busy.admin.retry_where(queue="default")
    cancelled = await busy.admin.cancel_where(queue="mail")
    none = await busy.admin.cancel_where(queue="mail", kind="poison")

    assert (len(retried), len(rest), len(cancelled), len(none)) == (20, 10, 1000, 0)
    assert {each.result for each in retried} == {"queued"}
    assert {each.result for each in cancelled} == {"cancelled"}
    [_, mail] = await busy.admin.queues()
    assert mail.queued == 1500
    with pytest.raises(ConfigError, match="only failed and cancelled jobs can be retried"):
        await busy.admin.retry_where(state="done")
    with pytest.raises(ConfigError, match="only queued and running jobs can be cancelled"):
        await busy.admin.cancel_where(state="failed")


async def test_more_ids_than_one_transaction_takes(busy):
    made = [each.id for each in await busy.enqueue_many(busy.tasks["send"].job() for _ in range(2200))]

    result = await busy.admin.cancel(made)

    assert [each.id for each in result] == made
    assert await busy.admin.list("queued") == []


async def test_a_paused_queue_is_not_claimed_from_until_resumed(busy):
    made = await busy.tasks["send"].enqueue()
    await busy.admin.pause("mail")
    await drain(busy)
    paused = (await busy.admin.get(made.id)).state
    first, second = await busy.admin.resume("mail"), await busy.admin.resume("mail")
    await drain(busy)

    assert (paused, first, second) == ("queued", True, False)
    assert (await busy.admin.get(made.id)).state == "done"
    with pytest.raises(ConfigError, match="queue must be 1 to 100 printable characters"):
        await busy.admin.pause("")


@pytest.mark.superuser("the roles are those of the schema howdah")
async def test_admin_works_in_a_schema_with_a_hostile_name(database):
    app = Howdah(database.dsn, schema='we"ird; drop--')

    @app.task
    async def send() -> None: ...

    await app.migrate()
    made = await send.enqueue()
    try:
        assert [row.id for row in await app.admin.list("queued")] == [made.id]
        assert [queue.name for queue in await app.admin.queues()] == ["default"]
        assert [each.result for each in await app.admin.cancel([made.id])] == ["cancelled"]
        assert (await app.admin.get(made.id)).state == "cancelled"
        assert await app.admin.nodes() == []
    finally:
        await app.close()


async def test_looks_do_not_read_history(busy, conn):
    """With 200,000 finished jobs each page reads a few hundred rows."""
    await conn.execute(
        """
        insert into howdah.job (id, queue, kind, args) select i, 'mail', 'send', '{}' from generate_series(1, 200000) i;
        insert into howdah.done (id, attempt, state)
        select i, 1, (case when i % 1000 = 0 then 'f' else 'd' end)::"char" from generate_series(1, 200000) i;
        select setval('howdah.job_id', 200000);
    """,
        timeout=60,
    )
    await busy.enqueue_many(busy.tasks["send"].job() for _ in range(1000))
    statements = busy.admin._sql
    top = NEWEST
    anything = (None,) * 7
    looks = {
        "get": ([123_000], 2048),
        "attempts": (123_000, 10),
        "search_all": (top, 50, *anything, False, 50),
        "list_queued": (top, None, None, 50),
        "list_running": (top, None, None, 50),
        "list_done": (top, 50),
        "list_keyed": (top, "k", 50),
        "match": (list(range(123_000, 123_050)), "d", "mail", "send", *(None,) * 5, None),
        "search_bad": (top, 50, *anything, "f", 50, None),
        "bounds": (datetime.now(UTC) - timedelta(days=1), datetime.now(UTC)),
        "failures": (100, None, None, None, 50),
        "count_queued": (None, None),
        "count_running": (None, None),
        "list_held": ("k", "queued", top, None, None),
        "count_queues": (),
    }

    done_of = ("search_all", (top, FIRST_WINDOW, "mail", "send", *(None,) * 5, True, 50))

    for verb, args in [*looks.items(), done_of]:
        async with conn.transaction():
            await conn.execute(search.BY_INDEX, "5000")
            [[plan]] = await conn.fetch(f"explain (analyze, format json) {statements[verb]}", *args)
        assert rows_read(plan) < 2500, f"{verb} reads {rows_read(plan)} rows: {plan.decode()}"


def rows_read(plan: bytes) -> int:
    def walk(part: dict) -> int:
        leaf = "Relation Name" in part
        rows = part["Actual Rows"] + part.get("Rows Removed by Filter", 0)
        return (int(rows * part["Actual Loops"]) if leaf else 0) + sum(map(walk, part.get("Plans", ())))

    return walk(msgspec.json.decode(plan)[0]["Plan"])


async def test_a_look_at_a_dead_database_says_so():
    app = Howdah("postgresql://me:secret@127.0.0.1:1/none")

    with pytest.raises(HowdahError, match=r"cannot reach postgresql://me:\*\*\*@127.0.0.1:1/none"):
        await app.admin.list()
