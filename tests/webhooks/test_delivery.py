"""From a failure to a receiver: signed, tried again, the same every time, with nothing in it that is private."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import asyncpg
import pytest

from howdah import Backoff, ConfigError, Howdah, Poison, Snooze, WorkerOptions
from howdah.webhooks import delivery
from howdah.webhooks.delivery import ATTEMPTS, BACKOFF, Notice, WebhookSender
from howdah.webhooks.signature import sign, verify
from howdah.webhooks.webhook import EVENTS, Webhook
from kit.node import eventually, job, node
from kit.serve_process import free_port
from kit.webhook_receiver import SECRET, Receiver
from webhooks.conftest import LOCAL

pytestmark = pytest.mark.anyio

QUICK = Backoff(first=0.05, factor=1, jitter=0)
CANARY = "canary-a8f3"


@pytest.fixture
def spoiled(app):
    @app.task
    async def spoiled(card: str = CANARY) -> None:
        raise Poison(f"refused: password={CANARY}")

    return spoiled


async def heard(receiver: Receiver, n: int, seconds: float = 30.0) -> None:
    async def enough() -> bool:
        return len(receiver.heard) >= n

    await eventually(enough, seconds)


async def deliveries(conn: Any, *states: str) -> list[Any]:
    rows = await conn.fetch(
        "select id, state, attempt, args, result, error from howdah.jobs where queue = 'howdah' order by id"
    )
    return [row for row in rows if not states or row["state"] in states]


async def over(conn: Any, n: int = 1, seconds: float = 30.0) -> list[Any]:
    """The deliveries, once so many are over."""

    async def ended() -> list[Any]:
        found = await deliveries(conn, "done", "failed")
        return found if len(found) >= n else []

    return await eventually(ended, seconds)


async def test_a_failure_reaches_the_receiver_signed_and_without_what_is_private(app, conn, receiver, spoiled):
    app.webhook(receiver.url, link="https://howdah.example.com/dashboard/", **LOCAL)
    async with node(app):
        failed = await spoiled_after_declaring(conn, spoiled)
        await heard(receiver, 1)
        [done] = await over(conn)

    [letter] = receiver.heard
    content = letter.content
    assert letter.path == "/hooks?key=in-the-url"
    assert content == {
        "id": content["id"],
        "event": "job.failed",
        "at": content["at"],
        "subject": {
            "id": failed,
            "kind": "spoiled",
            "queue": "default",
            "attempt": 1,
            "max_attempts": 5,
            "error": "Poison",
            "message": "refused: password=***",
        },
        "link": f"https://howdah.example.com/dashboard/jobs/{failed}",
    }
    assert content["at"].endswith("Z")
    headers = letter.headers
    assert headers["content-type"] == "application/json"
    assert headers["howdah-event"] == "job.failed"
    assert headers["howdah-delivery"] == content["id"]
    assert headers["howdah-signature"] == sign([SECRET], int(headers["howdah-timestamp"]), letter.body)
    assert verify(headers, letter.body, SECRET)
    assert CANARY not in letter.body.decode()
    assert json.loads(done["result"]) == {"status": 200}


async def spoiled_after_declaring(conn: Any, spoiled: Any) -> int:
    """Fail a job once the webhook is known: before, nobody has asked to be told."""
    await eventually(lambda: conn.fetchval("select count(*) from howdah.webhook"), 30)
    return (await spoiled.enqueue()).id


async def test_neither_url_nor_secret_are_in_the_database(app, conn, receiver, spoiled):
    app.webhook(receiver.url, **LOCAL)
    async with node(app):
        await spoiled_after_declaring(conn, spoiled)
        await over(conn)

    tables = await conn.fetch(
        "select relname from pg_class where relnamespace = 'howdah'::regnamespace and relkind in ('r', 'p')"
    )
    found = [str(await conn.fetch(f'select t::text from howdah."{table[0]}" t')) for table in tables]
    assert any(f"127.0.0.1:{receiver.port}" in text for text in found), "the host may be shown"
    assert not any("in-the-url" in text or SECRET in text for text in found)


async def test_who_is_not_there_is_told_when_it_comes_back_with_the_same_id(app, conn, spoiled, monkeypatch):
    monkeypatch.setattr(delivery, "BACKOFF", QUICK)
    with Receiver(503, (429, {}), 302, 404, 500, 200) as receiver:
        app.webhook(receiver.url, **LOCAL)
        async with node(app):
            await spoiled_after_declaring(conn, spoiled)
            [done] = await over(conn)

    assert (done["state"], done["attempt"], len(receiver.heard)) == ("done", 6, 6)
    assert len({letter.headers["howdah-delivery"] for letter in receiver.heard}) == 1
    assert len({letter.body for letter in receiver.heard}) == 1
    assert all(verify(letter.headers, letter.body, SECRET) for letter in receiver.heard)
    errors = await conn.fetch("select message from howdah.attempt where id = $1 order by attempt", done["id"])
    host = f"127.0.0.1:{receiver.port}"
    assert [row[0] for row in errors] == [f"{host} answered HTTP {status}" for status in (503, 429, 302, 404, 500)]


async def test_a_receiver_that_is_gone_is_not_told_again(app, conn, spoiled):
    with Receiver(410) as receiver:
        app.webhook(receiver.url, **LOCAL)
        async with node(app):
            await spoiled_after_declaring(conn, spoiled)
            [failed] = await over(conn)

    assert (failed["state"], failed["attempt"], len(receiver.heard)) == ("failed", 1, 1)
    assert await conn.fetchval("select count(*) from howdah.notice") == 0, "a failed delivery is no news"


@pytest.mark.parametrize(("retry_after", "least", "most"), [("300", 299, 301), ("0", 7, 13), ("9999999", 3599, 3601)])
async def test_how_long_it_asks_to_be_left_alone_counts_within_bounds(app, retry_after, least, most):
    with Receiver((503, {"Retry-After": retry_after})) as receiver:
        sender = WebhookSender(Webhook(url=receiver.url, **LOCAL))
        with pytest.raises(Exception, match="answered HTTP 503") as caught:
            await sender._deliver(Notice(id="1", event="job.failed", at="", subject={}), 1)
    assert least <= caught.value.retry_after <= most


async def test_one_who_does_not_answer_is_left_alone_for_a_moment():
    """A line of deliveries must not wait for it one by one."""
    url = f"http://127.0.0.1:{free_port()}/"
    sender = WebhookSender(Webhook(url=url, **LOCAL))
    notice = Notice(id="1", event="job.failed", at="", subject={})
    with pytest.raises(Exception, match="cannot be reached"):
        await sender._deliver(notice, 1)
    assert isinstance(await sender._deliver(notice, 1), Snooze), "it was not called, which is no attempt"

    sender._paused_until -= delivery.FIRST_PAUSE  # so much later
    with pytest.raises(Exception, match="cannot be reached"):
        await sender._deliver(notice, 1)


async def test_a_slow_receiver_does_not_take_the_slots_of_other_jobs(app, conn, receiver, spoiled):
    receiver.hold.clear()
    ran: list[int] = []

    @app.task
    async def other(n: int) -> None:
        ran.append(n)

    app.webhook(receiver.url, **LOCAL)
    async with node(app, slots=8):
        await spoiled_after_declaring(conn, spoiled)
        for _ in range(19):
            await spoiled.enqueue()
        await heard(receiver, 4)
        for n in range(20):
            await other.enqueue(n)

        async def all_ran() -> bool:
            return len(ran) == 20

        await eventually(all_ran, 30)
        assert len(receiver.heard) == 4
        receiver.hold.set()
        await heard(receiver, 20)


async def test_a_node_that_serves_some_queues_delivers_all_the_same(app, conn, receiver, spoiled):
    app.webhook(receiver.url, **LOCAL)
    async with node(app, queues={"default": 5}):
        await spoiled_after_declaring(conn, spoiled)
        await heard(receiver, 1)


async def test_a_notice_and_its_job_are_one_commit(app, conn, receiver):
    app.webhook(receiver.url, **LOCAL)
    relay = app.webhooks.relay(app.database)
    assert relay is not None
    await relay.declare()
    await conn.execute("select howdah.note('job.failed', '{\"id\": 1}')")
    await conn.execute("alter table howdah.ready add constraint broken check (queue <> 'howdah')")
    with pytest.raises(asyncpg.CheckViolationError):
        await relay.relay()
    assert (await conn.fetchval("select count(*) from howdah.notice"), await deliveries(conn)) == (1, [])

    await conn.execute("alter table howdah.ready drop constraint broken")
    assert [await relay.relay(), await relay.relay()] == [1, 0]
    assert await conn.fetchval("select count(*) from howdah.notice") == 0
    assert len(await deliveries(conn, "queued")) == 1
    await relay.close()


async def test_many_nodes_that_relay_at_once_make_one_job_of_each(app, conn, receiver):
    app.webhook(receiver.url, **LOCAL)
    relays = [app.webhooks.relay(app.database) for _ in range(6)]
    await relays[0].declare()
    await conn.execute("select howdah.note('job.failed', json_build_object('id', i)) from generate_series(1, 300) i")
    while sum(await asyncio.gather(*(each.relay() for each in relays))):
        await conn.execute("delete from howdah.ready")
    for each in relays:
        await each.close()

    delivered = [json.loads(row["args"])["subject"]["id"] for row in await deliveries(conn)]
    assert sorted(delivered) == list(range(1, 301))


async def test_a_flood_waits_as_notices_and_not_as_jobs(app, conn, receiver):
    app.webhook(receiver.url, **LOCAL)
    relay = app.webhooks.relay(app.database)
    await relay.declare()
    await conn.execute("select howdah.note('job.failed', '{}') from generate_series(1, 300)")
    assert [await relay.relay(), await relay.relay()] == [100, 0]
    assert await conn.fetchval("select count(*) from howdah.notice") == 200
    await relay.close()


async def test_a_delivery_waits_for_a_node_that_knows_its_webhook(app, conn, receiver, spoiled):
    app.webhook(receiver.url, **LOCAL)
    stranger = Howdah(app.database.dsn)
    stranger.webhook("https://hooks.example.com/", name="other", on=["consumer.halted"])

    @stranger.task
    async def nothing() -> None: ...

    relay = app.webhooks.relay(app.database)
    await relay.declare()
    await conn.execute("select howdah.note('job.failed', '{\"id\": 1}')")
    async with node(stranger):
        await nothing.enqueue()
        await eventually(lambda: conn.fetchval("select count(*) from howdah.done"))
        assert await conn.fetchval("select count(*) from howdah.notice") == 1
        await relay.relay()
        again = await nothing.enqueue()

        async def ran() -> bool:
            return (await job(conn, again.id))["state"] == "done"

        await eventually(ran)
        assert [row["state"] for row in await deliveries(conn)] == ["queued"]
    await relay.close()
    async with node(app):
        await heard(receiver, 1)


def test_deliveries_are_tried_for_about_a_day():
    waits = sum(BACKOFF.steady(attempt) for attempt in range(1, ATTEMPTS))
    assert 20 * 3600 < waits < 28 * 3600


# -------------------------------------------------------------------- signatures


def test_a_signature_holds_for_one_body_one_moment_and_one_secret():
    body, now = b'{"id": 1}', 1_700_000_000
    headers = {"Howdah-Timestamp": str(now), "Howdah-Signature": sign([SECRET], now, body)}

    assert verify(headers, body, SECRET, now=now)
    assert verify({name.upper(): value for name, value in headers.items()}, body, SECRET, now=now + 299)
    assert not verify(headers, body + b" ", SECRET, now=now)
    assert not verify(headers, body, SECRET + "x", now=now)
    assert not verify(headers, body, SECRET, now=now + 301)
    assert not verify(headers, body, SECRET, now=now - 301)
    assert not verify({**headers, "Howdah-Timestamp": str(now + 1)}, body, SECRET, now=now)
    assert not verify({}, body, SECRET, now=now)
    assert not verify({**headers, "Howdah-Timestamp": "\u0661"}, body, SECRET, now=now)
    assert not verify({**headers, "Howdah-Signature": ""}, body, SECRET, now=now)
    assert not verify({**headers, "Howdah-Signature": "v1=\u00e9"}, body, SECRET, now=now)


def test_a_secret_is_changed_without_a_gap():
    old, new, body, now = "the old secret of ours", "the new secret of ours", b"{}", 1_700_000_000
    during = {"Howdah-Timestamp": str(now), "Howdah-Signature": sign([new, old], now, body)}

    assert verify(during, body, old, now=now)
    assert verify(during, body, new, now=now)
    assert verify({**during, "Howdah-Signature": sign([old], now, body)}, body, [new, old], now=now)
    assert not verify({**during, "Howdah-Signature": sign([old], now, body)}, body, new, now=now)


async def test_without_a_secret_nothing_is_signed(receiver):
    await WebhookSender(Webhook(url=receiver.url, **{**LOCAL, "secret": None})).send(
        Notice(id="1", event="job.failed", at="", subject={})
    )
    assert "howdah-signature" not in receiver.heard[0].headers


async def test_several_secrets_sign_one_after_the_other(receiver):
    both = ["the new secret of ours", "the old secret of ours"]
    await WebhookSender(Webhook(url=receiver.url, **{**LOCAL, "secret": both})).send(
        Notice(id="1", event="job.failed", at="", subject={})
    )
    [letter] = receiver.heard
    assert letter.headers["howdah-signature"].count("v1=") == 2
    assert all(verify(letter.headers, letter.body, secret) for secret in both)


# -------------------------------------------------------------------- the application


async def test_a_long_text_is_cut_and_hidden(receiver):
    subject = {"message": "token=abc " + "x" * 5000}
    await WebhookSender(Webhook(url=receiver.url, **LOCAL)).send(
        Notice(id="1", event="job.failed", at="", subject=subject)
    )
    message = receiver.heard[0].content["subject"]["message"]
    assert len(message) <= 500
    assert message.startswith("token=*** x")


@pytest.mark.parametrize(
    ("event", "subject", "path"),
    [
        ("job.failed", {"id": 7}, "jobs/7"),
        ("consumer.halted", {"consumer": "order/view"}, "consumer?name=order%2Fview"),
        ("queue.stuck", {"queue": "mail"}, "jobs?queue=mail"),
        ("queue.moving", {"queue": "a b"}, "jobs?queue=a%20b"),
    ],
)
async def test_a_message_leads_to_the_dashboard(receiver, event, subject, path):
    hook = Webhook(url=receiver.url, link="https://h.example.com/dashboard", **LOCAL)
    await WebhookSender(hook).send(Notice(id="1", event=event, at="", subject=subject))
    assert receiver.heard[0].content["link"] == f"https://h.example.com/dashboard/{path}"


def test_two_webhooks_of_one_name_are_refused():
    app = Howdah()
    app.webhook("https://hooks.example.com/a")
    with pytest.raises(ConfigError, match=r"two webhooks are named 'hooks\.example\.com'; give one of them name=…"):
        app.webhook("https://hooks.example.com/b")
    app.webhook("https://hooks.example.com/b", name="b", on=["job.failed"])

    assert list(app.webhooks) == ["hooks.example.com", "b"]
    assert app.webhooks["hooks.example.com"].on == EVENTS
    assert {"howdah:webhook:b", "howdah:webhook:hooks.example.com"} <= set(app.handlers)


def test_a_node_without_webhooks_is_as_it_was():
    app, options = Howdah(), WorkerOptions(queues={"mail": 3})
    assert app.webhooks.serving(options) is options
    app.webhook("https://hooks.example.com/")
    assert app.webhooks.serving(options).limited == {"mail": 3, "howdah": 4}
    assert app.webhooks.serving(WorkerOptions()).queues is None
