"""What is written down: with the thing itself, once, and only if somebody wants to hear of it."""

from __future__ import annotations

import json

import pytest

from howdah import Backoff, Cancel, Event, Howdah, NewEvent, Poison, Snooze
from howdah.handler import PlatformHandler
from howdah.job import NewJob
from howdah.maintenance.pruner import Pruner, Retention
from howdah.webhooks.relay import Relay
from howdah.webhooks.webhook import Webhook
from kit.node import drain, eventually, job, node

pytestmark = pytest.mark.anyio

URL = "https://hooks.example.com/howdah"


async def declare(app: Howdah, **settings) -> None:
    """Make a webhook known, and nothing else."""
    hook = Webhook(url=URL, **{"name": "ops", **settings})
    relay = Relay(app.database, {hook.name: hook})
    await relay.declare()
    await relay.close()


async def notices(conn) -> list[tuple[str, str, dict]]:
    rows = await conn.fetch("select webhook, event, subject from howdah.notice order by id")
    return [(row["webhook"], row["event"], json.loads(row["subject"])) for row in rows]


@pytest.fixture
def maintenance(app):
    """Tasks that end in every way there is."""

    @app.task(max_attempts=2, retry=Backoff(first=0, jitter=0))
    async def fails(token: str = "canary-in-args") -> None:
        raise ValueError("password=hunter2 was refused")

    @app.task
    async def spoiled() -> None:
        raise Poison("no use")

    @app.task
    async def fine() -> int:
        return 7

    @app.task
    async def unwanted() -> Cancel:
        return Cancel("somebody else did it")

    @app.task
    async def later() -> Snooze:
        return Snooze(3600)

    @app.task(max_attempts=2, retry=Backoff(first=3600))
    async def once_more() -> None:
        raise ValueError("not yet")

    return app.tasks


async def test_a_job_that_fails_for_good_is_told_of_once_and_nothing_else_is(app, conn, maintenance):
    await declare(app)
    ids = {name: (await task.enqueue()).id for name, task in maintenance.items()}
    await drain(app)
    await eventually(lambda: _is(conn, ids["fails"], "failed"))

    recorded = await notices(conn)
    assert sorted(recorded, key=lambda each: each[2]["id"]) == [
        (
            "ops",
            "job.failed",
            {
                "id": ids["fails"],
                "kind": "fails",
                "queue": "default",
                "attempt": 2,
                "max_attempts": 2,
                "error": "ValueError",
                "message": "password=*** was refused",
            },
        ),
        (
            "ops",
            "job.failed",
            {
                "id": ids["spoiled"],
                "kind": "spoiled",
                "queue": "default",
                "attempt": 1,
                "max_attempts": 5,
                "error": "Poison",
                "message": "no use",
            },
        ),
    ]
    assert "canary" not in str(recorded)


async def _is(conn, id, state):
    return (await job(conn, id))["state"] == state


async def test_a_job_that_fails_again_after_somebody_retried_it_is_told_of_again(app, conn, maintenance):
    await declare(app)
    id = (await maintenance["spoiled"].enqueue()).id
    await drain(app)
    await app.admin.retry([id])
    await drain(app)

    assert [subject["id"] for _, _, subject in await notices(conn)] == [id, id]


async def test_a_job_whose_node_died_at_its_last_attempt_is_told_of(app, conn, maintenance):
    await declare(app)
    last = (await maintenance["fine"].using(max_attempts=1).enqueue()).id
    more = (await maintenance["fine"].using(max_attempts=2).enqueue()).id
    unwanted = (await maintenance["fine"].using(max_attempts=1).enqueue()).id
    await lease(conn, [last, more, unwanted], seconds=-1)
    await conn.execute("insert into howdah.cancel_request (id) values ($1)", unwanted)
    await conn.fetch("select * from howdah.reset()")

    states = [(await job(conn, id))["state"] for id in (last, more, unwanted)]
    assert states == ["failed", "queued", "cancelled"]
    [(_, event, subject)] = await notices(conn)
    assert (event, subject["id"], subject["attempt"], subject["error"]) == ("job.failed", last, 1, "LeaseExpired")


async def lease(conn, ids: list[int], seconds: float) -> int:
    """What a claim of node 7 leaves behind."""
    await conn.execute("delete from howdah.ready")
    return await conn.fetchval(
        """insert into howdah.lease (node, expires_at, first_id, end_id, rids, los, his, attempts)
        select 7, now() + $2::float8 * interval '1 second', min(i), max(i) + 1, array_agg(i), array_agg(i),
            array_agg(i + 1), array_agg(1::smallint)
        from unnest($1::int8[]) i
        returning token""",
        ids,
        seconds,
    )


async def test_without_a_webhook_nothing_is_written(app, conn, maintenance):
    await maintenance["spoiled"].enqueue()
    await drain(app)
    assert await notices(conn) == []

    await declare(app, on=["consumer.halted"])
    await maintenance["spoiled"].enqueue()
    await drain(app)
    assert await notices(conn) == []


async def test_a_webhook_hears_of_its_queues_and_kinds_only(app, conn, maintenance):
    await declare(app, name="mail", queues=["mail"])
    await declare(app, name="other", kinds=["fails"])
    await declare(app, name="all")
    await maintenance["spoiled"].using(queue="mail").enqueue()
    await maintenance["spoiled"].enqueue()
    await drain(app)

    assert sorted((hook, subject["queue"]) for hook, _, subject in await notices(conn)) == [
        ("all", "default"),
        ("all", "mail"),
        ("mail", "mail"),
    ]


async def test_a_webhook_no_node_knows_any_more_piles_nothing_up_and_is_forgotten(app, conn, maintenance):
    await declare(app, name="old")
    await maintenance["spoiled"].enqueue()
    await drain(app)
    await conn.execute("update howdah.webhook set seen_at = now() - interval '25 hours'")
    await maintenance["spoiled"].enqueue()
    await drain(app)
    assert len(await notices(conn)) == 1

    await conn.execute("update howdah.webhook set seen_at = now() - interval '8 days'")
    await declare(app, name="new")
    assert await notices(conn) == []
    assert await conn.fetchval("select array_agg(name) from howdah.webhook") == ["new"]


async def test_notices_are_dropped_when_they_are_too_old_or_too_many(app, conn, monkeypatch, caplog):
    monkeypatch.setattr("howdah.webhooks.relay.MAX_WAITING", 3)
    await declare(app)
    await conn.execute(
        """insert into howdah.notice (webhook, event, subject, at)
        select 'ops', 'job.failed', json_build_object('n', i), now() - i * interval '1 day'
        from generate_series(9, 0, -1) i"""
    )
    await declare(app)

    assert [subject["n"] for _, _, subject in await notices(conn)] == [2, 1, 0]
    assert "7 notices were dropped" in caplog.text


async def test_what_is_rolled_back_is_not_told(app, conn, maintenance):
    await declare(app)
    id = (await maintenance["fine"].enqueue()).id
    token = await lease(conn, [id], seconds=60)
    transaction = conn.transaction()
    await transaction.start()
    await conn.fetch(
        """select * from howdah.ack(7, array[$1::int8], array[$2::int8], array[1::int2], array['f'::"char"],
            array[0::float8], array[0::int8], array[null::json], array['ValueError'], array['no'], array[null::text],
            array[$1::int8])""",
        token,
        id,
    )
    assert len(await notices(conn)) == 1
    await transaction.rollback()

    assert await notices(conn) == []


async def test_a_delivery_that_fails_is_no_news(app, conn, maintenance):
    await declare(app)

    async def deliver() -> None:
        raise Poison("410")

    app._bring(PlatformHandler("howdah:webhook:elsewhere", deliver))
    failed = await app.enqueue(NewJob(kind="howdah:webhook:elsewhere", queue="howdah"))
    await drain(app)
    assert await _is(conn, failed.id, "failed")
    assert await notices(conn) == []


async def test_moving_old_failures_to_another_partition_tells_nobody_again(app, conn, maintenance):
    await declare(app)
    failed = (await maintenance["spoiled"].enqueue()).id
    await drain(app)
    await conn.execute("delete from howdah.notice")
    # its partition is closed and dropped; the failure must be kept, and moves
    hi = await conn.fetchval(
        "select max(substring(relname from '_(\\d+)$')::bigint) from pg_class where relname ~ '^done_\\d+_\\d+$'"
    )
    await conn.execute("select setval('howdah.job_id', $1)", hi + 1)
    pruned = await Pruner(app.database, Retention(done=0, failed=86400)).prune()

    assert pruned.partitions > 0
    assert await _is(conn, failed, "failed")
    assert await notices(conn) == []


async def test_a_consumer_that_halts_is_told_of_once(app, conn):
    await declare(app)

    @app.consumer("view", start="beginning", max_failures=1)
    async def view(event: Event) -> None:
        raise RuntimeError("token=abc")

    await app.log.append("Order-17", [NewEvent(type="OrderPlaced", data={"card": "canary"})])
    async with node(app, upkeep=False):
        await eventually(lambda: conn.fetchval("select bool_or(halted) from howdah.checkpoint"))
        await conn.execute("update howdah.checkpoint set halted = true, failures = failures")  # it is, already
        assert await conn.fetchval("select count(*) from howdah.notice") == 1
        await app.log.admin.resume("view")
        await eventually(lambda: _count(conn, 2))

    recorded = await notices(conn)
    assert recorded[0] == (
        "ops",
        "consumer.halted",
        {
            "consumer": "view",
            "part": 0,
            "position": 1,
            "failures": 1,
            "error": "RuntimeError",
            "message": "token=***",
        },
    )
    assert "canary" not in str(recorded)


async def _count(conn, n):
    return await conn.fetchval("select count(*) from howdah.notice") == n


async def test_plain_successes_pass_no_trigger(conn):
    """The fast path writes `done`, `lease` and `gone`; none of these may tell."""
    rows = await conn.fetch(
        """select tgrelid::regclass::text as place from pg_trigger t
        where not tgisinternal and tgfoid::regproc::text like 'howdah.note\\_%'"""
    )
    assert sorted(row["place"] for row in rows) == ["howdah.attempt", "howdah.checkpoint"]
