"""Queues in which something waits and is not taken: told of once, and once more when it moves."""

from __future__ import annotations

import asyncio
import json

import pytest

from howdah import Howdah, Snooze
from howdah.webhooks.relay import Relay
from howdah.webhooks.webhook import Webhook
from kit.node import drain, eventually, node

pytestmark = pytest.mark.anyio

URL = "https://hooks.example.com/howdah"


class Watch:
    """Looks at the queues, and lets time pass in between: marks are moved back instead of waiting."""

    def __init__(self, app: Howdah, conn, hooks: list[Webhook]) -> None:
        self._relay = Relay(app.database, {hook.name: hook for hook in hooks})
        self._conn = conn

    async def check(self, minutes: float = 0) -> list[tuple[str, str, str]]:
        """What was told, after so many more minutes: webhook, event, queue."""
        await self._relay.declare()
        for table in ("queue_mark", "queue_stuck"):
            await self._conn.execute(f"update howdah.{table} set since = since - $1 * interval '1 minute'", minutes)
        await self._conn.execute("update howdah.later set due_at = due_at - $1 * interval '1 minute'", minutes)
        await self._relay.watch()
        rows = await self._conn.fetch("delete from howdah.notice returning id, webhook, event, subject")
        return [(row[1], row[2], json.loads(row[3])["queue"]) for row in sorted(rows)]

    async def close(self) -> None:
        await self._relay.close()


@pytest.fixture
async def watch(app, conn):
    watches = []

    def make(*hooks: Webhook) -> Watch:
        watches.append(Watch(app, conn, list(hooks) or [Webhook(url=URL, name="ops", stuck_after=600)]))
        return watches[-1]

    yield make
    for each in watches:
        await each.close()
    await app.close()


@pytest.fixture
def nap(app):
    @app.task
    async def nap() -> None:
        """Ends at once."""

    return nap


async def test_a_queue_nobody_takes_from_is_told_of_once_and_again_when_it_moves(app, watch, nap):
    looking = watch()
    await nap.using(queue="mail").enqueue()
    assert await looking.check() == []
    assert await looking.check(minutes=9) == []

    assert await looking.check(minutes=2) == [("ops", "queue.stuck", "mail")]
    assert await looking.check(minutes=60) == []
    await nap.using(queue="mail").enqueue()
    assert await looking.check(minutes=60) == []

    await drain(app)
    assert await looking.check(minutes=1) == [("ops", "queue.moving", "mail")]
    assert await looking.check(minutes=60) == []


async def test_a_second_standstill_is_told_of_as_well(app, watch, nap):
    looking = watch()
    for _ in range(2):
        await nap.enqueue()
        await looking.check(minutes=1)
        assert await looking.check(minutes=11) == [("ops", "queue.stuck", "default")]
        await drain(app)
        assert await looking.check(minutes=1) == [("ops", "queue.moving", "default")]


async def test_a_queue_that_moves_is_not_stuck_however_long_it_is(app, conn, watch, nap):
    looking = watch()
    await looking.check()
    for _ in range(5):
        await nap.enqueue()
        await nap.enqueue()
        await conn.execute("delete from howdah.ready where rid = (select min(rid) from howdah.ready)")
        await conn.execute("delete from howdah.ready where rid = (select min(rid) from howdah.ready)")
        await nap.enqueue()
        assert await looking.check(minutes=9) == []
        await conn.execute("delete from howdah.ready")


async def test_a_job_passed_over_for_others_makes_its_queue_stuck(app, conn, watch, nap):
    looking = watch()
    await nap.using(priority=-5).enqueue()
    await looking.check()
    for _ in range(3):
        await nap.using(priority=5).enqueue()
        await conn.execute("delete from howdah.ready where priority = 5")
        assert await looking.check(minutes=3) == []

    assert await looking.check(minutes=3) == [("ops", "queue.stuck", "default")]


async def test_a_due_job_nobody_has_promoted_counts_and_one_that_is_not_due_does_not(app, watch, nap):
    looking = watch()
    await nap.using(queue="soon", delay=600).enqueue()
    await nap.using(queue="far", delay=86400).enqueue()
    await looking.check()
    assert await looking.check(minutes=9) == []
    await looking.check(minutes=2)

    assert await looking.check(minutes=11) == [("ops", "queue.stuck", "soon")]


async def test_what_came_back_after_a_long_time_has_not_waited_for_that_long(app, conn, watch):
    """A job handed back keeps its place in line; a snoozed one was enqueued long ago."""
    looking = watch()

    @app.task
    async def long() -> Snooze:
        return Snooze(0)

    await long.enqueue()
    [run] = await conn.fetch("delete from howdah.ready returning lo, hi, rid")
    await looking.check()
    for _ in range(4):
        assert await looking.check(minutes=30) == []
    await conn.execute(
        """insert into howdah.ready (rid, lo, hi, priority, attempt, queue, kind)
        values ($1, $2, $3, 0, 0, 'default', 'long')""",
        run["rid"],
        run["lo"],
        run["hi"],
    )

    assert await looking.check(minutes=0.2) == []
    assert await looking.check(minutes=11) == [("ops", "queue.stuck", "default")]


async def test_a_paused_queue_is_not_stuck_and_one_that_was_stuck_stays_so(app, watch, nap):
    looking = watch()
    await nap.using(queue="mail").enqueue()
    await nap.using(queue="other").enqueue()
    await app.admin.pause("mail")
    await looking.check()
    assert await looking.check(minutes=60) == [("ops", "queue.stuck", "other")]
    await app.admin.pause("other")
    await app.admin.resume("mail")
    assert await looking.check(minutes=1) == []

    assert await looking.check(minutes=11) == [("ops", "queue.stuck", "mail")]
    await app.admin.resume("other")
    assert await looking.check(minutes=11) == []


async def test_every_webhook_has_its_own_patience_and_queues(app, watch, nap):
    looking = watch(
        Webhook(url=URL, name="quick", stuck_after=60, on=["queue.stuck"]),
        Webhook(url=URL, name="slow", stuck_after=3600),
        Webhook(url=URL, name="mail", stuck_after=60, queues=["mail"]),
        Webhook(url=URL, name="deaf", stuck_after=60, on=["job.failed"]),
    )
    await nap.enqueue()
    await looking.check()
    assert await looking.check(minutes=2) == [("quick", "queue.stuck", "default")]
    assert await looking.check(minutes=60) == [("slow", "queue.stuck", "default")]
    await drain(app)
    assert await looking.check(minutes=1) == [("slow", "queue.moving", "default")]


async def test_deliveries_that_wait_are_no_standstill_to_deliver(watch, conn):
    looking = watch()
    await conn.execute("select howdah.enqueue_own('howdah:webhook:ops', '{}', 5, 60)")
    await looking.check()
    assert await looking.check(minutes=60) == []


async def test_without_a_webhook_that_wants_it_nobody_looks(app, conn, watch, nap):
    looking = watch(Webhook(url=URL, name="ops", on=["job.failed"]))
    await nap.enqueue()
    await looking.check(minutes=60)
    assert await conn.fetchval("select count(*) from howdah.queue_mark") == 0


async def test_many_nodes_that_look_at_once_tell_once(app, conn, watch, nap):
    looking = [watch() for _ in range(8)]
    await nap.enqueue()
    await looking[0].check()
    await conn.execute("update howdah.queue_mark set since = since - interval '1 hour'")
    for _ in range(5):
        await asyncio.gather(*(each._relay.watch() for each in looking))

    assert await conn.fetchval("select count(*) from howdah.notice") == 1


async def test_a_node_looks_by_itself(app, conn, watch, nap, monkeypatch):
    monkeypatch.setattr("howdah.webhooks.relay.WATCH_EVERY", 0.1)
    app.webhook(URL, name="ops", on=["queue.stuck"])
    await nap.using(queue="elsewhere").enqueue()
    async with node(app, queues={"default": None}):
        await eventually(lambda: conn.fetchval("select count(*) from howdah.queue_mark where queue = 'elsewhere'"))
        await conn.execute("update howdah.queue_mark set since = since - interval '1 hour'")
        kind = "select count(*) from howdah.job where kind = 'howdah:webhook:ops' and args ->> 'event' = 'queue.stuck'"
        await eventually(lambda: conn.fetchval(kind), 30)
