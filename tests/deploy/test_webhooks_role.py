"""Notices are written whoever makes a job fail, and only nodes say who is told."""

from __future__ import annotations

from typing import Any

import asyncpg
import pytest

from howdah import Howdah, Poison
from kit.node import drain, eventually, node
from kit.roles import refuses
from kit.webhook_receiver import Receiver

pytestmark = pytest.mark.anyio

DECLARE = "insert into howdah.webhook (name, host, events, stuck_after) values ('ops', 'h', '{job.failed}', 600)"


def spoiled(app: Howdah) -> Any:
    @app.task
    async def spoiled() -> None:
        raise Poison("no use")

    return spoiled


async def test_a_worker_declares_relays_and_delivers(roles, conn, caplog):
    app = Howdah(roles("howdah_worker"))
    task = spoiled(app)
    with Receiver() as receiver:
        app.webhook(receiver.url, name="ops", allow_http=True, allow_private=True)
        async with node(app):
            await eventually(lambda: conn.fetchval("select count(*) from howdah.webhook"), 30)
            await task.enqueue()

            async def delivered() -> bool:
                return receiver.events() == ["job.failed"]

            await eventually(delivered, 30)
            await eventually(lambda: conn.fetchval("select count(*) from howdah.queue_mark"), 30)
    await app.close()
    assert "permission denied" not in caplog.text


async def test_roles_granted_before_notices_came_go_on_as_before(roles, conn):
    await conn.execute(DECLARE)
    await conn.execute("revoke all on howdah.webhook, howdah.notice from howdah_worker")
    app = Howdah(roles("howdah_worker"))
    await spoiled(app).enqueue()
    await drain(app)
    await app.close()

    assert await conn.fetchval("select state from howdah.done") == b"f"
    assert await conn.fetchval("select count(*) from howdah.notice") == 1


async def test_a_control_plane_makes_jobs_fail_and_cannot_say_who_is_told(roles, conn):
    await conn.execute(DECLARE)
    await conn.execute("select howdah.enqueue('note', max_attempts => 1); delete from howdah.ready")
    await conn.execute(
        """insert into howdah.lease (node, expires_at, first_id, end_id, rids, los, his, attempts)
        select 7, now() - interval '1 minute', id, id + 1, array[id], array[id], array[id + 1], array[1::int2]
        from howdah.job"""
    )
    plane = await asyncpg.connect(roles("howdah_fleet"))
    await plane.fetch("select * from howdah.reset()")
    await plane.close()

    assert await conn.fetchval("select count(*) from howdah.notice where event = 'job.failed'") == 1
    await refuses(
        roles("howdah_fleet"),
        DECLARE,
        "update howdah.webhook set events = '{}'",
        "delete from howdah.notice",
        "select howdah.note('job.failed', '{}')",
    )


async def test_whoever_only_enqueues_or_reads_has_no_part_in_it(roles, conn):
    for role in ("howdah_enqueue", "howdah_read"):
        await refuses(roles(role), DECLARE, "select howdah.note('job.failed', '{}')", "select howdah.watch_queues()")
