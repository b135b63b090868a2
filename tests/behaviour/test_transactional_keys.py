"""Transactional tasks with and without a key and a result: the acks that differ, and what they have in common."""

from __future__ import annotations

import pytest

from howdah import Transaction
from kit.node import drain, job

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("key", ["k", None], ids=["keyed", "keyless"])
@pytest.mark.parametrize("result", [None, "it's; done"], ids=["nothing", "something"])
async def test_a_success_is_recorded_and_its_key_is_free_again(app, conn, key, result):
    @app.task(transactional=True)
    async def work(tx: Transaction) -> str | None:
        return result

    made = await work.using(key=key).enqueue()
    await drain(app)
    row = await job(conn, made.id)
    assert (row["state"], row["attempt"]) == ("done", 1)
    assert row["result"] == (b'"it\'s; done"' if result else None)
    assert row["finished_at"] >= row["started_at"]
    assert await conn.fetchval("select count(*) from howdah.job_key") == 0
    assert (await work.using(key=key).enqueue()).fresh


@pytest.mark.parametrize("function", ["ack_in_transaction", "ack_keyless"])
@pytest.mark.parametrize("wrong", ["token", "node", "gone"])
async def test_without_the_lease_nothing_is_acked(conn, function, wrong):
    await conn.execute(
        "insert into howdah.lease (token, node, expires_at, first_id, end_id, rids, los, his, attempts)"
        " values (5, 3, now() + interval '1 hour', 1, 3, '{1}', '{1}', '{3}', '{1}')"
    )
    await conn.execute("insert into howdah.gone values (5, 1)")
    node, token, id = {"token": (3, 6, 2), "node": (4, 5, 2), "gone": (3, 5, 1)}[wrong]
    with pytest.raises(Exception, match=f"the lease of job {id} is lost") as caught:
        await conn.execute(f"select howdah.{function}($1, $2, $3, 1, 1)", node, token, id)
    assert caught.value.sqlstate == "HW001"
    await conn.execute(f"select howdah.{function}(3, 5, 2, 1, 1)")
    assert [row["id"] for row in await conn.fetch("select id from howdah.done")] == [2]
