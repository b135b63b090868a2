"""Metrics of a control plane: its workers by state, their outcomes in any language, and the leases it takes back."""

from __future__ import annotations

import logging
import re

import pytest

from kit.node import eventually

pytestmark = pytest.mark.anyio


async def metric(plane, name: str, **labels: str) -> float | None:
    text = (await plane.get("/metrics")).content.decode()
    wanted = ",".join(f'{key}="{value}"' for key, value in sorted(labels.items()))
    found = re.search(rf"(?m)^{name}{re.escape('{' + wanted + '}') if wanted else ''} (\S+)$", text)
    return float(found[1]) if found else None


async def test_workers_are_counted_by_state(plane):
    for _ in range(3):
        await plane.worker()

    async def counted():  # they send no heartbeats, so they may be offline when they are counted
        states = [await metric(plane, "howdah_nodes", state=state) for state in ("idle", "offline")]
        return sum(each or 0 for each in states) >= 3

    await eventually(counted)
    assert await metric(plane, "howdah_nodes", state="draining") == 0
    assert await metric(plane, "howdah_nodes", state="busy") == 0


async def test_outcomes_of_workers_in_any_language_are_counted(plane, worker):
    for _ in range(4):
        await plane.enqueue()
    first, second, third, fourth = await worker.claim(4, wait=5)

    await worker.complete(first)
    await worker.fail(second, error="ValueError", message="no")
    await worker.ack(
        *(
            {"id": job["id"], "token": job["token"], "attempt": job["attempt"], "outcome": outcome}
            for job, outcome in ((third, "ok"), (fourth, "poison"))
        )
    )

    counted = {
        outcome: await metric(plane, "howdah_remote_outcomes_total", store="jobs", outcome=outcome)
        for outcome in ("ok", "retry", "poison")
    }
    assert counted == {"ok": 2, "retry": 1, "poison": 1}


async def test_leases_that_are_taken_back_are_counted_and_logged(plane, conn, caplog):
    from howdah.observe.failure_log import subscribe_logs

    caplog.set_level(logging.INFO, "howdah")
    stop = subscribe_logs()
    worker = await plane.worker()
    await plane.enqueue()
    await worker.one()
    assert await metric(plane, "howdah_leases_reset_total") == 0

    await conn.execute("update howdah.lease set expires_at = now() - interval '1 second'")

    async def counted():
        return await metric(plane, "howdah_leases_reset_total") == 1

    await eventually(counted)
    stop()
    assert "took back 1 expired leases: 1 jobs requeued, 0 ended" in caplog.text


async def test_a_claim_without_a_body_claims_one_job(plane, worker):
    made = await plane.enqueue()

    response = await plane.ask("POST", f"/workers/{worker.id}/claim", token=worker.credential, content=b"")

    assert response.status == 200, response.body
    assert [job["id"] for job in response.body["jobs"]] == [made]
