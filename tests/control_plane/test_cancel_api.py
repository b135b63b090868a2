"""Cancel over HTTP, only in the state that the caller saw."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.anyio


async def test_a_job_that_runs_meanwhile_is_left_alone(plane, worker):
    id = await plane.enqueue()
    assert len(await worker.claim(1)) == 1
    response = await plane.ask("POST", f"/jobs/{id}/cancel?state=queued")

    assert (response.status, response.body) == (200, {"id": id, "result": "changed"})
    assert (await plane.job(id))["state"] == "running"
    assert (await plane.ask("POST", f"/jobs/{id}/cancel?state=running")).body["result"] == "asked"


async def test_a_job_that_waits_again_is_left_alone(plane, worker):
    id = await plane.enqueue()

    assert (await plane.ask("POST", f"/jobs/{id}/cancel?state=running")).body["result"] == "changed"
    assert (await plane.job(id))["state"] == "queued"
    assert (await plane.ask("POST", f"/jobs/{id}/cancel?state=queued")).body["result"] == "cancelled"
    assert (await plane.ask("POST", f"/jobs/{id}/cancel?state=queued")).body["result"] == "changed", "it is over"


@pytest.mark.parametrize("state", ["failed", "done", "", "x" * 5000])
async def test_other_states_are_refused(plane, worker, state):
    id = await plane.enqueue()
    response = await plane.ask("POST", f"/jobs/{id}/cancel?state={state}")

    assert (response.status, response.error["code"]) == (400, "INVALID")
    assert (await plane.job(id))["state"] == "queued"
