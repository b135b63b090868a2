"""Webhooks beside each other: one that does not answer, or that no node knows, costs the others nothing."""

from __future__ import annotations

import socket
import threading
import time
from typing import Any

import pytest

from howdah import Howdah, Poison, Snooze
from howdah.webhooks import delivery, relay
from howdah.webhooks.delivery import Notice, WebhookSender
from howdah.webhooks.post import OutboundClient
from howdah.webhooks.webhook import KIND, Webhook
from kit.node import eventually, node
from kit.serve_process import free_port
from kit.webhook_receiver import Receiver
from webhooks.conftest import LOCAL

pytestmark = pytest.mark.anyio

NOTICE = Notice(id="1", event="job.failed", at="", subject={})


class HangsUp:
    """A receiver that closes every connection without a word, and counts them."""

    def __init__(self) -> None:
        self.calls = 0
        self._server = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.getsockname()[1]}/"

    def close(self) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._thread.join(5)

    def _serve(self) -> None:
        while True:
            try:
                call, _ = self._server.accept()
            except OSError:
                return
            self.calls += 1
            call.close()


@pytest.fixture
def hangs_up():
    receiver = HangsUp()
    yield receiver
    receiver.close()


async def deliveries(conn: Any, name: str) -> list[Any]:
    return await conn.fetch("select id, state, attempt from howdah.jobs where kind = $1 order by id", KIND + name)


async def note(conn: Any, webhook: str, n: int) -> None:
    await conn.execute(
        "insert into howdah.notice (webhook, event, subject) select $1, 'job.failed', '{}' from generate_series(1, $2)",
        webhook,
        n,
    )


@pytest.fixture
async def relaying(app: Howdah, receiver):
    app.webhook(receiver.url, **LOCAL)
    made = app.webhooks.relay(app.database)
    await made.declare()
    yield made
    await made.close()


BOUND_TOGETHER = {
    "select r.kind, sum(r.hi - r.lo) as jobs": "select sum(r.hi - r.lo) as jobs",
    " group by r.kind) ready": ") ready",
    "on ready.kind = h.kind": "on true",
}
"""Changes of the statement ``relay``: one bound for the deliveries of all webhooks."""


@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "unguarded"])
async def test_deliveries_of_a_webhook_no_node_knows_any_more_hold_up_nobody(app, conn, relaying, guarded):
    """A release renamed it while 130 of its deliveries waited. Unguarded, all webhooks share one bound."""
    if not guarded:
        statement = relaying._sql["relay"]
        for was, now in BOUND_TOGETHER.items():
            assert was in statement
            statement = statement.replace(was, now)
        relaying._sql = {**relaying._sql, "relay": statement}
    await conn.execute("select howdah.enqueue_own($1, '{}', 5, 60) from generate_series(1, 130)", KIND + "renamed")
    await note(conn, "ops", 10)

    expected = 10 if guarded else 0
    assert await relaying.relay() == expected
    assert len(await deliveries(conn, "ops")) == expected


async def test_a_flood_for_one_webhook_does_not_hold_up_another(app, conn, receiver, relaying):
    app.webhook(receiver.url, **{**LOCAL, "name": "other"})
    await note(conn, "ops", 300)
    await note(conn, "other", 5)

    assert await relaying.relay() == 105
    assert [len(await deliveries(conn, name)) for name in ("ops", "other")] == [100, 5]


async def test_deliveries_that_wait_for_their_next_try_are_bounded_too(app, conn, relaying, monkeypatch):
    monkeypatch.setattr(relay, "MAX_RETRIED", 20)
    await note(conn, "ops", 300)
    assert await relaying.relay() == 100
    await conn.execute(
        """with moved as (delete from howdah.ready returning *)
        insert into howdah.later (id, due_at, priority, attempt, queue, kind)
        select lo, now() + interval '1 hour', priority, 1, queue, kind from moved"""
    )
    assert await relaying.relay() == 0
    await conn.execute("delete from howdah.later where id > (select min(id) + 18 from howdah.later)")
    assert await relaying.relay() == 100


async def test_a_delivery_that_was_not_tried_is_not_charged(app, conn, hangs_up, monkeypatch):
    @app.task
    async def nothing() -> None: ...

    monkeypatch.setattr(delivery, "FIRST_PAUSE", 0.2)
    app.webhook(hangs_up.url, **LOCAL)
    async with node(app, slots=8):
        await eventually(lambda: conn.fetchval("select count(*) from howdah.webhook"))
        await note(conn, "ops", 40)

        async def tried() -> bool:
            return hangs_up.calls >= 5 and len(await deliveries(conn, "ops")) == 40

        await eventually(tried, 60)
    charged = await conn.fetchval("select count(*) from howdah.attempt")
    used = sum(row["attempt"] for row in await deliveries(conn, "ops"))
    assert charged == used == hangs_up.calls


async def test_one_hang_up_pauses_a_receiver_for_a_second_and_many_for_longer():
    sender = WebhookSender(Webhook(url=f"http://127.0.0.1:{free_port()}/", **LOCAL))
    pauses = []
    for _ in range(9):
        with pytest.raises(Exception, match="cannot be reached"):
            await sender._deliver(NOTICE, 1)
        pauses.append(sender._paused_until - time.monotonic())
        assert isinstance(await sender._deliver(NOTICE, 1), Snooze)
        sender._paused_until = 0
    assert 0.5 < pauses[0] <= 1
    assert [round(each) for each in pauses] == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert delivery.LONGEST_PAUSE - 1 < pauses[-1] <= delivery.LONGEST_PAUSE


async def test_a_receiver_that_answers_again_is_told_at_once():
    with Receiver() as receiver:
        sender = WebhookSender(Webhook(url=receiver.url, **LOCAL))
        sender._failures, sender._paused_until = 5, time.monotonic() - 1
        assert await sender._deliver(NOTICE, 1) == 200
        assert sender._failures == 0
        assert await sender._deliver(NOTICE, 1) == 200


async def test_a_receiver_that_does_not_answer_leaves_room_for_the_others(app, conn, monkeypatch):
    monkeypatch.setattr(Webhook, "client", lambda self: OutboundClient(allow_private=True, timeout=120))
    monkeypatch.setattr(relay, "JOB_TIMEOUT", 150)

    @app.task
    async def spoiled() -> None:
        raise Poison("no use")

    with Receiver() as silent, Receiver() as other:
        silent.hold.clear()
        app.webhook(silent.url, **{**LOCAL, "name": "silent"})
        app.webhook(other.url, **{**LOCAL, "name": "other"})
        async with node(app, slots=20):
            await eventually(lambda: _known(conn))
            await note(conn, "silent", 40)

            async def hangs() -> bool:
                return len(silent.heard) == 4

            await eventually(hangs)
            await note(conn, "other", 10)

            async def expected() -> bool:
                return len(other.heard) == 10

            await eventually(expected)
            assert len(silent.heard) == 4
            silent.hold.set()


async def _known(conn):
    return await conn.fetchval("select count(*) from howdah.webhook") == 2
