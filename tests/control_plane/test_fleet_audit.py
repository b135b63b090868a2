"""What is done over HTTP is recorded under the name of the token."""

from __future__ import annotations

import pytest

from kit.node import eventually

pytestmark = pytest.mark.anyio


async def test_acts_over_http_are_those_of_the_token(plane):
    id = await plane.enqueue(delay=100)
    asked, itself = await plane.worker(), await plane.worker()

    assert (await plane.ask("POST", f"/jobs/{id}/cancel")).status == 200
    assert (await plane.ask("POST", f"/workers/{asked.id}/drain")).status == 200
    assert (await plane.ask("POST", f"/workers/{asked.id}/drain")).status == 200
    assert (await itself.tell("drain")).status == 200

    drained, cancelled, *_ = await plane.app.admin.audit()
    token = next(row for row in await plane.store.list() if row.name == "for admin")
    assert (cancelled.verb, cancelled.thing, cancelled.ids, cancelled.via) == ("cancel", "job", [str(id)], "api")
    assert (cancelled.who, cancelled.address) == (f"token {token.id} (for admin)", "127.0.0.1")
    assert (drained.verb, drained.thing, drained.ids) == ("drain", "node", [str(asked.id)])
    assert drained.before["state"] in ("idle", "busy")
    assert drained.after == {"state": "draining"}
    assert len(await plane.app.admin.audit(verb="drain")) == 1, "a worker that leaves by itself was asked by nobody"


async def test_a_worker_drained_through_the_database_hears_of_it(plane):
    worker = await plane.worker()

    await plane.app.admin.drain(worker.id)

    async def draining() -> bool:
        response = await worker.beat()
        return response.body["status"] == "draining"

    await eventually(draining, 20)
    assert await worker.claim() == []
